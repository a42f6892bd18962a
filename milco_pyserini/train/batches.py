"""Examples to batches of token ids: what the data loader's workers do."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.data.retrieval_stream import QueryGroup
from milco_pyserini.train.teachers import Teacher

# Blocks among which examples of similar length are gathered: padding falls to a few per cent.
_WINDOW = 32


def pair_length(pair: BitextPair) -> int:
    """Bytes of both sides: near enough to their tokens, whatever the script."""
    return len(pair.text.encode()) + len(pair.english.encode())


class Texts:
    """Texts to "input_ids" and "attention_mask", int64 [B, S], padded to the longest."""

    def __init__(self, tokenizer: TextTokenizer, pad_id: int, lowercase: bool = False) -> None:
        self.tokenizer = tokenizer
        self.pad_id = pad_id
        self.lowercase = lowercase
        # A text without a piece of its own still has the marks around it, or its row would be empty.
        self._marks = tokenizer.tokenizer.encode("").ids

    def __call__(self, texts: Sequence[str], max_length: int) -> dict[str, Tensor]:
        """max_length: in tokens, <s> and </s> included."""
        texts = [text.lower() for text in texts] if self.lowercase else texts
        rows = [torch.tensor(tokens.ids or self._marks) for tokens in self.tokenizer.tokenize(texts, max_length)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long()}


def alignment_collator(texts: Texts, teacher: Teacher, max_length: int) -> Callable[[list[BitextPair]], dict]:
    """Pairs to the arguments of Alignment.forward(), and "languages"."""

    def collate(pairs: list[BitextPair]) -> dict:
        return {
            "text": texts([pair.text for pair in pairs], max_length),
            "english": texts([pair.english for pair in pairs], max_length),
            "teacher": teacher.prepare(pairs),
            "languages": {"text": [pair.language for pair in pairs], "english": ["en"] * len(pairs)},
        }

    return collate


def contrast_collator(texts: Texts, query_length: int, passage_length: int) -> Callable[[list[QueryGroup]], dict]:
    """Groups to the arguments of Contrast.forward(), and "languages"."""

    def collate(groups: list[QueryGroup]) -> dict:
        passages = [passage for group in groups for passage in group.passages]
        languages = [group.language for group in groups]
        batch = {
            "query": texts([group.query for group in groups], query_length),
            "passage": texts(passages, passage_length),
            "languages": {
                "query": languages,
                "passage": [group.language for group in groups for _ in group.passages],
            },
        }
        if all(group.scores is not None for group in groups):
            batch["scores"] = torch.tensor([group.scores for group in groups])
        return batch

    return collate


class Examples(IterableDataset):
    """A stream from its n-th example on, in batches of similar length, shared among a data loader's workers.

    first: examples that were seen before. block: examples that all processes take together in one batch; worker k has
    every block whose number, from there on, is k modulo the number of workers, and the loader asks the workers in turn,
    so that the order is the same for any number of them. length: of an example; blocks of similar ones are formed
    within a window of so many blocks, and come in random order. None keeps the stream's own order.
    """

    def __init__(
        self, stream: IterableDataset, first: int, block: int, length: Callable[[Any], int] | None, seed: int
    ) -> None:
        self.stream = stream
        self.first = first
        self.block = block
        self.length = length
        self.seed = seed

    def __iter__(self) -> Iterator:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        blocks = self._blocks() if self.length is None else self._sorted_blocks(self.length)
        for place, block in enumerate(blocks):
            if place % workers == number:
                yield from block

    def _blocks(self) -> Iterator[list]:
        examples = itertools.islice(self.stream, self.first, None)
        while True:
            yield list(itertools.islice(examples, self.block))

    def _sorted_blocks(self, length: Callable[[Any], int]) -> Iterator[list]:
        size = _WINDOW * self.block
        window, seen = divmod(self.first, size)
        examples = itertools.islice(self.stream, window * size, None)
        while True:
            sorted_examples = sorted(itertools.islice(examples, size), key=length)
            starts = list(range(0, size, self.block))
            random.Random(f"{self.seed} {window}").shuffle(starts)
            for start in starts[seen // self.block :]:
                yield sorted_examples[start : start + self.block]
            window, seen = window + 1, 0

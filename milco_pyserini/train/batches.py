"""Turn examples into batches of token ids: the work of the data loader's processes."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.data.parallel import Translations
from milco_pyserini.train.data.streams import QueryGroup
from milco_pyserini.train.dense_teacher import batch_texts
from milco_pyserini.train.teachers import AlignmentTeacher

# Blocks among which examples are sorted by length: a few percent of a batch is padding then.
_WINDOW = 32


class TextCollator:
    """Turn texts into "input_ids" and "attention_mask", int64 [B, S], padded to the longest."""

    def __init__(self, tokenizer: TextTokenizer, pad_id: int, lowercase: bool = False) -> None:
        self.tokenizer = tokenizer
        self.pad_id = pad_id
        self.lowercase = lowercase
        # An empty text still has the special tokens: a row of length 0 has no maximum.
        self._empty = tokenizer.tokenizer.encode("").ids

    def __call__(self, texts: Sequence[str], max_length: int) -> dict[str, Tensor]:
        """Tokenize and pad. max_length: tokens per text, special tokens included."""
        texts = [text.lower() for text in texts] if self.lowercase else texts
        rows = [torch.tensor(tokens.ids or self._empty) for tokens in self.tokenizer.tokenize(texts, max_length)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long()}


@dataclass
class AlignmentCollator:
    """Turns pairs into the arguments of Alignment.forward() and "languages". max_length: tokens per text."""

    texts: TextCollator
    teacher: AlignmentTeacher
    max_length: int

    def __call__(self, pairs: list[BitextPair]) -> dict:
        """Tokenize a batch of pairs, and prepare the teacher's input."""
        return {
            "text": self.texts([pair.text for pair in pairs], self.max_length),
            "english": self.texts([pair.english for pair in pairs], self.max_length),
            "teacher": self.teacher.prepare(pairs),
            "languages": {"text": [pair.language for pair in pairs], "english": ["en"] * len(pairs)},
        }


@dataclass
class ContrastCollator:
    """Turns groups, or translations, into the arguments of Contrast.forward() and "languages".

    query_length, passage_length: tokens per text, at most. with_texts: whether a batch has its texts, as a dense
    teacher needs them. teacher: of the English terms of translations.
    """

    texts: TextCollator
    query_length: int
    passage_length: int
    with_texts: bool = False
    teacher: AlignmentTeacher | None = None

    def __call__(self, examples: list[QueryGroup] | list[Translations]) -> dict:
        """Tokenize a batch."""
        batch = self.tokenize(examples)
        return batch | {"texts": batch_texts(examples)} if self.with_texts else batch

    def tokenize(self, examples: list[QueryGroup] | list[Translations]) -> dict:
        """Return the batch without its texts."""
        if isinstance(examples[0], Translations):
            translations = cast(list[Translations], examples)
            batch = collate_translations(translations, self.texts, self.passage_length)
            if self.teacher is not None:
                rows = [row for one in translations for row in zip(one.languages, one.texts, one.english, strict=True)]
                batch["teacher"] = self.teacher.prepare([BitextPair(*row) for row in rows])
            return batch
        groups = cast(list[QueryGroup], examples)
        passages = [passage for group in groups for passage in group.passages]
        batch = {
            "query": self.texts([group.query for group in groups], self.query_length),
            "passage": self.texts(passages, self.passage_length),
            "languages": {
                "query": [group.language for group in groups],
                "passage": [group.language for group in groups for _ in group.passages],
            },
        }
        if all(group.scores is not None for group in groups):
            batch["scores"] = torch.tensor([group.scores for group in groups])
        return batch


def collate_translations(examples: Sequence[Translations], texts: TextCollator, max_length: int) -> dict:
    """Return the arguments of Contrast.forward() for translations, and "languages"."""
    return {
        "text": texts([text for example in examples for text in example.texts], max_length),
        "meaning": torch.tensor([place for place, example in enumerate(examples) for _ in example.texts]),
        "is_query": torch.tensor([not joined for example in examples for joined in example.joined]),
        "languages": {"text": [language for example in examples for language in example.languages]},
    }


def pair_length(pair: BitextPair) -> int:
    """Return the bytes of both sides: a good proxy for their tokens in any script."""
    return len(pair.text.encode()) + len(pair.english.encode())


class ExampleStream(IterableDataset):
    """A training process's share of a stream, from its n-th example on, in blocks of similar length.

    The blocks are divided among data loader workers: worker k yields every block whose number, counted from the first,
    is k modulo the number of workers, and the loader asks the workers in turn, so the order does not depend on their
    number.

    Args:
        stream: endless and reproducible.
        first: number of examples to skip, which a resumed run has seen.
        block: examples of one batch over all training processes.
        length: of an example. Within a window of blocks, examples of similar length are gathered into blocks, which
            come in random order. None keeps the stream's order.
        seed: of the order of the blocks.
        process, processes: number of this training process, and of all; each has an equal part of every block.
    """

    def __init__(
        self,
        stream: IterableDataset,
        first: int,
        block: int,
        length: Callable[[Any], int] | None,
        seed: int,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        self.stream = stream
        self.first = first
        self.block = block
        self.length = length
        self.seed = seed
        size = block // processes
        self.share = slice(process * size, (process + 1) * size)

    def __iter__(self) -> Iterator:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for place, block in enumerate(self.blocks()):
            if place % workers == number:
                yield from block[self.share]

    def blocks(self) -> Iterator[list]:
        """Yield blocks of examples forever."""
        if self.length is None:
            examples = itertools.islice(self.stream, self.first, None)
            while True:
                yield list(itertools.islice(examples, self.block))
        size = _WINDOW * self.block
        window, seen = divmod(self.first, size)
        examples = itertools.islice(self.stream, window * size, None)
        while True:
            by_length = sorted(itertools.islice(examples, size), key=self.length)
            starts = list(range(0, size, self.block))
            random.Random(f"{self.seed} {window}").shuffle(starts)
            for start in starts[seen // self.block :]:
                yield by_length[start : start + self.block]
            window, seen = window + 1, 0

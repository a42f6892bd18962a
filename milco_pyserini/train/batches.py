"""Turn examples into batches of token ids: the work of the data loader's processes."""

import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.train.data.parallel import Translations
from milco_pyserini.train.data.streams import ExampleStream, QueryGroup
from milco_pyserini.train.teachers import AlignmentTeacher, Texts

T = TypeVar("T")


class TextCollator:
    """Turn texts into "input_ids" and "attention_mask", int64 [B, S], padded to the longest."""

    def __init__(self, tokenizer: TextTokenizer, pad_id: int) -> None:
        self.tokenizer, self.pad_id = tokenizer, pad_id
        # An empty text still has the special tokens: a row of length 0 has no maximum.
        self._empty = tokenizer.tokenizer.encode("").ids

    @classmethod
    def of(cls, encoder: MilcoEncoder) -> Self:
        """Return the collator of a model."""
        return cls(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)

    def __call__(self, texts: Sequence[str], max_length: int) -> dict[str, Tensor]:
        """Tokenize and pad. max_length: tokens per text, special tokens included."""
        rows = [torch.tensor(tokens.ids or self._empty) for tokens in self.tokenizer.tokenize(texts, max_length)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long()}


@dataclass
class AlignmentCollator:
    """Turns pairs into the arguments of AlignmentLoss.forward() and "languages". max_length: tokens per text."""

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
    """Turns groups, or translations, into the arguments of ContrastiveLoss.forward() and "languages".

    query_length, passage_length: tokens per text, at most. with_texts: whether a batch has its texts, as a
    SimilarityTeacher needs them. teacher: of the English terms of translations; aligns_groups: also of queries and
    positives.
    """

    texts: TextCollator
    query_length: int
    passage_length: int
    with_texts: bool = False
    teacher: AlignmentTeacher | None = None
    aligns_groups: bool = False

    def __call__(self, examples: list[QueryGroup] | list[Translations]) -> dict:
        """Tokenize a batch."""
        collate: Any = self.translations if isinstance(examples[0], Translations) else self.groups
        batch = add_known(collate(examples))
        return batch | {"texts": batch_texts(examples)} if self.with_texts else batch

    def translations(self, examples: list[Translations]) -> dict:
        """Return a batch of translations without its texts."""
        rows = [
            row for example in examples for row in zip(example.languages, example.texts, example.english, strict=True)
        ]
        batch = {
            "text": self.texts([text for _, text, _ in rows], self.passage_length),
            "meaning": torch.tensor([place for place, example in enumerate(examples) for _ in example.texts]),
            "is_query": torch.tensor([not joined for example in examples for joined in example.joined]),
            "languages": {"text": [language for language, _, _ in rows]},
        }
        return batch | {"teacher": self.teacher.prepare([BitextPair(*row) for row in rows])} if self.teacher else batch

    def groups(self, groups: list[QueryGroup]) -> dict:
        """Return a batch of queries and their passages without its texts."""
        batch = {
            "query": self.texts([group.query for group in groups], self.query_length),
            "passage": self.texts([passage for group in groups for passage in group.passages], self.passage_length),
            "languages": {
                "query": [group.language for group in groups],
                "passage": [group.language for group in groups for _ in group.passages],
            },
        }
        if self.teacher is not None and self.aligns_groups:
            texts = [(group.language, group.query) for group in groups]
            texts += [(group.language, group.passages[0]) for group in groups]
            batch["teacher"] = self.teacher.prepare([BitextPair(language, text, text) for language, text in texts])
        scores = [group.scores for group in groups]
        return batch if None in scores else batch | {"scores": torch.tensor(scores)}


def batch_texts(examples: Sequence[QueryGroup | Translations]) -> dict[str, Texts]:
    """Return the texts of examples by argument of ContrastiveLoss.forward(). Translations count as queries."""
    queries, passages = Texts([], [], True), Texts([], [], False)
    name = "query"
    for example in examples:
        if isinstance(example, Translations):
            name = "text"
            queries.texts.extend(example.texts)
            queries.languages.extend(example.languages)
        else:
            queries.texts.append(example.query)
            queries.languages.append(example.language)
            passages.texts.extend(example.passages)
            passages.languages.extend([example.language] * len(example.passages))
    return {name: queries, "passage": passages} if name == "query" else {name: queries}


def add_known(batch: dict[str, Any]) -> dict[str, Any]:
    """Add what the CPU would read from a GPU: "lengths" of each side's texts, and "tokens", int64 [U], of all sides."""
    sides = [batch[name] for name in ("query", "passage", "text") if name in batch]
    for side in sides:
        side["lengths"] = side["attention_mask"].sum(dim=1).tolist()
    return batch | {"tokens": torch.cat([side["input_ids"].flatten() for side in sides]).unique()}


def pair_length(pair: BitextPair) -> int:
    """Return the bytes of both sides: a good proxy for their tokens in any script."""
    return len(pair.text.encode()) + len(pair.english.encode())


@dataclass
class ProcessBatches:
    """The batches of a training process, from its n-th on: the batch sampler of a DataLoader, forever.

    The training process reads the stream once, and data loader workers tokenize. So their number does not change the
    order.

    Args:
        stream: of examples.
        first: number of batches to skip, which a resumed run has seen.
        size: examples of a batch.
        process, processes: number of this training process, and of all; the batches of all processes together are
            consecutive examples of the stream.
        gathered: batches of this process whose sentence pairs are sorted by length together, and come in random order;
            below 2, examples come in the order of the stream.
        seed: of that order.
    """

    stream: ExampleStream
    first: int
    size: int
    process: int = 0
    processes: int = 1
    gathered: int = 0
    seed: int = 0

    def __iter__(self) -> Iterator[list]:
        size, total = self.size, self.size * self.processes
        share = slice(self.process * size, (self.process + 1) * size)
        if self.gathered < 2:
            yield from self.stream.blocks(self.first * total, total, share)
        window, seen = divmod(self.first, self.gathered)
        blocks = self.stream.blocks(window * self.gathered * total, total, share)
        while True:
            examples = itertools.chain.from_iterable(itertools.islice(blocks, self.gathered))
            by_length = sorted(examples, key=pair_length)
            starts = list(range(0, len(by_length), size))
            random.Random(f"{self.seed} {self.process} {window}").shuffle(starts)
            for start in starts[seen:]:
                yield by_length[start : start + size]
            window, seen = window + 1, 0


def read_ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """Yield the items of an endless iterator; a thread reads count of them ahead, while the device computes."""
    reader = ThreadPoolExecutor(1)
    try:
        ahead = deque(reader.submit(next, items) for _ in range(count))
        while True:
            ahead.append(reader.submit(next, items))
            yield ahead.popleft().result()
    finally:
        reader.shutdown(cancel_futures=True)


class GivenExamples(Dataset):
    """The dataset of a batch sampler that yields examples in place of their numbers."""

    def __getitems__(self, examples: list) -> list:
        """Return the examples of a batch."""
        return examples

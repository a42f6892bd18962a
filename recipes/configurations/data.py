"""Split queries with passages into a training set and small test collections that share no passage."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_directory, atomic_file, read_json, write_json
from milco_pyserini.train.data.retrieval import RetrievalExample, dump_example, file_language, open_retrieval

# Share of every set, its last passages with their queries, that is not trained on.
HELD_OUT = 0.1
# Queries in the language of the set, passages in English; all other sets are monolingual.
CROSS_LANGUAGE = "afriqa-xen"

Sets = dict[str, list[RetrievalExample]]
ItemT = TypeVar("ItemT")


class TestQuery(NamedTuple):
    """A query and the number of its relevant passage."""

    text: str
    passage: int


class TestCollection(NamedTuple):
    """Passages, and the queries that search them by language."""

    name: str
    passages: list[str]
    queries: dict[str, list[TestQuery]]


def prepare(data: Path, directory: Path, train_queries: int, queries: int, passages: int) -> None:
    """Split DATA/retrieval into directory/train/*.jsonl and directory/test/*.json, atomically.

    Args:
        data: the data directory.
        directory: nothing is done if it exists.
        train_queries, queries: of each set at most, evenly spaced.
        passages: of each test collection; besides relevant ones, held-out passages first, then training passages,
            evenly spaced.
    """
    if directory.exists():
        return
    sets = read_sets(data / "retrieval")
    training, held_out = split(sets)
    with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as partial:
        for name, examples in training.items():
            with atomic_file(partial / "train" / f"{name}.jsonl") as handle:
                handle.writelines(dump_example(example) + b"\n" for example in spread(examples, train_queries))
        for collection in collections(sets, held_out, queries, passages):
            # "questions" is the key in work directories of release 0.1.
            questions = {language: [list(pair) for pair in pairs] for language, pairs in collection.queries.items()}
            values = {"name": collection.name, "passages": collection.passages, "questions": questions}
            write_json(partial / "test" / f"{collection.name}.json", values)
            number = counted(sum(map(len, questions.values())), "query", "queries")
            log(f"{collection.name}: {number}, {counted(len(collection.passages), 'passage')}")


def read_collections(directory: Path) -> list[TestCollection]:
    """Read the test collections that prepare() wrote, sorted by name."""
    found = []
    for path in sorted((directory / "test").glob("*.json")):
        values = read_json(path)
        asked = {name: [TestQuery(*pair) for pair in pairs] for name, pairs in values["questions"].items()}
        found.append(TestCollection(values["name"], values["passages"], asked))
    return found


def read_sets(directory: Path) -> Sets:
    """Read the examples of every JSONL file in a directory, by its name without suffixes: NAME.LANG.

    Raises MilcoError if the directory does not exist, or a file has fewer than two examples.
    """
    if not directory.is_dir():
        raise MilcoError(f"{directory} does not exist: --data is a directory with bitext/ and retrieval/")
    sources = open_retrieval([directory])
    names = [Path(source.name).name.removesuffix(".gz").removesuffix(".jsonl") for source in sources]
    sets = {name: list(source.examples()) for name, source in zip(names, sources, strict=True)}
    for name, examples in sets.items():
        if len(examples) < 2:
            raise MilcoError(f"{directory / name}: {counted(len(examples), 'example')}, too few to hold out any")
    return sets


def split(sets: Mapping[str, Sequence[RetrievalExample]]) -> tuple[Sets, Sets]:
    """Return training and held-out examples. A passage that one set holds out is in no training set."""
    held = {}
    for name, examples in sets.items():
        passages = list(dict.fromkeys(text for example in examples for text in example.positives))
        held[name] = frozenset(passages[-math.ceil(HELD_OUT * len(passages)) :])
    anywhere = frozenset().union(*held.values())
    training = {name: [e for e in examples if anywhere.isdisjoint(e.positives)] for name, examples in sets.items()}
    held_out = {name: [e for e in examples if e.positives[0] in held[name]] for name, examples in sets.items()}
    return training, held_out


def collections(sets: Sets, held_out: Sets, queries: int, passages: int) -> list[TestCollection]:
    """Return a collection for all sets of a name (NAME.LANG), sorted by name."""
    found = []
    for name in sorted({_collection(full) for full in sets}):
        members = sorted(full for full in sets if _collection(full) == name)
        asked = {_language(full): spread(held_out[full], queries) for full in members}
        answers = [example.positives[0] for examples in asked.values() for example in examples]
        others = [e.positives[0] for full in members for e in held_out[full]]
        numbers = {text: place for place, text in enumerate(dict.fromkeys(answers + others))}
        more = [text for text in dict.fromkeys(e.positives[0] for f in members for e in sets[f]) if text not in numbers]
        wanted = max(passages, len(set(answers)))
        texts = [*list(numbers)[:wanted], *spread(more, max(0, wanted - len(numbers)))]
        test_queries = {
            language: [TestQuery(example.query, numbers[example.positives[0]]) for example in examples]
            for language, examples in asked.items()
        }
        found.append(TestCollection(name, texts, test_queries))
    return found


def spread(items: Sequence[ItemT], count: int) -> list[ItemT]:
    """Return at most count items, evenly spaced, in order."""
    if len(items) <= count:
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


def _collection(name: str) -> str:
    return name.removesuffix(f".{_language(name)}")


def _language(name: str) -> str:
    return file_language(Path(f"{name}.jsonl"))

"""Questions and passages to a training set and to small test collections that share no passage with it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_directory, atomic_file, read_json, write_json
from milco_pyserini.train.data.retrieval import RetrievalExample, dump_example, file_language
from milco_pyserini.train.data.retrieval_stream import open_retrieval

# Of every set, the last passages and their queries are not trained on.
HELD_OUT = 0.1
# Questions in the language of the set, passages in English; all other sets are in one language.
CROSS_LANGUAGE = "afriqa-xen"

Sets = dict[str, list[RetrievalExample]]
ItemT = TypeVar("ItemT")


class Question(NamedTuple):
    """A query and the number of the passage that answers it."""

    text: str
    passage: int


class Collection(NamedTuple):
    """Passages and the questions that search them, by language."""

    name: str
    passages: list[str]
    questions: dict[str, list[Question]]


def prepare(data: Path, directory: Path, train_queries: int, queries: int, passages: int) -> None:
    """Split DATA/retrieval into directory/train/*.jsonl and directory/test/*.json, whole or not at all.

    train_queries, queries: of each set at most, evenly spread. passages: of each test collection; those that answer
    none of its questions are held-out ones first, then training passages, evenly spread.
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
            write_json(partial / "test" / f"{collection.name}.json", _as_json(collection))
            number = sum(map(len, collection.questions.values()))
            say(f"{collection.name}: {counted(number, 'question')}, {counted(len(collection.passages), 'passage')}")


def read_collections(directory: Path) -> list[Collection]:
    """The test collections that prepare() wrote, by name."""
    found = []
    for path in sorted((directory / "test").glob("*.json")):
        values = read_json(path)
        questions = {name: [Question(*pair) for pair in pairs] for name, pairs in values["questions"].items()}
        found.append(Collection(values["name"], values["passages"], questions))
    return found


def read_sets(directory: Path) -> Sets:
    """The examples of every file of questions in a directory, by its name without endings: NAME.LANGUAGE.

    Raises MilcoError if the directory is not there, or a file has fewer than two examples.
    """
    if not directory.is_dir():
        raise MilcoError(f"{directory} is not there: --data names a directory with bitext/ and retrieval/")
    sources = open_retrieval([directory])
    sets = {_name(source.name): list(source.examples()) for source in sources}
    for name, examples in sets.items():
        if len(examples) < 2:
            raise MilcoError(f"{directory / name}: {counted(len(examples), 'example')}, too few to hold any out")
    return sets


def split(sets: Mapping[str, Sequence[RetrievalExample]]) -> tuple[Sets, Sets]:
    """The examples to train on and those held out. A passage that one set holds out is in no set's training part."""
    held = {name: _last_passages(examples) for name, examples in sets.items()}
    anywhere = frozenset().union(*held.values())
    training = {name: [e for e in examples if anywhere.isdisjoint(e.positives)] for name, examples in sets.items()}
    held_out = {name: [e for e in examples if e.positives[0] in held[name]] for name, examples in sets.items()}
    return training, held_out


def collections(sets: Sets, held_out: Sets, queries: int, passages: int) -> list[Collection]:
    """One collection for all sets of a name (NAME.LANGUAGE), in the order of names."""
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
        questions = {
            language: [Question(example.query, numbers[example.positives[0]]) for example in examples]
            for language, examples in asked.items()
        }
        found.append(Collection(name, texts, questions))
    return found


def spread(items: Sequence[ItemT], count: int) -> list[ItemT]:
    """At most count of the items, at even distances, in their order."""
    if len(items) <= count:
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


def _as_json(collection: Collection) -> dict:
    questions = {language: [list(pair) for pair in pairs] for language, pairs in collection.questions.items()}
    return collection._asdict() | {"questions": questions}


def _last_passages(examples: Sequence[RetrievalExample]) -> frozenset[str]:
    """The last tenth of the distinct passages, in the order of first sight."""
    passages = list(dict.fromkeys(text for example in examples for text in example.positives))
    return frozenset(passages[-math.ceil(HELD_OUT * len(passages)) :])


def _name(path: str) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".jsonl")


def _collection(name: str) -> str:
    return name.removesuffix(f".{_language(name)}")


def _language(name: str) -> str:
    return file_language(Path(f"{name}.jsonl"))

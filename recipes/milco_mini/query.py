"""python -m recipes.milco_mini.query --data DATA --work WORK --output DIRECTORY: train milco-mini's query encoder.

A few layers are trained to give the query vectors of milco-mini; its embeddings, its decoder and its source view are
used as they are. The teacher encodes every text once: the states that its decoder reads, and its pivot terms. A step
compares the states of tokens, the terms of texts, and their scores for passages and for the other texts. Evaluation
data is never read. The training resumes from its file; a work directory is of one teacher, data and seed.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.defaults import MINI
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.options import option

from .. import RecipeOptions
from .data import training_sets
from .spelling import spell

# Characters of a text, and lines of a file that texts are drawn from.
_SHORTEST, _LONGEST, _LINES = 3, 160, 20_000
# Shares of a language's texts: questions and titles, then words; the rest are sentences. Shares of texts that are
# replaced by another spelling.
_QUESTIONS, _WORDS, _SPELLED = 0.35, 0.15, 0.15
_SPELLINGS = ("lower", "marks", "ue", "characters", "kana", "alef", "typos")
_QUESTION_SOURCE = "mkqa-queries"


@dataclass(frozen=True, kw_only=True)
class QueryOptions(RecipeOptions):
    """Train a query encoder of a few layers: texts, the teacher's vectors, training, checkpoint."""

    data: Path = option(metavar="DIR", help="directory with bitext/, lexicon/ and retrieval/")
    teacher: str = option(MINI, metavar="CHECKPOINT", help="the encoder of documents, whose queries are learned")
    output: Path = option(metavar="DIR", help="directory of the checkpoint; replaced")
    layers: tuple[int, ...] = option((0, 1, 2), metavar="N", help="layers of the teacher that the training starts from")
    start: Path | None = option(
        None, metavar="DIR", help="query network of as many layers to start from in their place"
    )
    texts: int = option(4_000, minimum=1, help="texts of each language")
    passages: int = option(3_000, minimum=1, help="passages whose scores are learned")
    steps: int = option(6_000, minimum=1, help="steps of the training")
    batch: int = option(64, minimum=1, help="texts of a step")
    rate: float = option(5e-4, metavar="RATE", above=0, help="peak learning rate")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        for name in ("bitext", "lexicon", "retrieval"):
            if not (self.data / name).is_dir():
                yield f"--data {self.data}: it has no {name}/"
        if self.start is not None:
            config = self.start / "config.json"
            if not is_json_with(config, "layers") or read_json(config)["layers"] != len(self.layers):
                yield f"--start {self.start}: it is no query network of {counted(len(self.layers), 'layer')}"


def command(options: QueryOptions) -> None:
    """Run every stage whose result is missing, then write the checkpoint."""
    from milco_pyserini.train.cli import validate_installation

    validate_installation()
    import torch

    from milco_pyserini.encode.encoder import MilcoEncoder

    from .query_training import QueryTraining, write_checkpoint

    options.begin(("output", "steps", "batch", "rate"))
    torch.set_num_threads(options.threads)
    teacher = MilcoEncoder.from_pretrained(options.teacher, device="cpu", dtype="fast")
    texts = options.work / "texts.json"
    if not texts.exists():
        drawn = {"queries": draw(options.data, options.texts, options.seed)}
        drawn["passages"] = draw_passages(options.data, options.passages, options.seed)
        texts.write_text(json.dumps(drawn, ensure_ascii=False), encoding="utf-8")
    training = QueryTraining(teacher, json.loads(texts.read_text(encoding="utf-8")), options)
    training.train()
    write_checkpoint(training.student, teacher, options.teacher, options.output)


def draw(data: Path, count: int, seed: int) -> list[str]:
    """Return texts, as many of each language as it has, up to count: questions and titles, words, and sentences.

    English has as many as two other languages. The order is random.
    """
    rng = random.Random(f"{seed} queries")
    found: list[str] = []
    for language, kinds in sorted(collect(data).items()):
        wanted = count * (2 if language == "en" else 1)
        chosen: list[str] = []
        for kind, share in (("questions", _QUESTIONS), ("words", _QUESTIONS + _WORDS), ("sentences", 1.0)):
            rows = list(dict.fromkeys(kinds[kind]))
            chosen += rng.sample(rows, min(len(rows), max(0, round(wanted * share) - len(chosen))))
        found += [spell(text, language, rng, _SPELLINGS) if rng.random() < _SPELLED else text for text in chosen]
        log(f"Texts of {language}: {len(chosen):,}")
    rng.shuffle(found)
    return found


def collect(data: Path) -> dict[str, dict[str, list[str]]]:
    """Return texts of the training data by language and kind: questions, words, sentences."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def add(language: str, kind: str, *texts: str) -> None:
        found[language][kind] += [text for text in texts if _SHORTEST <= len(text) <= _LONGEST]

    for source in open_bitext([data / "bitext", data / "lexicon"]):
        folder = Path(source.name).parent
        kind = "questions" if folder.name == _QUESTION_SOURCE else "sentences"
        kind = "words" if folder.parent.name == "lexicon" else kind
        for pair in islice(source.pairs(), _LINES):
            add(pair.language, kind, pair.text)
            add("en", kind, pair.english)
    for retrieval, examples in training_sets(data):
        for example in examples:
            add(retrieval.language, "questions", example.query)
            if "afriqa" not in retrieval.name:
                add(retrieval.language, "questions", example.title)
    return found


def draw_passages(data: Path, count: int, seed: int) -> list[str]:
    """Return passages of the training sets, without those that are held out, and English sides of sentence pairs."""
    rng = random.Random(f"{seed} passages")
    passages = [text for _, examples in training_sets(data) for example in examples for text in example.positives[:1]]
    passages = list(dict.fromkeys(passages))
    return rng.sample(passages, min(count, len(passages)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.milco_mini.query", QueryOptions, command, argv, "the same command resumes")


if __name__ == "__main__":
    sys.exit(main())

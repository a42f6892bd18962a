"""Pipelines of a figure, encode -> index -> search -> eval: steps that are both a command line and a call."""

import functools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.conditions import BM25, DENSE, FUSION, Condition, Dataset, find_condition
from milco_pyserini.defaults import directory_name
from milco_pyserini.io.manifest import MANIFEST

CORPUS, TOPICS, QRELS, ANSWERS, ENCODER = "corpus", "topics", "qrels", "answers", "encoder"
# Name -> value of a command's options.
Options = dict[str, Any]
# Documents of each topic in a run: no measure of the tables looks deeper.
DEPTH = 100


@dataclass(frozen=True)
class Requirement:
    """Something a step reads that may have to be downloaded.

    Args:
        kind: CORPUS, TOPICS, QRELS, ANSWERS or ENCODER.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Step:
    """One command of a pipeline.

    Args:
        command: Such as "encode" or "search fuse".
        arguments: Its options in order, as the library takes them: Path, str, int, True, or a tuple of them.
        output: The file or directory it writes.
        done: The file that exists once output is complete.
        inputs: The steps that must run before.
        stdout: The command prints output.
    """

    command: str
    arguments: tuple[tuple[str, Any], ...]
    output: Path
    done: Path
    inputs: tuple["Step", ...] = field(default=(), compare=False)
    requires: tuple[Requirement, ...] = field(default=(), compare=False)
    stdout: bool = False

    @property
    def argv(self) -> list[str]:
        """The command line as words, without the program."""
        words = self.command.split()
        for name, value in self.arguments:
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words += map(str, value if isinstance(value, tuple) else (value,))
        return words

    @property
    def command_line(self) -> str:
        """The command as a user types it."""
        program = "python -m" if self.command.startswith("experiments.") else "milco"
        line = f"{program} {shlex.join(self.argv)}"
        return f"{line} > {shlex.quote(str(self.output))}" if self.stdout else line

    def missing(self) -> Iterator["Step"]:
        """Yield the steps that its output lacks, in the order of running; shared inputs may come twice.

        What a complete output was made of may have been removed.
        """
        if not self.done.exists():
            for step in self.inputs:
                yield from step.missing()
            yield self

    def pipeline(self) -> Iterator["Step"]:
        """Yield the steps up to this one in the order of running; shared inputs may come twice."""
        for step in self.inputs:
            yield from step.pipeline()
        yield self


class Pipeline:
    """Makes the steps of the tables within one directory.

    Args:
        directory: Of vectors, indexes, runs and evaluations.
        checkpoints: Key of a condition's checkpoint -> name or path.
        local: Benchmark, or name of a corpus or topics -> copy of its publisher's files.
        device: Of the encoders.
        threads: That index and search.
    """

    def __init__(
        self,
        directory: Path,
        checkpoints: Mapping[str, str],
        local: Mapping[str, str] | None = None,
        device: str = "auto",
        threads: int = 1,
    ) -> None:
        self.directory = directory
        self.checkpoints = checkpoints
        self.local = local or {}
        self._device = {} if device == "auto" else {"device": device}
        self._threads = {} if threads == 1 else {"threads": threads}

    def has_checkpoints(self, condition: Condition) -> bool:
        """Return whether every encoder of a condition is available, or may be downloaded."""
        parts = [find_condition(part) for part in condition.parts] or [condition]
        return all(part.checkpoint is None or part.checkpoint in self.checkpoints for part in parts)

    def encode(self, condition: Condition, dataset: Dataset) -> Step:
        """Encode the documents."""
        options: Options = {}
        if dataset.split_passages and condition.max_length is None:
            options = {"split_passages": True}
        elif dataset.split_passages:
            options = {"max_length": condition.max_length}
        return self._encode(condition, dataset, CORPUS, _short(dataset.corpus), options)

    def index(self, condition: Condition, dataset: Dataset, prune: str | None = None) -> Step:
        """Index the documents, pruned by a rule."""
        output = self.directory / "indexes" / f"{_short(dataset.corpus)}.{condition.name}{_suffix(prune=prune)}"
        if condition.kind == BM25:
            corpus = self._located(dataset.corpus)
            analysis = {"tokenizer": self._checkpoint(condition)} if condition.checkpoint else {}
            options: Options = {"engine": "bm25", "corpus": corpus, **(analysis or {"language": dataset.language})}
            requires = (Requirement(CORPUS, corpus), *self._encoders(condition))
            return _step("index", options | {"output": output} | self._threads, output / MANIFEST, (), requires)
        vectors = self.encode(condition, dataset)
        options = {"vectors": vectors.output}
        options |= {"engine": "flat"} if condition.kind == DENSE else {}
        options |= {"prune": (prune,)} if prune else {}
        return _step("index", options | {"output": output} | self._threads, output / MANIFEST, (vectors,))

    def search(
        self, condition: Condition, dataset: Dataset, prune: str | None = None, alpha: str | None = None
    ) -> Step:
        """Search the topics.

        Args:
            prune: Rule for the documents. Topics are then encoded once for all rules.
            alpha: Weight of the pivot view of the topics.
        """
        options: Options
        corpus, topics = _short(dataset.corpus), _short(dataset.topics)
        # Corpus and topics of one language usually share its name.
        name = topics if topics.startswith(corpus) else f"{corpus}.{topics}"
        output = self.directory / "runs" / f"{name}.{condition.name}{_suffix(prune, alpha)}.txt"
        if condition.kind == FUSION:
            runs = tuple(self.search(find_condition(part), dataset, prune, alpha) for part in condition.parts)
            options = {"runs": tuple(run.output for run in runs), "method": "rrf", "output": output}
            return _step("search fuse", options, output, runs)
        inputs = [self.index(condition, dataset, prune)]
        options = {"index": inputs[0].output}
        requires: tuple[Requirement, ...] = ()
        if prune:
            inputs.append(self._encode(condition, dataset, TOPICS, f"{topics}.topics", {}))
            options |= {"topics": str(inputs[1].output)}
        else:
            options |= {"topics": self._located(dataset.topics)}
            requires = (Requirement(TOPICS, options["topics"]),)
        passages = dataset.split_passages and condition.kind != BM25 and condition.max_length is None
        # Passages to start from; --max-passage-hits is DEPTH by default.
        options |= {"hits": 1000, "max_passage": True} if passages else {"hits": DEPTH}
        options |= {"alpha": float(alpha)} if alpha is not None else {}
        options |= {"remove_query": True} if dataset.remove_query else {}
        if not prune and condition.kind != BM25:
            requires += self._encoders(condition)
            options |= self._device
        return _step("search", options | {"output": output} | self._threads, output, tuple(inputs), requires)

    def evaluate(self, run: Step, dataset: Dataset, measures: Sequence[str]) -> Step:
        """Evaluate a run, as JSON. measures: at least one that is not of language fairness."""
        from milco_pyserini.eval.fairness import FAIRNESS_MEASURES

        output = self.directory / "evaluations" / f"{run.output.stem}.json"
        qrels = self._located(dataset.topics)
        inputs: tuple[Step, ...] = (run,)
        options: Options
        requires: tuple[Requirement, ...] = (Requirement(QRELS, qrels),)
        if dataset.judged_by_answers:
            judged, corpus = self.directory / "qrels" / run.output.name, self._located(dataset.corpus)
            options = {"topics": qrels, "corpus": corpus, "run": (run.output,), "depth": DEPTH, "output": judged}
            needed = (Requirement(ANSWERS, qrels), Requirement(CORPUS, corpus))
            qrels, inputs = str(judged), (run, _step("experiments.judge", options, judged, (run,), needed))
            requires = ()
        named = tuple(measure for measure in measures if measure not in FAIRNESS_MEASURES)
        options = {"run": (run.output,), "qrels": (qrels,), "measures": named, "format": "json"}
        if len(named) < len(measures):
            corpora = tuple(map(self._located, dataset.language_of))
            options |= {"fairness": True, "corpus": corpora}
            requires += tuple(Requirement(CORPUS, corpus) for corpus in corpora)
        return _step("eval", options | {"output": output}, output, inputs, requires)

    def latency(
        self, condition: Condition, dataset: Dataset, engine: str, prune: Sequence[str], dense: Sequence[str]
    ) -> Step:
        """Time searches of the pivot view with one engine, pruned in several ways, and of dense encoders."""
        vectors = self.encode(condition, dataset)
        output = self.directory / "latency" / ".".join([_short(dataset.corpus), *map(directory_name, dense)])
        topics = self._located(dataset.topics)
        options: Options = {"vectors": vectors.output, "topics": topics, "qrels": topics}
        options |= {"engines": (engine,), "views": ("pivot",), "prune": tuple(prune)}
        options |= {"dense": tuple(dense)} if dense else {}
        requires = (Requirement(TOPICS, topics), Requirement(QRELS, topics), *self._encoders(condition))
        requires += tuple(Requirement(ENCODER, name) for name in dense)
        options |= self._threads
        return _step("experiments.latency", options | {"output": output}, output / "latency.json", (vectors,), requires)

    def statistics(self, condition: Condition, dataset: Dataset) -> Step:
        """Describe the sparsity of the documents' vectors, as JSON."""
        vectors = self.encode(condition, dataset)
        output = self.directory / "statistics" / f"{vectors.output.name}.json"
        corpus = self._located(dataset.corpus)
        options = {"vectors": vectors.output, "corpus": corpus, "format": "json"}
        requires = (Requirement(CORPUS, corpus), *self._encoders(condition))
        return Step("analyze statistics", tuple(options.items()), output, output, (vectors,), requires, stdout=True)

    def _encode(self, condition: Condition, dataset: Dataset, what: str, stem: str, options: Options) -> Step:
        name = self._located(dataset.corpus if what == CORPUS else dataset.topics)
        output = self.directory / "vectors" / f"{stem}.{condition.name}"
        flags = {"dense": condition.kind == DENSE, "lowercase": condition.lowercase and dataset.lowercase}
        options = {what: name, "encoder": self._checkpoint(condition), **options}
        options |= {flag: True for flag, on in flags.items() if on} | self._device
        requires = (Requirement(what, name), *self._encoders(condition))
        return _step("encode", {**options, "output": output}, output / MANIFEST, (), requires)

    def _checkpoint(self, condition: Condition) -> str:
        return self.checkpoints[str(condition.checkpoint)]

    def _encoders(self, condition: Condition) -> tuple[Requirement, ...]:
        return () if condition.checkpoint is None else (Requirement(ENCODER, self._checkpoint(condition)),)

    def _located(self, name: str) -> str:
        """Return NAME@PATH if there is a local copy of the corpus or topics, or of their benchmark."""
        from milco_pyserini.corpora.catalog import CORPORA, TOPICS, find_benchmark

        entry = CORPORA.get(name) or TOPICS.get(name)
        if entry is None or not entry.has_copies:
            return name
        benchmark = find_benchmark(name)
        copy = self.local.get(name) or self.local.get(benchmark.name if benchmark else "")
        return f"{name}@{copy}" if copy else name


def _step(
    command: str, options: Options, done: Path, inputs: tuple[Step, ...], requires: tuple[Requirement, ...] = ()
) -> Step:
    return Step(command, tuple(options.items()), options["output"], done, inputs, requires)


def _suffix(prune: str | None = None, alpha: str | None = None) -> str:
    """Return the part of a file name that identifies a pruned or weighted variant."""
    return "".join(f".{directory_name(part)}" for part in (prune, alpha and f"alpha-{alpha}") if part)


@functools.cache
def _short(name: str) -> str:
    return directory_name(name.partition("@")[0])

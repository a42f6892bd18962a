"""The commands behind a figure, encode -> index -> search -> eval, and how one is run."""

import contextlib
import functools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.tables import BM25, DENSE, FUSION, Dataset, System, find_system
from milco_pyserini.console import log
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import MANIFEST

# Lowercased: datasets that the authors' evaluation is known to lowercase, all, or none.
AUTHORS, ALWAYS, NEVER = "authors", "always", "never"
CORPUS, TOPICS, QRELS, ANSWERS, ENCODER = "corpus", "topics", "qrels", "answers", "encoder"
# Documents of each topic in a run: no measure of the tables looks deeper.
DEPTH = 100
# Kind (CORPUS, TOPICS, ...) and name of what a command reads and may have to download.
Source = tuple[str, str]


@dataclass(frozen=True)
class Step:
    """A command of a pipeline.

    Args:
        argv: The command as words.
        output: The file or directory it writes; what it prints if it has no --output.
        done: The file that exists once output is complete.
        inputs: The steps that must run before.
    """

    argv: tuple[str, ...]
    output: Path
    done: Path
    inputs: tuple["Step", ...] = field(default=(), compare=False)
    reads: tuple[Source, ...] = field(default=(), compare=False)

    @property
    def corpus(self) -> str | None:
        """The corpus that it encodes; None if it does something else."""
        if self.argv[1:3] == ("encode", "--corpus"):
            return self.argv[3]
        return self.argv[4] if self.argv[2:4] == ("experiments.dense", "--corpus") else None

    @property
    def prints(self) -> bool:
        """Whether its output is what it prints."""
        return "--output" not in self.argv

    @property
    def line(self) -> str:
        """The command as a user types it."""
        return shlex.join(self.argv) + (f" > {shlex.quote(str(self.output))}" if self.prints else "")

    def pipeline(self, missing: bool = False) -> Iterator["Step"]:
        """Yield the steps up to this one in the order of running; shared inputs may come twice.

        missing: Only steps that have to run. The inputs of a complete output may have been removed.
        """
        if not (missing and self.done.exists()):
            for step in self.inputs:
                yield from step.pipeline(missing)
            yield self


def run(step: Step) -> None:
    """Run a command in this process.

    Raises:
        MilcoError: The command failed; the message is its own.
        KeyboardInterrupt: It was interrupted.
    """
    log(f"$ {step.line}")
    if step.argv[0] == "milco":
        main, arguments = import_module("milco_pyserini.cli.main").main, step.argv[1:]
    else:
        main, arguments = import_module(step.argv[2]).main, step.argv[3:]
    errors: Any = _Stderr(sys.stderr)
    with contextlib.redirect_stderr(errors), contextlib.ExitStack() as stack:
        # stdout is for the tables.
        printed = stack.enter_context(atomic_file(step.output, "w")) if step.prints else errors
        with contextlib.redirect_stdout(printed):
            code = main(arguments)
        if code > 128:
            raise KeyboardInterrupt
        if code:
            raise MilcoError(errors.text.strip().rpartition("\n")[2])


class _Stderr:
    """stderr that remembers the end of what was written."""

    def __init__(self, stream: Any) -> None:
        self.text = ""
        self._stream = stream

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-5000:]
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Pipeline:
    """Makes the steps of the tables within one directory.

    Args:
        directory: Has vectors, indexes, runs and evaluations.
        checkpoints: Key of a system's checkpoint -> name or path.
        local: Benchmark, or name of a corpus or topics -> copy of its publisher's files.
        device: Device of the encoders.
        threads: That index and search.
        lowercase: AUTHORS, ALWAYS or NEVER: the texts of which datasets are lowercased for MILCO.
    """

    def __init__(
        self,
        directory: Path,
        checkpoints: Mapping[str, str],
        local: Mapping[str, str] | None = None,
        device: str = "auto",
        threads: int = 1,
        lowercase: str = AUTHORS,
    ) -> None:
        self.directory = directory
        self.checkpoints = checkpoints
        self.local = local or {}
        self.lowercase = lowercase
        self._device = None if device == "auto" else device
        self._threads = None if threads == 1 else threads

    def encode(self, system: System, dataset: Dataset, topics: bool = False) -> Step:
        """Encode the documents, or the topics."""
        kind, name = (TOPICS, dataset.topics) if topics else (CORPUS, dataset.corpus)
        source = self._located(name)
        output = self.directory / "vectors" / f"{_short(name)}{'.topics' if topics else ''}.{system.name}"
        splits = dataset.split_passages and not topics
        argv = _argv(
            "python -m experiments.dense" if system.kind == DENSE else "milco encode",
            **{kind: source},
            encoder=self._checkpoint(system),
            split_passages=splits and system.max_length is None and system.kind != DENSE,
            max_length=system.max_length if splits else None,
            query_prompt=system.prompt.format(dataset.instruction) if system.prompt and dataset.instruction else None,
            lowercase=system.lowercase
            and (dataset.lowercase if self.lowercase == AUTHORS else self.lowercase == ALWAYS),
            device=self._device,
            output=output,
        )
        return Step(argv, output, output / MANIFEST, (), ((kind, source), *self._encoders(system)))

    def index(self, system: System, dataset: Dataset, prune: str | None = None) -> Step:
        """Index the documents, pruned by a rule."""
        output = self.directory / "indexes" / f"{_short(dataset.corpus)}.{system.name}{_suffix(prune=prune)}"
        vectors = self.encode(system, dataset)
        options = {"vectors": vectors.output, "prune": prune, "threads": self._threads, "output": output}
        argv = _argv("milco index", **options, no_store=True)
        return Step(argv, output, output / MANIFEST, (vectors,))

    def search(self, system: System, dataset: Dataset, prune: str | None = None, alpha: str | None = None) -> Step:
        """Search the topics.

        Args:
            prune: Rule for the documents. Topics are then encoded once for all rules.
            alpha: Weight of the pivot view of the topics.
        """
        corpus, name = _short(dataset.corpus), _short(dataset.topics)
        # Corpus and topics of one language usually share its name.
        name = name if name.startswith(corpus) else f"{corpus}.{name}"
        output = self.directory / "runs" / f"{name}.{system.name}{_suffix(prune, alpha)}.txt"
        if system.kind == FUSION:
            inputs = tuple(self.search(find_system(part), dataset, prune, alpha) for part in system.parts)
            argv = _argv("milco search fuse", runs=[run.output for run in inputs], method="rrf", output=output)
            return Step(argv, output, output, inputs)
        topics = self._located(dataset.topics)
        reads: tuple[Source, ...] = ((TOPICS, topics), *self._encoders(system))
        common = {"topics": topics, "k": DEPTH, "remove_query": dataset.remove_query, "output": output}
        if system.kind == DENSE:
            vectors = self.encode(system, dataset)
            argv = _argv("python -m experiments.dense", vectors=vectors.output, device=self._device, **common)
            return Step(argv, output, output, (vectors,), reads)
        if system.kind == BM25:
            source = self._located(dataset.corpus)
            tokenizer = self._checkpoint(system) if system.checkpoint else None
            words = {"tokenizer": tokenizer, "language": None if tokenizer else dataset.language}
            argv = _argv("python -m experiments.bm25", corpus=source, **words, threads=self._threads, **common)
            return Step(argv, output, output, (), ((CORPUS, source), *reads))
        inputs = (self.index(system, dataset, prune),)
        if prune:
            inputs, reads = (*inputs, self.encode(system, dataset, topics=True)), ()
            topics = str(inputs[1].output)
        passages = dataset.split_passages and system.max_length is None
        argv = _argv(
            "milco search",
            index=inputs[0].output,
            topics=topics,
            # Passages to start from; --max-passage-hits is DEPTH by default.
            k=1000 if passages else DEPTH,
            max_passage=passages,
            alpha=alpha,
            remove_query=dataset.remove_query,
            device=None if prune else self._device,
            threads=self._threads,
            output=output,
        )
        return Step(argv, output, output, inputs, reads)

    def evaluate(self, run: Step, dataset: Dataset, measures: Sequence[str]) -> Step:
        """Evaluate a run, as JSON. measures: at least one that is not of language fairness."""
        from milco_pyserini.eval.fairness import FAIRNESS_MEASURES

        output = self.directory / "evaluations" / f"{run.output.stem}.json"
        qrels, inputs = self._located(dataset.topics), (run,)
        reads: tuple[Source, ...] = ((QRELS, qrels),)
        if dataset.judged_by_answers:
            judged, corpus = self.directory / "qrels" / run.output.name, self._located(dataset.corpus)
            options = {"topics": qrels, "corpus": corpus, "run": run.output, "depth": DEPTH, "output": judged}
            argv = _argv("python -m experiments.judge", **options)
            inputs, reads = (Step(argv, judged, judged, inputs, ((ANSWERS, qrels), (CORPUS, corpus))),), ()
            qrels = str(judged)
        named = [measure for measure in measures if measure not in FAIRNESS_MEASURES]
        corpora = [self._located(corpus) for corpus in dataset.language_of] if len(named) < len(measures) else []
        argv = _argv(
            "milco eval",
            run=run.output,
            qrels=qrels,
            measures=named,
            format="json",
            fairness=bool(corpora),
            corpus=corpora or None,
            output=output,
        )
        return Step(argv, output, output, inputs, (*reads, *((CORPUS, corpus) for corpus in corpora)))

    def latency(
        self, system: System, dataset: Dataset, engine: str, prune: Sequence[str], dense: Sequence[str]
    ) -> Step:
        """Time searches of the pivot view with one engine, pruned in several ways, and of dense encoders."""
        vectors, topics = self.encode(system, dataset), self._located(dataset.topics)
        output = self.directory / "latency" / ".".join([_short(dataset.corpus), *map(directory_name, dense)])
        argv = _argv(
            "python -m experiments.latency",
            vectors=vectors.output,
            topics=topics,
            qrels=topics,
            engines=engine,
            views="pivot",
            prune=prune,
            dense=dense or None,
            threads=self._threads,
            output=output,
        )
        reads = ((TOPICS, topics), (QRELS, topics), *self._encoders(system), *((ENCODER, name) for name in dense))
        return Step(argv, output, output / "latency.json", (vectors,), reads)

    def statistics(self, system: System, dataset: Dataset) -> Step:
        """Describe the sparsity of the documents' vectors, as JSON."""
        vectors = self.encode(system, dataset)
        output = self.directory / "statistics" / f"{vectors.output.name}.json"
        argv = _argv("milco analyze statistics", vectors=vectors.output, format="json")
        return Step(argv, output, output, (vectors,), self._encoders(system))

    def _checkpoint(self, system: System) -> str:
        return self.checkpoints[str(system.checkpoint)]

    def _encoders(self, system: System) -> tuple[Source, ...]:
        return () if system.checkpoint is None else ((ENCODER, self._checkpoint(system)),)

    def _located(self, name: str) -> str:
        """Return NAME@PATH if there is a local copy of the corpus or topics, or of their benchmark."""
        from milco_pyserini.corpora.catalog import CORPORA, TOPICS, find_benchmark

        entry = CORPORA.get(name) or TOPICS.get(name)
        if entry is None or not entry.has_copies:
            return name
        benchmark = find_benchmark(name)
        copy = self.local.get(name) or self.local.get(benchmark.name if benchmark else "")
        return f"{name}@{copy}" if copy else name


def _argv(command: str, **options: Any) -> tuple[str, ...]:
    """Return a command as words. Options that are None or False are left out, True is a flag."""
    words = command.split()
    for name, value in options.items():
        if value is not None and value is not False:
            words.append(f"--{name.replace('_', '-')}")
            values = value if isinstance(value, list | tuple) else () if value is True else (value,)
            words += map(str, values)
    return tuple(words)


def _suffix(prune: str | None = None, alpha: str | None = None) -> str:
    """Return the part of a file name that identifies a pruned or weighted variant."""
    return "".join(f".{directory_name(part)}" for part in (prune, alpha and f"alpha-{alpha}") if part)


@functools.cache
def _short(name: str) -> str:
    return directory_name(name.partition("@")[0])

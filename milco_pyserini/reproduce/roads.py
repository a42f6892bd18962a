"""The road of a figure, encode -> index -> search -> eval: commands as a person types them, and what they write."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.defaults import directory_name
from milco_pyserini.reproduce.systems import BM25, DENSE, FUSION, SYSTEMS, System

CORPUS, TOPICS, QRELS, ANSWERS, ENCODER = "corpus", "topics", "qrels", "answers", "encoder"
MANIFEST = "manifest.json"
# Documents of each topic in a run: no measure of the tables looks further.
DEPTH = 100


@dataclass(frozen=True)
class Need:
    """What a step reads that may have to be fetched. kind: CORPUS, TOPICS, QRELS, ANSWERS or ENCODER."""

    kind: str
    name: str


@dataclass(frozen=True)
class Step:
    """One of our commands. output: what it writes; done: the file or directory that stands there when that is whole.

    printed: whether output is what the command prints.
    """

    argv: tuple[str, ...]
    output: Path
    done: Path
    needs: tuple[Need, ...] = ()
    printed: bool = False

    @property
    def command(self) -> str:
        """As it is typed."""
        line = f"milco {shlex.join(self.argv)}"
        return f"{line} > {shlex.quote(str(self.output))}" if self.printed else line


@dataclass(frozen=True)
class Collection:
    """What is searched, and how it is judged.

    language: of the documents, for BM25's analyzer. split: whether documents are long. lowercase: whether the paper's
    evaluation, which lower-cases, is followed. judged_by_answers: as MKQA is. remove_query: whether a topic's own text
    among the documents is left out.
    """

    corpus: str
    topics: str
    language: str
    measure: str = "nDCG@10"
    split: bool = False
    lowercase: bool = True
    judged_by_answers: bool = False
    remove_query: bool = False


@dataclass(frozen=True)
class Variant:
    """What is changed on the way. prune: a rule for the documents' index; alpha: the weight of the queries' views."""

    prune: str | None = None
    alpha: str | None = None

    @property
    def ending(self) -> str:
        """Of a file's name."""
        return "".join(
            f".{directory_name(part)}" for part in (self.prune, self.alpha and f"alpha-{self.alpha}") if part
        )


PLAIN = Variant()


@dataclass(frozen=True)
class Road:
    """Steps in their order, and what the last of them writes."""

    steps: tuple[Step, ...]
    output: Path


class Roads:
    """Makes roads within one directory.

    checkpoints: key -> name or path of an encoder. local: name or benchmark -> a copy of its publisher's files.
    device, threads: for the commands that take them.
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
        self._local = local or {}
        self._device = () if device == "auto" else ("--device", device)
        self._threads = () if threads == 1 else ("--threads", str(threads))

    def has(self, system: System) -> bool:
        """Whether there is a checkpoint for everything that a system needs."""
        parts = [SYSTEMS[part] for part in system.parts] or [system]
        return all(part.checkpoint is None or part.checkpoint in self.checkpoints for part in parts)

    def vectors(self, system: System, collection: Collection) -> Road:
        """The documents' vectors."""
        options: tuple[str, ...] = ()
        if collection.split:
            options = ("--split-passages",) if system.long is None else ("--max-length", str(system.long))
        return self._encode(system, collection, CORPUS, _short(collection.corpus), options)

    def index(self, system: System, collection: Collection, prune: str | None = None) -> Road:
        """The documents' index, pruned if a rule is given."""
        name = f"{_short(collection.corpus)}.{system.name}{Variant(prune).ending}"
        output = self.directory / "indexes" / name
        if system.kind == BM25:
            corpus = self._name(collection.corpus)
            words = ("--tokenizer", self.checkpoints[system.checkpoint]) if system.checkpoint else ()
            words = words or ("--language", collection.language)
            argv: tuple[str, ...] = ("index", "--engine", "bm25", "--corpus", corpus, *words)
            needs: tuple[Need, ...] = (Need(CORPUS, corpus), *self._encoder_needs(system))
            before: tuple[Step, ...] = ()
        else:
            vectors = self.vectors(system, collection)
            engine = ("--engine", "flat") if system.kind == DENSE else ()
            rule = ("--prune", prune) if prune else ()
            argv, needs, before = ("index", "--vectors", str(vectors.output), *engine, *rule), (), vectors.steps
        step = Step((*argv, "--output", str(output), *self._threads), output, output / MANIFEST, needs)
        return Road((*before, step), output)

    def run(self, system: System, collection: Collection, variant: Variant = PLAIN) -> Road:
        """The run of a system, or of the systems that it fuses."""
        output = self.directory / "runs" / f"{_asked(collection)}.{system.name}{variant.ending}.txt"
        if system.kind == FUSION:
            roads = [self.run(SYSTEMS[part], collection, variant) for part in system.parts]
            runs = tuple(str(road.output) for road in roads)
            fuse = ("search", "fuse", "--runs", *runs, "--method", "rrf", "--output", str(output))
            return Road((*_once(road.steps for road in roads), Step(fuse, output, output)), output)
        index = self.index(system, collection, variant.prune)
        topics = self._topics(system, collection, variant)
        argv: tuple[str, ...] = ("search", "--index", str(index.output), "--topics", str(topics.output))
        # Documents are as many by --max-passage-hits, where their passages are searched.
        passages = collection.split and system.kind != BM25 and system.long is None
        argv += ("--hits", "1000", "--max-passage") if passages else ("--hits", str(DEPTH))
        argv += () if variant.alpha is None else ("--alpha", variant.alpha)
        argv += ("--remove-query",) if collection.remove_query else ()
        needs: tuple[Need, ...] = ()
        if not topics.steps:
            encodes = system.kind != BM25
            needs = (Need(TOPICS, str(topics.output)), *(self._encoder_needs(system) if encodes else ()))
            argv += self._device if encodes else ()
        step = Step((*argv, "--output", str(output), *self._threads), output, output, needs)
        return Road((*index.steps, *topics.steps, step), output)

    def evaluation(self, run: Road, collection: Collection, measures: Sequence[str] = ()) -> Road:
        """The figures of a run, as JSON."""
        output = self.directory / "evaluations" / f"{run.output.stem}.json"
        topics = self._name(collection.topics)
        steps, qrels = run.steps, topics
        needs: tuple[Need, ...] = (Need(QRELS, topics),)
        if collection.judged_by_answers:
            judged = self.directory / "qrels" / run.output.name
            corpus = self._name(collection.corpus)
            judge = ("corpora", "judge", "--topics", topics, "--corpus", corpus, "--run", str(run.output))
            asked = (Need(ANSWERS, topics), Need(CORPUS, corpus))
            steps = (*steps, Step((*judge, "--depth", str(DEPTH), "--output", str(judged)), judged, judged, asked))
            qrels, needs = str(judged), ()
        argv = ("eval", "--run", str(run.output), "--qrels", qrels, "--measures", *(measures or (collection.measure,)))
        step = Step((*argv, "--format", "json", "--output", str(output)), output, output, needs)
        return Road((*steps, step), output)

    def latency(
        self, system: System, collection: Collection, engine: str, prune: Sequence[str], dense: Sequence[str] = ()
    ) -> Road:
        """A latency table of the pivot view with one engine, pruned in several ways, and of dense encoders."""
        vectors = self.vectors(system, collection)
        output = self.directory / "latency" / ".".join([_short(collection.corpus), *map(directory_name, dense)])
        topics = self._name(collection.topics)
        argv: tuple[str, ...] = (
            "analyze",
            "latency",
            "--vectors",
            str(vectors.output),
            "--topics",
            topics,
            "--qrels",
            topics,
        )
        argv += ("--engines", engine, "--views", "pivot", "--prune", *prune)
        argv += ("--dense", *dense) if dense else ()
        needs: tuple[Need, ...] = (Need(TOPICS, topics), Need(QRELS, topics), *self._encoder_needs(system))
        needs += tuple(Need(ENCODER, name) for name in dense)
        done = output / "latency.json"
        step = Step((*argv, *self._threads, "--output", str(output)), output, done, needs)
        return Road((*vectors.steps, step), done)

    def statistics(self, system: System, collection: Collection) -> Road:
        """How sparse the documents' vectors are, as JSON."""
        vectors = self.vectors(system, collection)
        output = self.directory / "statistics" / f"{vectors.output.name}.json"
        corpus = self._name(collection.corpus)
        argv = ("analyze", "statistics", "--vectors", str(vectors.output), "--corpus", corpus, "--format", "json")
        needs = (Need(CORPUS, corpus), *self._encoder_needs(system))
        return Road((*vectors.steps, Step(argv, output, output, needs, printed=True)), output)

    def _topics(self, system: System, collection: Collection, variant: Variant) -> Road:
        """What is searched with: a name, or vectors where the same queries are asked of many pruned indexes."""
        if variant.prune is None:
            return Road((), Path(self._name(collection.topics)))
        return self._encode(system, collection, TOPICS, f"{_short(collection.topics)}.topics", ())

    def _encode(self, system: System, collection: Collection, what: str, stem: str, options: tuple[str, ...]) -> Road:
        name = self._name(collection.corpus if what == CORPUS else collection.topics)
        output = self.directory / "vectors" / f"{stem}.{system.name}"
        argv: tuple[str, ...] = (
            "encode",
            f"--{what}",
            name,
            "--encoder",
            self.checkpoints[str(system.checkpoint)],
            *options,
        )
        argv += ("--dense",) if system.kind == DENSE else ()
        argv += ("--lowercase",) if system.lowercase and collection.lowercase else ()
        needs = (Need(what, name), *self._encoder_needs(system))
        step = Step((*argv, *self._device, "--output", str(output)), output, output / MANIFEST, needs)
        return Road((step,), output)

    def _encoder_needs(self, system: System) -> tuple[Need, ...]:
        return () if system.checkpoint is None else (Need(ENCODER, self.checkpoints[system.checkpoint]),)

    def _name(self, name: str) -> str:
        """A name as a command gets it: with the place of its copy, if there is one."""
        from milco_pyserini.corpora.catalog import CORPORA, TOPICS, find_benchmark

        entry = CORPORA.get(name) or TOPICS.get(name)
        if entry is None or not entry.has_copies:
            return name
        benchmark = find_benchmark(name)
        copy = self._local.get(name) or (self._local.get(benchmark.name) if benchmark else None)
        return f"{name}@{copy}" if copy else name


def _asked(collection: Collection) -> str:
    """Corpus and topics in one name; those of one language usually share theirs."""
    corpus, topics = _short(collection.corpus), _short(collection.topics)
    return topics if topics.startswith(corpus) else f"{corpus}.{topics}"


def _short(name: str) -> str:
    return directory_name(name.partition("@")[0])


def _once(groups: Iterable[Sequence[Step]]) -> tuple[Step, ...]:
    return tuple(dict.fromkeys(step for group in groups for step in group))

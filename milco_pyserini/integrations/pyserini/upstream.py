"""milco upstream RUN: files by which Pyserini and Anserini reproduce a measured run, in their own layouts."""

import gzip
import hashlib
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from milco_pyserini import __version__
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI, VIEWS
from milco_pyserini.errors import MilcoError, ParameterError, validate_unique
from milco_pyserini.index import open_index
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import QueryOptions
from milco_pyserini.integrations.pyserini.encoders import is_milco
from milco_pyserini.integrations.pyserini.java import start_java
from milco_pyserini.io.files import atomic_directory, copy_file, is_json_with, validate_output_directory, write_json
from milco_pyserini.io.manifest import MANIFEST, describe_files, list_files, write_checked
from milco_pyserini.io.records import RunRecord
from milco_pyserini.io.runs import read_run_record
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest

# Measures of upstream's tables, with the options by which upstream's trec_eval computes them.
METRICS = {"nDCG@10": "-c -m ndcg_cut.10", "R@100": "-c -m recall.100", "R@1000": "-c -m recall.1000"}
# Options of a run that upstream's commands have, or that do not change its hits. It must not have others.
_REPRODUCED = {"k", "remove_query", "encoder", "device", "dtype", "threads", "batch_size", "max_passage_hits"}
_TOPICS = re.compile(r"(?P<dataset>[\w.]+(-[\w.]+)*-(?P<language>\w+))-(?P<split>\w+)")
# Most distinct terms of a query that Lucene searches for.
_MAX_TERMS = 1024


@dataclass(frozen=True)
class UpstreamOptions:
    """Write the files by which Pyserini and Anserini reproduce measured runs.

    A condition of Pyserini's two-click reproductions, a configuration of Anserini with its page, the archive, record
    and README of the index, and the encoded topics. Figures are measured here.

      milco upstream runs/miracl-sw.txt --qrels miracl-sw-dev --output upstream
    """

    run: tuple[Path, ...] = option(
        positional=True, metavar="RUN", help="runs of milco search in Lucene indexes, each with its record"
    )
    qrels: tuple[str, ...] = option(metavar="NAME|FILE", help="qrels, one for each run")
    output: Path = option(metavar="DIR", help="directory of the files")
    topics: tuple[str, ...] = option(
        (),
        metavar="NAME",
        help="upstream's names of the topics, DATASET-LANGUAGE-SPLIT, one for each run (default: the names of the "
        "runs' topics, miracl-v1.0-sw-dev for miracl-sw-dev)",
    )
    model: str | None = option(None, help="upstream's name of the model (default: that of the encoder)")
    url: str | None = option(
        None, metavar="URL", help="where the archives will be published (default: a file: URL in --output)"
    )
    measures: tuple[str, ...] = option(
        ("nDCG@10", "R@100"), names=("-m",), choices=tuple(METRICS), help="measures of the figures"
    )
    overwrite: bool = option(False, help="replace an --output of this command")

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield errors about numbers of names, and about a name that no condition can have."""
        for name, least in (("qrels", 1), ("topics", 0)):
            if (count := len(getattr(self, name))) != len(self.run) and count >= least:
                yield ParameterError(name, None, f"has {count} names for {len(self.run)} runs", "Give one for each.")
        if self.model is not None and not re.fullmatch(r"[\w-]+", self.model):
            yield ParameterError("model", self.model, "a condition's model has only letters, digits, _ and -")


@dataclass(frozen=True)
class MeasuredRun:
    """A run that upstream can reproduce, with upstream's names and the measured figures."""

    path: Path
    record: RunRecord
    index: Index
    names: Mapping[str, str]
    model: str
    figures: Mapping[str, float]

    @classmethod
    def open(cls, path: Path, qrels: str, topics: str, options: UpstreamOptions) -> "MeasuredRun":
        """Evaluate a run. Raises MilcoError for one that upstream's commands cannot reproduce."""
        from milco_pyserini.eval.evaluation import evaluate

        record = read_run_record(path)
        others = sorted(name for name, value in record.options.items() if value and name not in _REPRODUCED)
        if len(record.indexes) != 1 or record.indexes[0].engine != "lucene" or record.topics is None:
            raise MilcoError(f"{path} has no record of a search in one Lucene index. Write it with milco search again.")
        if others:
            raise MilcoError(f"{path} was searched with {', '.join(others)}, which upstream's commands do not have")
        index = open_index(Path(record.indexes[0].name))
        encoder = index.vectors.encoder
        if index.generation != record.indexes[0].generation:
            raise MilcoError(f"{index.path} has changed since {path} was written. Search it again.")
        if index.shards or index.manifest.updates or not encoder:
            raise MilcoError(f"{index.path} has shards, updates or no encoder: build one index of an encoder's vectors")
        if most := next((name for name in options.measures if int(name.split("@")[1]) > record.options["k"]), ""):
            raise ParameterError("measures", most, f"{path} only has {record.options['k']} documents per topic")
        name = topics or re.sub("^miracl-(?!v)", "miracl-v1.0-", record.topics.name)
        if not (parts := _TOPICS.fullmatch(name)):
            fix = "Give upstream's name, such as miracl-v1.0-sw-dev."
            raise ParameterError("topics", name, "does not end in a language and a split", fix)
        model = options.model or re.sub(r"[^\w-]", "-", Path(encoder).name)
        mean = evaluate(path, qrels, options.measures).mean
        figures = {measure: float(f"{value:.4f}") for measure, value in mean.items()}
        names = {**parts.groupdict(), "index": f"{parts['dataset']}.{model}", "topics": f"{name}.{model}"}
        return cls(path, record, index, names, model, figures)

    def conditions(self) -> Mapping[str, str]:
        """Return the names of Pyserini's conditions, with the end of their topics' name and their encoder.

        The condition that encodes queries is left out if upstream's encoder, which has no options, encodes others.
        """
        about, query = self.index.vectors, self.record.indexes[0].query_encoder or {"alpha": None, "encoder": None}
        cached = {f"{self.model}-cached": f".{self.model} --pretokenized"}
        usual = (100.0, list(VIEWS), False, "", about.encoder, None)
        plan = (
            about.scale,
            about.views,
            about.lowercase or False,
            about.english_prefix,
            query["encoder"],
            query["alpha"],
        )
        is_name = about.encoder != MINI and re.fullmatch(r"[\w./-]*milco[\w./-]*", about.encoder or "")
        if plan == usual and is_name and is_milco(str(about.encoder)):
            return {self.model: f" --encoder {about.encoder}", **cached}
        log(f"{self.path}: only with encoded topics; upstream's encoder lacks {about.encoder}, or options of this run")
        return cached

    def queries(self) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield id and {term: impact} of each topic. Raises MilcoError if the topics are not those of the run."""
        from milco_pyserini.search.searched_index import SearchedIndex
        from milco_pyserini.search.topics import read_topics
        from milco_pyserini.sparse.quantization import quantize_vector

        encoder, wanted = QueryOptions(self.record.options.get("encoder")), self.record.topics
        topics = read_topics(wanted.name if wanted else "", self.index, encoder)
        if topics.record().digest != getattr(wanted, "digest", None):
            raise MilcoError(f"{topics.name} are not the topics of {self.path}: they have changed. Search again.")
        vectors = topics.vectors or SearchedIndex(self.index, encoder).encode(topics.texts or [], SearchRequest())
        for topic, vector in zip(topics.ids, vectors, strict=True):
            impacts = quantize_vector(vector, self.index.manifest.query_scale)
            if len(impacts) > _MAX_TERMS:
                raise MilcoError(
                    f"topic {topic} has {len(impacts):,} terms: Lucene searches for at most {_MAX_TERMS:,}"
                )
            yield topic, impacts


def command(options: UpstreamOptions) -> None:
    """Write the files. Raises MilcoError before that if a run cannot be reproduced."""
    validate_output_directory(options.output, options.overwrite, _is_upstream)
    given = zip(options.run, options.qrels, options.topics or repeat(""), strict=False)
    runs = [MeasuredRun.open(path, qrels, topics, options) for path, qrels, topics in given]
    validate_unique("index", [run.names["index"] for run in runs], "Give one run for each, or other {topics}.")
    start_java()
    with atomic_directory(options.output, options.overwrite, _is_upstream) as directory:
        topics = {run.names["topics"]: _write_topics(run, directory / "eval" / "topics") for run in runs}
        write_json(directory / "eval" / "topics.json", topics)
        url = options.url or (options.output.resolve() / "archives").as_uri()
        indexes = [_write_index(run, directory, url.rstrip("/")) for run in runs]
        write_json(directory / "prebuilt-indexes" / "lucene" / f"{runs[0].model}-impact.json", indexes)
        conditions = [(run, run.conditions()) for run in runs]
        _render("condition.yaml", directory / "pyserini" / "2cr" / f"{runs[0].model}.yaml", runs=conditions)
        files = [file.to_json() for file in describe_files(directory, list_files(directory))]
        records = [run.record.to_json() for run in runs]
        write_checked(directory / MANIFEST, {"upstream": __version__, "runs": records, "files": files})
    log(f"Wrote {options.output}: " + ", ".join(run.names["index"] for run in runs))


def _is_upstream(path: Path) -> bool:
    return is_json_with(path / MANIFEST, "upstream", "files")


def _write_topics(run: MeasuredRun, directory: Path) -> Mapping[str, str]:
    """Write the encoded topics, in which each term occurs as often as its impact; return their binding."""
    path = directory / f"topics.{run.names['topics']}.tsv.gz"
    directory.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as lines:
        for topic, impacts in run.queries():
            terms = " ".join(chain.from_iterable(repeat(term, impact) for term, impact in impacts.items()))
            lines.write(f"{topic}\t{terms}\n".encode())
    return {"path": path.name, "reader_class": "io.anserini.search.topicreader.TsvStringTopicReader"}


def _write_index(run: MeasuredRun, directory: Path, url: str) -> Mapping[str, Any]:
    """Write the archive of an index, its README, and Anserini's configuration with its counts; return its record."""
    name = f"lucene-inverted.{run.names['index']}.{run.record.date[:10].replace('-', '')}.{run.index.generation[:6]}"
    index, archive = directory / name, directory / "archives" / f"{name}.tar.gz"
    for place in (index, archive.parent):
        place.mkdir(exist_ok=True)
    for file in run.index.manifest.files:
        copy_file(run.index.path / file.file, index / file.file)
    stats = _optimize(index)
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        owner: Mapping[str, Any] = {"uid": 0, "gid": 0, "uname": "", "gname": ""}
        packed.add(index, name, filter=lambda member: member.replace(**owner, deep=False))
    shutil.rmtree(index)
    with archive.open("rb") as handle:
        file = {"md5": hashlib.file_digest(handle, "md5").hexdigest(), "size": archive.stat().st_size}
    record = {
        "name": run.names["index"],
        "type": "impact",
        "description": f"Lucene impact index of {run.names['dataset']}, encoded by {run.model}.",
        "filename": archive.name,
        "readme": f"{name}.README.md",
        "urls": [f"{url}/{archive.name}"],
        **file,
        **{field: stats[field] for field in ("total_terms", "documents", "unique_terms")},
        "corpus_index": run.names["dataset"],
    }
    values = {"run": run, "vectors": run.index.vectors, "stats": stats, "metrics": METRICS, "archive": record}
    _render("README.md", directory / "pyserini" / "resources" / "index-metadata" / f"{name}.README.md", **values)
    anserini = directory / "anserini" / "src" / "main" / "resources" / "reproduce" / "from-document-collection"
    _render("config.yaml", anserini / "configs" / f"{run.names['index']}.yaml", **values)
    _render("docgen.template", anserini / "docgen" / f"{run.names['index']}.template", **values)
    return record


def _optimize(index: Path) -> Mapping[str, int]:
    """Merge an index to one segment, as IndexCollection -optimize does; return Anserini's counts, and its bytes."""
    from jnius import autoclass
    from pyserini.index.lucene import LuceneIndexReader

    place = autoclass("java.nio.file.Paths").get(str(index.resolve()))
    settings = autoclass("org.apache.lucene.index.IndexWriterConfig")()
    directory = autoclass("org.apache.lucene.store.FSDirectory").open(place)
    writer = autoclass("org.apache.lucene.index.IndexWriter")(directory, settings)
    writer.forceMerge(1)
    writer.close()
    (index / "write.lock").unlink()
    return LuceneIndexReader(str(index)).stats() | {"bytes": sum(file.stat().st_size for file in index.iterdir())}


def _render(template: str, path: Path, **values: Any) -> None:
    """Write a file of templates/ to path."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("milco_pyserini.integrations.pyserini")
    environment = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(environment.get_template(template).render(values), encoding="utf-8")


main = partial(run_command, "milco upstream", UpstreamOptions, command)

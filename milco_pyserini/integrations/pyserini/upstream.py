"""milco upstream RUN: files by which Pyserini and Anserini reproduce a measured run, in their own layouts."""

import gzip
import hashlib
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from milco_pyserini import __version__
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import VIEWS
from milco_pyserini.errors import MilcoError, ParameterError, validate_unique
from milco_pyserini.index import open_index
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import QueryOptions
from milco_pyserini.integrations.pyserini.java import start_java
from milco_pyserini.io.files import atomic_directory, copy_file, is_json_with, validate_output_directory
from milco_pyserini.io.manifest import MANIFEST, describe_files, list_files, write_checked
from milco_pyserini.io.records import RunRecord
from milco_pyserini.io.runs import option_text, read_run_record
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest

# Measures of Pyserini's table of MIRACL, with the options by which trec_eval computes them.
METRICS = {"nDCG@10": "-c -m ndcg_cut.10", "R@100": "-c -m recall.100"}
_DEPTH = max(int(name.partition("@")[2]) for name in METRICS)
# Options of a run that upstream's commands have, or that do not change its hits. It must not have others.
_REPRODUCED = {"k", "remove_query", "encoder", "device", "dtype", "threads", "batch_size", "max_passage_hits"}
_TOPICS = re.compile(r"(?P<dataset>[\w.]+(-[\w.]+)*-(?P<language>\w+))-(?P<split>\w+)")


@dataclass(frozen=True)
class UpstreamOptions:
    """Write the files by which Pyserini and Anserini reproduce measured runs.

    A condition of Pyserini's two-click reproductions, a configuration of Anserini with its page, the archive, record
    and README of the index, and the encoded topics. Figures are measured here.

      milco upstream runs/miracl-sw.txt --qrels miracl-sw-dev --output upstream
    """

    run: tuple[Path, ...] = option(positional=True, metavar="RUN", help="runs of milco search, each with its record")
    qrels: tuple[str, ...] = option(metavar="NAME|FILE", help="qrels, one for each run")
    output: Path = option(metavar="DIR", help="directory of the files")
    topics: tuple[str, ...] = option((), metavar="NAME", help="upstream's names of the topics: miracl-v1.0-sw-dev")
    model: str | None = option(None, help="upstream's name of the model (default: that of the encoder)")
    url: str | None = option(None, metavar="URL", help="where the archives will be published (default: a file: URL)")
    overwrite: bool = option(False, help="replace an --output of this command")

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield errors about numbers of names."""
        for name, count in (("qrels", len(self.qrels)), ("topics", len(self.topics or self.run))):
            if count != len(self.run):
                yield ParameterError(name, None, f"has {count} names for {len(self.run)} runs", "Give one for each.")


@dataclass(frozen=True)
class MeasuredRun:
    """A run that upstream can reproduce, with upstream's names and the measured figures."""

    path: Path
    record: RunRecord
    index: Index
    names: Mapping[str, str]
    figures: Mapping[str, float]

    @classmethod
    def open(cls, path: Path, qrels: str, topics: str, options: UpstreamOptions) -> "MeasuredRun":
        """Evaluate a run. Raises MilcoError for one that upstream's commands cannot reproduce."""
        from milco_pyserini.eval.evaluation import evaluate

        if not path.is_file():
            raise MilcoError(f"{path} does not exist: give a run that milco search --output wrote")
        record = read_run_record(path)
        if len(record.indexes) != 1 or record.indexes[0].engine != "lucene" or record.topics is None:
            raise MilcoError(f"{path} has no record of a search in one Lucene index. Write it with milco search again.")
        given = {name for name, value in record.options.items() if option_text(value)}
        if others := given - _REPRODUCED:
            named = ", ".join(sorted(others))
            raise MilcoError(f"{path} was searched with {named}, which upstream's commands do not have")
        if (depth := record.options["k"]) < _DEPTH:
            raise MilcoError(f"{path} has {depth} hits a topic, and its figures need {_DEPTH}. Search with --k 1000.")
        index = open_index(Path(record.indexes[0].name))
        if index.generation != record.indexes[0].generation:
            raise MilcoError(f"{index.path} has changed since {path} was written. Search it again.")
        if index.shards or index.manifest.updates or not index.vectors.encoder:
            raise MilcoError(f"{index.path} has shards, updates or no encoder: build one index of an encoder's vectors")
        name = topics or re.sub("^miracl-(?!v)", "miracl-v1.0-", record.topics.name)
        if not (parts := _TOPICS.fullmatch(name)):
            raise ParameterError("topics", name, "does not end in -LANGUAGE-SPLIT, as miracl-v1.0-sw-dev does")
        model = options.model or re.sub(r"[^\w-]", "-", Path(index.vectors.encoder).name)
        if not re.fullmatch(r"[\w-]+", model):
            raise ParameterError("model", model, "the name of a condition's model has only letters, digits, _ and -")
        figures = {name: float(f"{mean:.4f}") for name, mean in evaluate(path, qrels, METRICS).mean.items()}
        names = {"model": model, "index": f"{parts['dataset']}.{model}", "topics": f"{name}.{model}"}
        return cls(path, record, index, {**parts.groupdict(), **names}, figures)

    def conditions(self) -> Mapping[str, str]:
        """Return the names of Pyserini's conditions, with the end of their topics' name and their encoder."""
        model, about, query = self.names["model"], self.index.vectors, self.record.indexes[0].query_encoder or {}
        plan = about.scale, about.views, about.dtype, about.lowercase, about.english_prefix, query.get("alpha")
        is_usual = plan == (100.0, list(VIEWS), "float32", False, "", None) and query.get("encoder") == about.encoder
        # Upstream's encoder has no options: with others, a condition would have other figures.
        cached = {f"{model}-cached": f".{model} --pretokenized"}
        if is_usual and re.fullmatch(r"[\w./-]*milco[\w./-]*", about.encoder or ""):
            return {model: f" --encoder {about.encoder}", **cached}
        log(f"{self.path}: only with encoded topics; upstream's encoder has no {about.encoder}, or other options")
        return cached

    def write_topics(self, path: Path) -> None:
        """Write the encoded topics: each term as often as its impact. Raises MilcoError if they are others now."""
        from milco_pyserini.search.searched_index import SearchedIndex
        from milco_pyserini.search.topics import read_topics
        from milco_pyserini.sparse.quantization import quantize_vector

        encoder, wanted = QueryOptions(self.record.options.get("encoder")), self.record.topics
        topics = read_topics(wanted.name if wanted else "", self.index, encoder)
        if topics.record().digest != getattr(wanted, "digest", None):
            raise MilcoError(f"{topics.name} are not the topics of {self.path}: they have changed. Search again.")
        with closing(SearchedIndex(self.index, encoder)) as index:
            vectors = topics.vectors or index.encode(topics.texts or [], SearchRequest())
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(path, "wb", mtime=0) as lines:
            for topic, vector in zip(topics.ids, vectors, strict=True):
                impacts = quantize_vector(vector, self.index.manifest.query_scale)
                terms = " ".join(chain.from_iterable(repeat(term, impact) for term, impact in impacts.items()))
                lines.write(f"{topic}\t{terms}\n".encode())

    def write_archive(self, archives: Path) -> Mapping[str, Any]:
        """Write the archive of the index, merged to one segment; return name, MD5, bytes and Anserini's counts."""
        from jnius import autoclass
        from pyserini.index.lucene import LuceneIndexReader

        date = self.record.date[:10].replace("-", "")
        index = archives / f"lucene-inverted.{self.names['index']}.{date}.{self.index.generation[:6]}"
        archive = archives / f"{index.name}.tar.gz"
        index.mkdir(parents=True)
        for file in self.index.manifest.files:
            copy_file(self.index.path / file.file, index / file.file)
        place = autoclass("java.nio.file.Paths").get(str(index.resolve()))
        directory = autoclass("org.apache.lucene.store.FSDirectory").open(place)
        settings = autoclass("org.apache.lucene.index.IndexWriterConfig")()
        writer = autoclass("org.apache.lucene.index.IndexWriter")(directory, settings)
        writer.forceMerge(1)
        writer.close()
        (index / "write.lock").unlink()
        stats = {**LuceneIndexReader(str(index)).stats(), "bytes": sum(file.stat().st_size for file in index.iterdir())}
        with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
            packed.add(index, index.name, filter=lambda f: f.replace(uid=0, gid=0, uname="", gname="", deep=False))
        shutil.rmtree(index)
        with archive.open("rb") as handle:
            md5 = hashlib.file_digest(handle, "md5").hexdigest()
        return {**stats, "name": index.name, "md5": md5, "size": archive.stat().st_size}


def command(options: UpstreamOptions) -> None:
    """Write the files. Raises MilcoError before that if a run cannot be reproduced."""
    validate_output_directory(options.output, options.overwrite, _is_upstream)
    given = zip(options.run, options.qrels, options.topics or repeat(""), strict=False)
    runs = [MeasuredRun.open(path, qrels, topics, options) for path, qrels, topics in given]
    validate_unique("index", [run.names["index"] for run in runs], "Give one run of each language.")
    if len({run.names["model"] for run in runs}) > 1:
        raise MilcoError(f"{' and '.join(map(str, options.run))} are of several models: write the files of each model")
    start_java()
    about = {"url": options.url or (options.output.resolve() / "archives").as_uri(), "metrics": METRICS, "runs": runs}
    with atomic_directory(options.output, options.overwrite, _is_upstream) as directory:
        anserini = directory / "anserini" / "reproduce" / "from-document-collection"
        archives, readmes = {}, directory / "pyserini" / "resources" / "index-metadata"
        for run in runs:
            run.write_topics(directory / "eval" / "topics" / f"topics.{run.names['topics']}.tsv.gz")
            archives[run.names["index"]] = archive = run.write_archive(directory / "archives")
            values = {"run": run, "vectors": run.index.vectors, "archive": archive, **about}
            _render("README.md", readmes / f"{archive['name']}.README.md", values)
            _render("config.yaml", anserini / "configs" / f"{run.names['index']}.yaml", values)
            _render("docgen.template", anserini / "docgen" / f"{run.names['index']}.template", values)
        model, values = runs[0].names["model"], {"archives": archives, **about}
        _render("topics.json", directory / "eval" / "topics.json", values)
        _render("impact.json", directory / "prebuilt-indexes" / "lucene" / f"{model}-impact.json", values)
        _render("condition.yaml", directory / "pyserini" / "2cr" / f"{model}.yaml", values)
        files = [file.to_json() for file in describe_files(directory, list_files(directory))]
        records = [run.record.to_json() for run in runs]
        write_checked(directory / MANIFEST, {"upstream": __version__, "runs": records, "files": files})
    log(f"Wrote {options.output}: " + ", ".join(archives))


def _is_upstream(path: Path) -> bool:
    return is_json_with(path / MANIFEST, "upstream", "files")


def _render(template: str, path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of templates/ to path."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("milco_pyserini.integrations.pyserini")
    environment = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(environment.get_template(template).render(values), encoding="utf-8")


main = partial(run_command, "milco upstream", UpstreamOptions, command)

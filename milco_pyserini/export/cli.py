"""milco export: a vector store for another search engine, an encoder as ONNX, an index as a search page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.defaults import INDEXES, MINI_QUERY, directory_name
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.options import ShardOptions, option
from milco_pyserini.registry import Registry

EXPORTS = Path("exports")
_SERVER = "with --url, Elasticsearch and OpenSearch"


@dataclass(frozen=True)
class ExportOptions(ShardOptions):
    """Write the files that another search engine loads: documents, schema, queries, and a README with the commands.

    With --url a running server is filled instead, its scores are compared with those of exact search, and an index is
    written that milco search, serve, explain and eval take as --index.

      milco encode --topics sample --encoder mini
      milco export --to qdrant --vectors vectors/sample --topics vectors/sample.topics
      milco export --to qdrant --vectors vectors/sample --url http://localhost:6333
    """

    to: str = option(metavar="TARGET", help=f"search engine: {', '.join(Registry('milco.targets').own)}")
    vectors: Path = option(metavar="DIR", help="vector store of milco encode")
    topics: Path | None = option(None, metavar="DIR", help="encoded topics, exported as queries")
    output: Path | None = option(
        None,
        metavar="DIR",
        help="directory of the files (default: exports/NAME.TARGET); with --url, of the index (default: "
        "indexes/COLLECTION.TARGET)",
    )
    overwrite: bool = option(False, help="replace an export or index at --output, once the new one is complete")
    prune: tuple[str, ...] = option((), metavar="RULE", help="drop weak terms of documents, as in milco index")
    since: Path | None = option(
        None, metavar="DIR", help="store that the target has: only documents that differ from it are exported"
    )
    store: bool = option(
        False,
        parameters=("store_documents",),
        help="documents next to the vectors, for hits and filters by their fields (targets that --url fills)",
    )
    url: tuple[str, ...] = option(
        (),
        repeatable=True,
        metavar="URL",
        help="running server to fill instead of writing files; of a cluster, several nodes (a key is read from "
        "MILCO_API_KEY)",
    )
    collection: str | None = option(
        None, help="collection, index or table at the target (default: the name of --vectors)"
    )
    shards: int | None = option(
        None,
        minimum=1,
        metavar="N",
        group=_SERVER,
        requires="url",
        help="shards of a new index (default: what the server gives it)",
    )
    replicas: int | None = option(
        None,
        minimum=0,
        metavar="N",
        group=_SERVER,
        requires="url",
        help="replicas of the index once it is complete (default: what the server gives it)",
    )

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield messages about options that exclude each other."""
        if "" in self.url:
            yield ParameterError("url", None, "is empty", "Give the URL of a running server.")


@dataclass(frozen=True)
class OnnxOptions:
    """Write an encoder as an ONNX graph: both views and the selection of terms, to run without torch and milco.

    The graph runs in onnxruntime of any language, next to the tokenizer and the names of the terms. Its weights are
    compared with those of the encoder.

      milco export onnx --encoder mini
    """

    encoder: str = option(metavar="NAME|DIR", help="checkpoint: hub name, directory, or mini (embedded)")
    output: Path | None = option(None, metavar="DIR", help="directory of the graph (default: exports/NAME.onnx)")
    dtype: str = option("float32", choices=("float32", "int8"), help="precision of the weights")
    overwrite: bool = option(False, help="replace an export at --output, once the new one is complete")


@dataclass(frozen=True)
class WebOptions:
    """Write a search page without a server: static files that any web server or host of pages serves.

    The page searches in the browser, with the hits and scores of milco search with a query network. The index is one of
    engine lucene that stores its documents.

      milco index --vectors vectors/sample
      milco export web --index indexes/sample.lucene --encoder mini-query
      python -m http.server --directory exports/sample.web
    """

    index: Path = option(metavar="DIR", help="index of milco index --engine lucene --store")
    encoder: str = option(MINI_QUERY, metavar="NAME|DIR", help="query network of the index's encoder")
    field: str | None = option(None, metavar="NAME", help="stored field to filter by (default: lang, if it is stored)")
    topics: str | None = option(None, metavar="NAME|PATH", help="topics of which the page offers some as examples")
    title: str = option("", metavar="TEXT", help="title of the page (default: the index's name)")
    output: Path | None = option(None, metavar="DIR", help="directory of the page (default: exports/NAME.web)")
    overwrite: bool = option(False, help="replace an export at --output, once the new one is complete")


def command(options: ExportOptions) -> None:
    """Export. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.export.access import Access
    from milco_pyserini.export.directory import export_files
    from milco_pyserini.export.protocol import ExportJob, ImpactStore
    from milco_pyserini.export.registry import find_target
    from milco_pyserini.export.remote import export_index
    from milco_pyserini.index.documents import stored_documents

    target = find_target(options.to)
    name = directory_name(options.vectors.name)
    collection = options.collection
    if collection is None:
        collection = re.sub(r"[^a-z0-9_]+", "_", name.lower())
        if not re.match("[a-z]", collection):
            raise MilcoError(
                f"the name of --vectors {options.vectors} cannot be that of a collection: give --collection"
            )
    default = INDEXES / (options.collection or name) if options.url else EXPORTS / name
    output = options.output or default.with_name(f"{default.name}.{target.name}")
    if options.store:
        target.validate_stores()
    access = Access.named(options.url)
    if options.url:
        target.validate_urls(access.urls)
    documents = ImpactStore.open(options.vectors, options.prune)
    topics = None if options.topics is None else ImpactStore.open(options.topics)
    since = None if options.since is None else ImpactStore.open(options.since, options.prune)
    shard = documents.take_shard(options.shard_id, options.shard_num) if options.shard_num > 1 else documents
    corpus = stored_documents(shard, options.store, False)
    shares = options.shard_id, options.shard_num, options.shards, options.replicas
    export = ExportJob(documents, collection, topics, since, corpus, *shares)
    if options.url:
        export_index(export, target, access, output, options.overwrite)
    else:
        export_files(export, target, output, options.overwrite)


def onnx_command(options: OnnxOptions) -> None:
    """Export an encoder. Raises MilcoError before its network is loaded if it is of another kind."""
    from milco_pyserini.model.checkpoint import Checkpoint, Kind

    checkpoint = Checkpoint.open(options.encoder).fetch()
    if checkpoint.kind not in (Kind.MILCO, Kind.MASKED_LANGUAGE_MODEL, Kind.M3):
        rule = "has no graph: MILCO checkpoints, BGE-M3 and masked language models such as SPLADE have one"
        raise ParameterError("encoder", options.encoder, rule)
    from milco_pyserini.encode.opening import open_encoder
    from milco_pyserini.export.onnx import export_encoder

    output = options.output or EXPORTS / f"{directory_name(checkpoint.name)}.onnx"
    export_encoder(open_encoder(checkpoint, "cpu", "float32"), output, options.dtype, options.overwrite)


def web_command(options: WebOptions) -> None:
    """Export a search page. Raises MilcoError before the encoder is loaded if the index cannot have one."""
    from milco_pyserini.corpora import open_topics
    from milco_pyserini.corpora.languages import FIELD
    from milco_pyserini.encode.opening import open_encoder
    from milco_pyserini.export.web import EXAMPLES, export_page, index_name, validate_index
    from milco_pyserini.index.directory import open_index
    from milco_pyserini.model.checkpoint import Checkpoint, Kind

    index = open_index(options.index)
    validate_index(index, options.field)
    checkpoint = Checkpoint.open(options.encoder)
    if checkpoint.kind is not Kind.QUERY_NETWORK:
        rule = "has another kind of encoder than a query network, which a page needs"
        raise ParameterError("encoder", options.encoder, rule, f"Give one, such as {MINI_QUERY}.")
    queries = [] if options.topics is None else [query.text for query in open_topics(options.topics)]
    field = options.field or (FIELD if FIELD in (index.manifest.fields or {}) else None)
    encoder: Any = open_encoder(checkpoint, english_prefix=index.vectors.english_prefix or "")
    output = options.output or EXPORTS / f"{index_name(index)}.web"
    examples = queries[:: len(queries) // EXAMPLES + 1]
    export_page(index, encoder, output, field, examples, options.overwrite, options.title)


SUBCOMMANDS = {
    "onnx": Subcommand(OnnxOptions, onnx_command, "nothing was written"),
    "web": Subcommand(WebOptions, web_command, "nothing was written"),
}
_INTERRUPTED = "no files were written; with --url, rerun the same command to resume"
main = partial(dispatch, "milco export", SUBCOMMANDS, Subcommand(ExportOptions, command, _INTERRUPTED))

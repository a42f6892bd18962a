"""milco train mine --data jaquad.ja.jsonl.gz --output mined: hard negatives by our own search.

Each source's passages are one collection. What a query finds in it, and what is no positive of the query, is a
negative: the harder the better the encoder that searched.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoEncoder
    from milco_pyserini.index import Hits
    from milco_pyserini.index.protocol import Engine, EngineSearcher
    from milco_pyserini.sparse import SparseBatch
    from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource

# Passages that share so much of the shorter one's text are taken for the same one.
_SAME = 0.8
_SHINGLE = 8
_ENCODED_AT_A_TIME = 4096
_PART_SIZE = 4096


@dataclass(frozen=True)
class MineOptions:
    """Find hard negatives for training data by searching for its queries among its own passages.

    Every source becomes a file of --output: {"query", "positives", "negatives"}, hardest negatives first. Passages
    that are positives of the same query, or nearly the same text as one, are passed over. A query that is left without
    a negative is left out: training has no use for it.
    """

    data: tuple[str, ...] = option(help="training data: JSONL files, directories of them, or collections by name")
    output: Path = option(help="directory of the files with negatives")
    languages: tuple[str, ...] = option((), help="leave the other languages out")
    corpus: str | None = option(None, help="further passages to search: a corpus by name or path")
    encoder: str = option(DEFAULT_ENCODER, help="checkpoint: hub name, directory, or mini (embedded)")
    negatives: int = option(15, minimum=1, help="negatives for each query, at most")
    depth: int = option(100, minimum=1, help="hits to take them from")
    max_score: float | None = option(
        None,
        above=0,
        maximum=1,
        help="leave out hits above this share of the best positive's score, as false negatives: 0.95, say",
    )
    engine: str = option("exact", help="exact or lucene: the engine that searches")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that search")
    batch_size: int = option(128, minimum=1, help="texts in one forward pass, at most")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16: the matrix products' precision")
    overwrite: bool = option(False, help="start over if --output holds something else")


def mine_command(options: MineOptions) -> None:
    """Do what the options say. Raises MilcoError before anything is written if they cannot be met."""
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.encode import open_encoder
    from milco_pyserini.index import find_engine
    from milco_pyserini.train.data.retrieval_stream import open_retrieval
    from milco_pyserini.train.rewriting import begin, write_parts

    engine = find_engine(options.engine)
    engine.available()
    sources = open_retrieval(options.data, options.languages or None)
    corpus = open_corpus(options.corpus) if options.corpus else None
    if corpus is not None:
        corpus.check()
    encoder = open_encoder(options.encoder, options.device, options.dtype)
    pending = begin(options.output, sources, _plan(options, encoder), options.overwrite)
    if not pending:
        say(f"{options.output} is finished: nothing to do")
    for source, file in pending:
        passages = distinct_passages(source, [document.contents for document in corpus or ()])
        with tempfile.TemporaryDirectory(prefix="milco-mine-") as directory:
            searcher = index_passages(passages, encoder, engine, Path(directory), options.threads, options.batch_size)
            miner = Miner(source, passages, encoder, searcher, options)
            write_parts(file, source.examples(), _PART_SIZE, miner.mine)
        miner.close(file)


def mine(
    source: "RetrievalSource",
    encoder: "MilcoEncoder",
    negatives: int = 15,
    depth: int = 100,
    max_score: float | None = None,
) -> "Iterator[RetrievalExample]":
    """Every example of the source with hard negatives instead of its own, found by the exact engine.

    negatives, depth, max_score: as in MineOptions. An example may get fewer negatives; with none it is left out.
    """
    from milco_pyserini.index import find_engine

    options = MineOptions((), Path(), negatives=negatives, depth=depth, max_score=max_score)
    passages = distinct_passages(source)
    with tempfile.TemporaryDirectory() as directory:
        searcher = index_passages(passages, encoder, find_engine("exact"), Path(directory))
        yield from Miner(source, passages, encoder, searcher, options).mine(list(source.examples()))


def distinct_passages(source: "RetrievalSource", more: Sequence[str] = ()) -> dict[str, int]:
    """Number of every different passage of a source, positives and negatives, in the order of first sight."""
    passages: dict[str, int] = {}
    for example in source.examples():
        for passage in (*example.positives, *example.negatives):
            passages.setdefault(passage, len(passages))
    for passage in more:
        passages.setdefault(passage, len(passages))
    return passages


def index_passages(
    passages: Mapping[str, int],
    encoder: "MilcoEncoder",
    engine: "Engine",
    directory: Path,
    threads: int = 1,
    batch_size: int = 128,
) -> "EngineSearcher":
    """Encode the passages and index them in an empty directory. Their docids are their numbers, zero-padded."""
    from milco_pyserini.sparse.quantization import SCALE

    store = _PassageStore(list(passages), encoder, directory, batch_size)
    engine.build(store, directory, threads)
    store.progress.close("encoded and indexed")
    return engine.open(directory, {"query_scale": SCALE, "documents": len(passages)})


class Miner:
    """Negatives for the examples of one source. passages: as distinct_passages() numbers them, indexed by searcher."""

    def __init__(
        self,
        source: "RetrievalSource",
        passages: Mapping[str, int],
        encoder: "MilcoEncoder",
        searcher: "EngineSearcher",
        options: MineOptions,
    ) -> None:
        self.progress = Progress("queries", source.size())
        self.bare = 0
        self._encoder = encoder
        self._searcher = searcher
        self._options = options
        self._passages = list(passages)
        self._numbers = passages
        # A question may stand in the source several times, each time with another answer.
        self._positives: dict[str, set[int]] = {}
        for example in source.examples():
            self._positives.setdefault(example.query, set()).update(passages[text] for text in example.positives)
        self._shingles = lru_cache(maxsize=1 << 16)(lambda number: shingles(self._passages[number]))

    def mine(self, examples: "Sequence[RetrievalExample]") -> "Iterator[RetrievalExample]":
        """The examples with mined negatives, hardest first, and without scores; those that find none are left out."""
        options = self._options
        for start in range(0, len(examples), options.batch_size):
            batch = examples[start : start + options.batch_size]
            vectors = self._encoder.encode_query([example.query for example in batch], batch_size=options.batch_size)
            queries = vectors.to_dicts(self._encoder.vocabulary)
            found = self._searcher.search(queries, options.depth, options.threads)
            for example, hits in zip(batch, found, strict=True):
                negatives = tuple(self._negatives(example, hits))
                self.bare += not negatives
                if negatives:
                    yield example._replace(negatives=negatives, positive_scores=None, negative_scores=None)
            self.progress.add(len(batch), hits=sum(map(len, found)))

    def close(self, file: Path) -> None:
        """Say how it went."""
        self.progress.close(f"mined into {file}")
        if self.bare:
            queries = counted(self.bare, "query", "queries")
            say(f"{queries} found no negative among {counted(self._options.depth, 'hit')}, and were left out")

    def _negatives(self, example: "RetrievalExample", hits: "Hits") -> Iterator[str]:
        positives = self._positives[example.query]
        numbers = [int(docid) for docid in hits.docids]
        limit = self._limit([score for number, score in zip(numbers, hits.scores, strict=True) if number in positives])
        left = self._options.negatives
        for number, score in zip(numbers, hits.scores, strict=True):
            if left and number not in positives and score <= limit and not self._same(number, positives):
                left -= 1
                yield self._passages[number]

    def _limit(self, positive_scores: list[float]) -> float:
        """The highest score of a negative. Where no positive is found, every hit beats it, and none may stay."""
        if self._options.max_score is None:
            return float("inf")
        return self._options.max_score * max(positive_scores, default=0.0)

    def _same(self, number: int, positives: set[int]) -> bool:
        return any(near_duplicates(self._shingles(number), self._shingles(other)) for other in positives)


def shingles(text: str) -> frozenset[str]:
    """The runs of 8 characters in a text, case and white space aside: a text's fingerprint in any script."""
    plain = "".join(text.casefold().split())
    return frozenset(plain[start : start + _SHINGLE] for start in range(max(1, len(plain) - _SHINGLE + 1)))


def near_duplicates(left: frozenset[str], right: frozenset[str]) -> bool:
    """Whether one text holds at least four fifths of the other's shingles."""
    return len(left & right) >= _SAME * min(len(left), len(right))


class _PassageStore:
    """Passages as an engine wants to read them: encoded while they are indexed."""

    def __init__(self, texts: list[str], encoder: "MilcoEncoder", path: Path, batch_size: int) -> None:
        from milco_pyserini.sparse.quantization import SCALE

        self.path = path
        self.manifest = {"documents": len(texts), "scale": SCALE}
        self.progress = Progress("passages", len(texts))
        self._texts = texts
        self._encoder = encoder
        self._batch_size = batch_size

    @property
    def terms(self) -> list[str]:
        return self._encoder.vocabulary.terms.tolist()

    def batches(self) -> "Iterator[tuple[list[str], SparseBatch]]":
        for start in range(0, len(self._texts), _ENCODED_AT_A_TIME):
            texts = self._texts[start : start + _ENCODED_AT_A_TIME]
            batch = self._encoder.encode_document(texts, batch_size=self._batch_size)
            self.progress.add(len(texts), terms=float(batch.indptr[-1]))
            # Of equal length, so that the order of docids, which breaks ties, is the passages' own.
            yield [f"{number:010d}" for number in range(start, start + len(texts))], batch

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        from milco_pyserini.sparse.quantization import quantize_vector

        for ids, batch in self.batches():
            for docid, vector in zip(ids, batch.to_dicts(self._encoder.vocabulary), strict=True):
                yield docid, quantize_vector(vector, self.manifest["scale"])


def _plan(options: MineOptions, encoder: "MilcoEncoder") -> dict:
    """Everything that decides what the files hold."""
    free = {"output", "overwrite", "threads", "batch_size", "device", "dtype"}
    plan = {name: value for name, value in asdict(options).items() if name not in free}
    plan |= {"data": list(options.data), "languages": list(options.languages)}
    return {"command": "mine", **plan, "weight_hash": encoder.weight_hash}

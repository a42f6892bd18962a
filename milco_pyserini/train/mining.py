"""Mine hard negatives: the hits of a query among the passages of its own training set that are not its positives."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from milco_pyserini.console import Progress, counted, log
from milco_pyserini.corpora import open_corpus
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode import MilcoEncoder, open_encoder
from milco_pyserini.index import Hits, find_engine
from milco_pyserini.index.protocol import Engine, EngineSearcher
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.quantization import SCALE, quantize_vector
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, distinct_passages
from milco_pyserini.train.data.retrieval_stream import open_retrieval
from milco_pyserini.train.rewriting import pending_files, rewrite

# Texts that share this much of the shorter one are near-duplicates.
_NEAR_DUPLICATE = 0.8
_SHINGLE = 8
_ENCODED_AT_A_TIME = 4096
_PART_SIZE = 4096


def mine_training_set(
    data: Sequence[str],
    output: Path,
    *,
    languages: Sequence[str] = (),
    corpus: str | None = None,
    encoder: str = DEFAULT_ENCODER,
    negatives: int = 15,
    depth: int = 100,
    max_score: float | None = None,
    engine: str = "exact",
    threads: int = 1,
    batch_size: int = 128,
    device: str = "auto",
    dtype: str = "auto",
    overwrite: bool = False,
) -> None:
    """Write the files of a training set again with mined negatives, hardest first. Resumes.

    Args:
        data: JSONL files, directories of them, or collection names. The passages of a file are searched together.
        output: directory of the mined files.
        languages: keep only these, if any.
        corpus: name or path of further passages to search.
        encoder: checkpoint that searches.
        negatives: per query, at most; queries without one are left out.
        depth: hits to choose from.
        max_score: share of the best positive's score above which hits are taken for false negatives.
        engine: "exact" or "lucene".
        threads: of the search.
        batch_size: texts per forward pass, at most.
        device, dtype: as in MilcoEncoder.from_pretrained().
        overwrite: start over if output has other options.

    Raises:
        MilcoError: before anything is written, if an argument is invalid or output has something else.
    """
    chosen = find_engine(engine)
    chosen.available()
    sources = open_retrieval(data, languages or None)
    opened_corpus = open_corpus(corpus) if corpus else None
    if opened_corpus is not None:
        opened_corpus.check()
    model = open_encoder(encoder, device, dtype)
    plan = {
        "command": "mine",
        "data": list(data),
        "languages": list(languages),
        "corpus": corpus,
        "encoder": encoder,
        "negatives": negatives,
        "depth": depth,
        "max_score": max_score,
        "engine": engine,
        "weight_hash": model.weight_hash,
    }
    pending = pending_files(output, sources, plan, overwrite)
    if not pending:
        log(f"{output} is complete: nothing to do")
    for source, file in pending:
        passages = distinct_passages(source)
        for document in opened_corpus or ():
            passages.setdefault(document.contents, len(passages))
        with tempfile.TemporaryDirectory(prefix="milco-mine-") as directory:
            searcher = index_passages(passages, model, chosen, Path(directory), threads, batch_size)
            miner = NegativeMiner(source, passages, model, searcher, negatives, depth, max_score, threads, batch_size)
            rewrite(file, source.examples(), _PART_SIZE, miner.mine)
        miner.progress.close(f"Mined {file}")
        if miner.without:
            queries = counted(miner.without, "query", "queries")
            log(f"{queries} left out: no negative among {counted(depth, 'hit')}")


def mine_negatives(
    source: RetrievalSource,
    encoder: MilcoEncoder,
    negatives: int = 15,
    depth: int = 100,
    max_score: float | None = None,
) -> Iterator[RetrievalExample]:
    """Yield the examples of a source with mined negatives, by exact search. Arguments as in mine_training_set()."""
    passages = distinct_passages(source)
    with tempfile.TemporaryDirectory() as directory:
        searcher = index_passages(passages, encoder, find_engine("exact"), Path(directory))
        miner = NegativeMiner(source, passages, encoder, searcher, negatives, depth, max_score)
        yield from miner.mine(list(source.examples()))


def index_passages(
    passages: Mapping[str, int],
    encoder: MilcoEncoder,
    engine: Engine,
    directory: Path,
    threads: int = 1,
    batch_size: int = 128,
) -> EngineSearcher:
    """Encode passages and index them in an empty directory; docids are their zero-padded numbers."""
    store = PassageStore(list(passages), encoder, directory, batch_size)
    engine.build(store, directory, threads)
    store.progress.close("Encoded and indexed")
    return engine.open(directory, {"query_scale": SCALE, "documents": len(passages)})


class NegativeMiner:
    """Finds negatives for the examples of one source.

    Args:
        source: of the examples; read once for the positives of each query.
        passages: numbers of the indexed passages.
        encoder: of the queries.
        searcher: over the passages.
        negatives, depth, max_score, threads, batch_size: as in mine_training_set().
    """

    def __init__(
        self,
        source: RetrievalSource,
        passages: Mapping[str, int],
        encoder: MilcoEncoder,
        searcher: EngineSearcher,
        negatives: int = 15,
        depth: int = 100,
        max_score: float | None = None,
        threads: int = 1,
        batch_size: int = 128,
    ) -> None:
        self.progress = Progress("queries", source.size())
        self.without = 0
        self._encoder = encoder
        self._searcher = searcher
        self._num_negatives, self._depth, self._max_score = negatives, depth, max_score
        self._threads, self._batch_size = threads, batch_size
        self._passages = list(passages)
        # A query may occur several times in a source, each time with another positive.
        self._positives: dict[str, set[int]] = {}
        for example in source.examples():
            self._positives.setdefault(example.query, set()).update(passages[text] for text in example.positives)
        self._shingles = lru_cache(maxsize=1 << 16)(lambda number: shingles(self._passages[number]))

    def mine(self, examples: Sequence[RetrievalExample]) -> Iterator[RetrievalExample]:
        """Yield the examples with mined negatives, hardest first, without scores; examples without one are skipped."""
        for start in range(0, len(examples), self._batch_size):
            batch = examples[start : start + self._batch_size]
            vectors = self._encoder.encode_query([example.query for example in batch], batch_size=self._batch_size)
            queries = vectors.to_dicts(self._encoder.vocabulary)
            found = self._searcher.search(queries, self._depth, self._threads)
            for example, hits in zip(batch, found, strict=True):
                negatives = tuple(self.choose(example.query, hits))
                self.without += not negatives
                if negatives:
                    yield example._replace(negatives=negatives, positive_scores=None, negative_scores=None)
            self.progress.add(len(batch), hits=sum(map(len, found)))

    def choose(self, query: str, hits: Hits) -> Iterator[str]:
        """Yield the passages among the hits that are negatives of a query, best hits first."""
        positives = self._positives[query]
        scored = [(int(docid), score) for docid, score in zip(hits.docids, hits.scores, strict=True)]
        limit = float("inf")
        if self._max_score is not None:
            # If no positive is found, every hit scores above it, and none may be a negative.
            limit = self._max_score * max((score for number, score in scored if number in positives), default=0.0)
        missing = self._num_negatives
        for number, score in scored:
            if (
                missing
                and number not in positives
                and score <= limit
                and not any(near_duplicates(self._shingles(number), self._shingles(other)) for other in positives)
            ):
                missing -= 1
                yield self._passages[number]


def shingles(text: str) -> frozenset[str]:
    """Return the 8-character substrings of a text, ignoring case and white space: a fingerprint in any script."""
    plain = "".join(text.casefold().split())
    return frozenset(plain[start : start + _SHINGLE] for start in range(max(1, len(plain) - _SHINGLE + 1)))


def near_duplicates(left: frozenset[str], right: frozenset[str]) -> bool:
    """Return whether one text has at least four fifths of the other's shingles."""
    return len(left & right) >= _NEAR_DUPLICATE * min(len(left), len(right))


class PassageStore:
    """Passages as a vector store that is encoded while an engine reads it."""

    def __init__(self, texts: list[str], encoder: MilcoEncoder, path: Path, batch_size: int) -> None:
        self.path = path
        self.manifest = {"documents": len(texts), "scale": SCALE}
        self.progress = Progress("passages", len(texts))
        self._texts = texts
        self._encoder = encoder
        self._batch_size = batch_size

    @property
    def terms(self) -> list[str]:
        """Term of each column."""
        return self._encoder.vocabulary.terms.tolist()

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield docids and float weights."""
        for start in range(0, len(self._texts), _ENCODED_AT_A_TIME):
            texts = self._texts[start : start + _ENCODED_AT_A_TIME]
            batch = self._encoder.encode_document(texts, batch_size=self._batch_size)
            self.progress.add(len(texts), terms=float(batch.indptr[-1]))
            # Zero-padded: docids break ties in the order of the passages.
            yield [f"{number:010d}" for number in range(start, start + len(texts))], batch

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield each docid with {term: impact}."""
        for ids, batch in self.batches():
            for docid, vector in zip(ids, batch.to_dicts(self._encoder.vocabulary), strict=True):
                yield docid, quantize_vector(vector, self.manifest["scale"])

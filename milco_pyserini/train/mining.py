"""Mine hard negatives: the hits of a query among the passages of its own training set that are not its positives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from milco_pyserini.console import Progress, counted, log
from milco_pyserini.corpora import open_corpus
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.index import Hits, Index, find_engine
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.io.files import scratch_directory
from milco_pyserini.options import validate
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, distinct_passages, open_retrieval
from milco_pyserini.train.rewriting import MineOptions, parts_of, pending_files, rewrite

# Texts that share this much of the shorter one are near-duplicates.
_NEAR_DUPLICATE = 0.8
_SHINGLE = 8
_ENCODED_AT_A_TIME = 4096
_PART_SIZE = 4096


def mine_training_set(options: MineOptions) -> None:
    """Write the files of a training set again with mined negatives, hardest first. Resumes.

    >>> from milco_pyserini.train.rewriting import MineOptions
    >>> mine_training_set(MineOptions(data=("pairs.ja.jsonl.gz",), output=Path("mined")))  # doctest: +SKIP

    Raises:
        MilcoError: before anything is written, if an option is invalid or the output has something else.
    """
    validate(options)
    find_engine(options.engine).available()
    sources = open_retrieval(options.data, options.languages or None)
    corpus = open_corpus(options.corpus) if options.corpus else None
    corpus_hash = None if corpus is None else corpus.check().digest
    encoder = load_encoder(options.encoder, options.device, options.dtype)
    for source, file in pending_files(options, sources, encoder.hashes["weight_hash"], corpus_hash):
        # The passages of a source are searched together.
        passages = distinct_passages(source)
        for document in corpus or ():
            passages.setdefault(document.contents, len(passages))
        with scratch_directory(file.with_name(f"{file.name}.index")) as scratch:
            vectors = encode_passages(list(passages), encoder, parts_of(file) / "passages", options.batch_size)
            # Zero-padded: docids break ties in the order of the passages.
            given: dict[str, Any] = {"ids": [f"{number:010d}" for number in range(len(vectors))], "encoder": encoder}
            index = Index.build(vectors, scratch, options.engine, threads=options.threads, **given)
            miner = NegativeMiner(source, passages, encoder, index.searcher(), options)
            left_out = rewrite(file, source, _PART_SIZE, miner.mine)
        if left_out:
            queries = counted(left_out, "query", "queries")
            log(f"{queries} left out: no negative among {counted(options.depth, 'hit')}")


def encode_passages(passages: list[str], encoder: MilcoEncoder, parts: Path, batch_size: int) -> SparseBatch:
    """Return the vectors of passages. A directory of parts has those that an interrupted run encoded."""
    progress = Progress("passages", len(passages))
    batches = []
    for start in range(0, len(passages), _ENCODED_AT_A_TIME):
        texts = passages[start : start + _ENCODED_AT_A_TIME]
        part = parts / f"{start // _ENCODED_AT_A_TIME:06d}.npz"
        if not part.is_file():
            # Without the vocabulary, which every part would repeat.
            replace(encoder.encode_document(texts, batch_size=batch_size), vocabulary=None).save(part)
        batches.append(SparseBatch.load(part))
        progress.add(len(texts), terms=float(batches[-1].indptr[-1]))
    progress.close("Encoded")
    return SparseBatch.concatenate(batches, encoder.vocabulary.english_size)


@dataclass(eq=False)
class NegativeMiner:
    """Finds negatives for the examples of one source.

    Args:
        source: of the examples; read once for the positives of each query.
        passages: numbers of the indexed passages.
        encoder: of the queries.
        searcher: over the passages.
        options: number and depth of negatives.
    """

    source: RetrievalSource
    passages: Mapping[str, int]
    encoder: MilcoEncoder
    searcher: EngineSearcher
    options: MineOptions

    def __post_init__(self) -> None:
        self._texts = list(self.passages)
        # A query may occur several times in a source, each time with another positive.
        self._positives: dict[str, set[int]] = {}
        for example in self.source.examples():
            self._positives.setdefault(example.query, set()).update(map(self.passages.__getitem__, example.positives))
        self._shingles = lru_cache(maxsize=1 << 16)(lambda number: shingles(self._texts[number]))

    def mine(self, examples: Sequence[RetrievalExample]) -> Iterator[RetrievalExample | None]:
        """Yield the examples with mined negatives, hardest first, without scores; None for one without negatives."""
        size = self.options.batch_size
        for start in range(0, len(examples), size):
            batch = examples[start : start + size]
            vectors = self.encoder.encode_query([example.query for example in batch], batch_size=size)
            queries = vectors.to_dicts(self.encoder.vocabulary)
            rankings = self.searcher.search(queries, self.options.depth, threads=self.options.threads)
            for example, hits in zip(batch, rankings, strict=True):
                negatives = tuple(self.choose(example.query, hits))
                mined = example._replace(negatives=negatives, positive_scores=None, negative_scores=None)
                yield mined if negatives else None

    def choose(self, query: str, hits: Hits) -> Iterator[str]:
        """Yield the passages among the hits that are negatives of a query, best hits first."""
        positives = self._positives[query]
        scored = [(int(docid), score) for docid, score in zip(hits.docids, hits.scores, strict=True)]
        limit = float("inf")
        if self.options.max_score is not None:
            # If no positive is found, every hit scores above it, and none may be a negative.
            best = max((score for number, score in scored if number in positives), default=0.0)
            limit = self.options.max_score * best
        missing = self.options.negatives
        for number, score in scored:
            if (
                missing
                and number not in positives
                and score <= limit
                and not any(near_duplicates(self._shingles(number), self._shingles(other)) for other in positives)
            ):
                missing -= 1
                yield self._texts[number]


def shingles(text: str) -> frozenset[str]:
    """Return the 8-character substrings of a text, ignoring case and white space: a fingerprint in any script."""
    plain = "".join(text.casefold().split())
    return frozenset(plain[start : start + _SHINGLE] for start in range(max(1, len(plain) - _SHINGLE + 1)))


def near_duplicates(left: frozenset[str], right: frozenset[str]) -> bool:
    """Return whether one text has at least four fifths of the other's shingles."""
    return len(left & right) >= _NEAR_DUPLICATE * min(len(left), len(right))

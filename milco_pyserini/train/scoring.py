"""milco train score --data mined --output scored: a teacher's score for every passage of every query.

The teacher is a cross-encoder checkpoint, or "lexical", which needs none: BM25 over the encoder's own word pieces plus
the encoder's own score. The paper's teacher is a cross-encoder; its scores come with the collections that it names.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource

LEXICAL = "lexical"

# A killed run loses no more than this, some minutes of a large cross-encoder's work.
_PART_SIZE = 1024


@dataclass(frozen=True)
class ScoreOptions:
    """Add a teacher's scores to training data, for distillation.

    Every source becomes a file of --output: the same lines with "scores", one for each passage, positives first.
    Killed or interrupted, the same command goes on where it stopped.
    """

    data: tuple[str, ...] = option(help="training data: JSONL files, directories of them, or collections by name")
    output: Path = option(help="directory of the files with scores")
    teacher: str = option(
        help="a cross-encoder: directory or hub name, such as BAAI/bge-reranker-v2-m3; or lexical, which needs none"
    )
    languages: tuple[str, ...] = option((), help="leave the other languages out")
    encoder: str = option("mini", help="for lexical: the checkpoint whose pieces and scores it takes")
    bm25_weight: float = option(1.0, minimum=0, help="for lexical: weight of the BM25 score")
    encoder_weight: float = option(1.0, minimum=0, help="for lexical: weight of the encoder's score")
    label_weight: float = option(0.0, minimum=0, help="added to the score of every positive: that it answers is known")
    max_length: int = option(512, minimum=8, help="for a cross-encoder: tokens of query and passage together")
    batch_size: int = option(64, minimum=1, help="texts, or pairs of texts, in one forward pass, at most")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16: the matrix products' precision")
    overwrite: bool = option(False, help="start over if --output holds something else")


class Teacher(Protocol):
    """What scores pairs of a query and a passage; higher is better, and only differences for one query count."""

    @property
    def identity(self) -> str:
        """Which weights it has: for the output's manifest."""

    def read(self, source: "RetrievalSource") -> None:
        """Learn what it needs to know of a collection before it scores pairs from it."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> "NDArray":
        """Scores of (query, passage) pairs: float [n], finite."""


def score_command(options: ScoreOptions) -> None:
    """Do what the options say. Raises MilcoError before anything is written if they cannot be met."""
    _check(options)
    from milco_pyserini.train.data.retrieval_stream import open_retrieval
    from milco_pyserini.train.rewriting import begin, write_parts

    sources = open_retrieval(options.data, options.languages or None)
    teacher = _teacher(options)
    pending = begin(options.output, sources, _plan(options, teacher), options.overwrite)
    if not pending:
        say(f"{options.output} is finished: nothing to do")
    for source, file in pending:
        teacher.read(source)
        progress = Progress("queries", source.size())
        agrees: Counter[bool] = Counter()

        def work(
            examples: "Sequence[RetrievalExample]", progress: Progress = progress, agrees: Counter[bool] = agrees
        ) -> "Iterator[RetrievalExample]":
            for one in score_examples(examples, teacher, options.label_weight):
                agrees[positive_first(one, options.label_weight)] += 1
                yield one
            progress.add(len(examples), passages=sum(len(one.positives) + len(one.negatives) for one in examples))

        write_parts(file, source.examples(), _PART_SIZE, work)
        progress.close(f"scored into {file}")
        if agrees:
            queries = counted(agrees.total(), "query", "queries")
            say(f"the teacher puts a positive passage first for {agrees[True] / agrees.total():.1%} of {queries}")


def score_examples(
    examples: "Sequence[RetrievalExample]", teacher: Teacher, label_weight: float = 0.0
) -> "Iterator[RetrievalExample]":
    """The examples with the teacher's scores of all their passages; label_weight is added to those of positives."""
    passages = [(*example.positives, *example.negatives) for example in examples]
    pairs = [(example.query, text) for example, texts in zip(examples, passages, strict=True) for text in texts]
    values = iter(teacher.score(pairs).tolist())
    for example, texts in zip(examples, passages, strict=True):
        count = len(example.positives)
        scores = tuple(_rounded(next(values) + label_weight * (place < count)) for place in range(len(texts)))
        yield example._replace(positive_scores=scores[:count], negative_scores=scores[count:])


def positive_first(example: "RetrievalExample", label_weight: float = 0.0) -> bool:
    """Whether the teacher, without the weight of the label, scores a positive above every negative."""
    best, other = (max(scores or (), default=-inf) for scores in (example.positive_scores, example.negative_scores))
    return best - label_weight > other


def _rounded(score: float) -> float:
    # Six digits are more than a teacher knows, and half the bytes.
    return float(f"{score:.6g}")


def _teacher(options: ScoreOptions) -> Teacher:
    if options.teacher == LEXICAL:
        from milco_pyserini.encode import open_encoder
        from milco_pyserini.train.lexical_scorer import LexicalScorer

        encoder = open_encoder(options.encoder, options.device, options.dtype)
        return LexicalScorer(encoder, options.bm25_weight, options.encoder_weight, options.batch_size)
    from milco_pyserini.train.cross_encoder import CrossEncoder

    return CrossEncoder(options.teacher, options.max_length, options.batch_size, options.device, options.dtype)


def _plan(options: ScoreOptions, teacher: Teacher) -> dict:
    """Everything that decides what the files hold."""
    free = {"output", "overwrite", "batch_size", "device", "dtype"}
    unused = {"max_length"} if options.teacher == LEXICAL else {"encoder", "bm25_weight", "encoder_weight"}
    plan = {name: value for name, value in asdict(options).items() if name not in free | unused}
    plan |= {"data": list(options.data), "languages": list(options.languages)}
    return {"command": "score", **plan, "weight_hash": teacher.identity}


def _check(options: ScoreOptions) -> None:
    if options.teacher == LEXICAL and not options.bm25_weight + options.encoder_weight > 0:
        raise MilcoError("--bm25-weight 0 --encoder-weight 0: every score would be 0")

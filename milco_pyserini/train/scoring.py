"""Add a teacher's scores to training sets, for distillation.

The paper's teacher is a cross-encoder, whose scores come with the paper's collections.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from milco_pyserini.console import Progress, counted, log
from milco_pyserini.defaults import MINI
from milco_pyserini.encode import open_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.data.retrieval import RetrievalExample
from milco_pyserini.train.data.retrieval_stream import open_retrieval
from milco_pyserini.train.rewriting import pending_files, rewrite
from milco_pyserini.train.scorers import CrossEncoder, LexicalScorer, PassageScorer
from milco_pyserini.train.teachers import LEXICAL

# A killed run loses at most one part, some minutes of a large cross-encoder's work.
PART_SIZE = 1024


def score_training_set(
    data: Sequence[str],
    output: Path,
    teacher: str | PassageScorer,
    *,
    languages: Sequence[str] = (),
    encoder: str = MINI,
    bm25_weight: float = 1.0,
    encoder_weight: float = 1.0,
    label_weight: float = 0.0,
    max_length: int = 512,
    batch_size: int = 64,
    device: str = "auto",
    dtype: str = "auto",
    overwrite: bool = False,
) -> None:
    """Write the files of a training set again with "scores", one for each passage, positives first. Resumes.

    Args:
        data: JSONL files, directories of them, or collection names.
        output: directory of the scored files.
        teacher: a cross-encoder's directory or hub name, "lexical", or any PassageScorer.
        languages: keep only these, if any.
        encoder, bm25_weight, encoder_weight: of the lexical teacher.
        label_weight: added to the scores of positives.
        max_length: tokens of query and passage together, for a cross-encoder.
        batch_size: texts or pairs per forward pass, at most.
        device, dtype: as in MilcoEncoder.from_pretrained().
        overwrite: start over if output has other options.

    Raises:
        MilcoError: before anything is written, if data or teacher cannot be read, or output has something else.
    """
    if teacher == LEXICAL and not bm25_weight + encoder_weight > 0:
        raise MilcoError("--bm25-weight 0 --encoder-weight 0: every score would be 0")
    sources = open_retrieval(data, languages or None)
    plan: dict = {"command": "score", "data": list(data), "teacher": teacher, "languages": list(languages)}
    if teacher == LEXICAL:
        plan |= {"encoder": encoder, "bm25_weight": bm25_weight, "encoder_weight": encoder_weight}
        scorer: PassageScorer = LexicalScorer(
            open_encoder(encoder, device, dtype), bm25_weight, encoder_weight, batch_size
        )
    elif isinstance(teacher, str):
        plan |= {"max_length": max_length}
        scorer = CrossEncoder(teacher, max_length, batch_size, device, dtype)
    else:
        scorer = teacher
        plan |= {"teacher": type(teacher).__name__}
    plan |= {"label_weight": label_weight, "weight_hash": scorer.identity}
    pending = pending_files(output, sources, plan, overwrite)
    if not pending:
        log(f"{output} is complete: nothing to do")
    for source, file in pending:
        scorer.read(source)
        progress = Progress("queries", source.size())
        agreement: Counter[bool] = Counter()

        def work(
            examples: Sequence[RetrievalExample], progress: Progress = progress, agreement: Counter[bool] = agreement
        ) -> Iterator[RetrievalExample]:
            for example in score_examples(examples, scorer, label_weight):
                agreement[ranks_positive_first(example, label_weight)] += 1
                yield example
            passages = sum(len(example.positives) + len(example.negatives) for example in examples)
            progress.add(len(examples), passages=passages)

        rewrite(file, source.examples(), PART_SIZE, work)
        progress.close(f"Scored {file}")
        if agreement:
            queries = counted(agreement.total(), "query", "queries")
            share = agreement[True] / agreement.total()
            log(f"The teacher ranks a positive passage first for {share:.1%} of {queries}")


def score_examples(
    examples: Sequence[RetrievalExample], scorer: PassageScorer, label_weight: float = 0.0
) -> Iterator[RetrievalExample]:
    """Yield the examples with scores of all passages; label_weight is added to those of positives."""
    passages = [(*example.positives, *example.negatives) for example in examples]
    pairs = [(example.query, text) for example, texts in zip(examples, passages, strict=True) for text in texts]
    values = iter(scorer.score(pairs).tolist())
    for example, texts in zip(examples, passages, strict=True):
        count = len(example.positives)
        # Six digits are more precise than a teacher, and half the bytes.
        scores = tuple(float(f"{next(values) + label_weight * (place < count):.6g}") for place in range(len(texts)))
        yield example._replace(positive_scores=scores[:count], negative_scores=scores[count:])


def ranks_positive_first(example: RetrievalExample, label_weight: float = 0.0) -> bool:
    """Return whether a positive scores above every negative without the label's weight."""
    best, other = (max(scores or (), default=-inf) for scores in (example.positive_scores, example.negative_scores))
    return best - label_weight > other

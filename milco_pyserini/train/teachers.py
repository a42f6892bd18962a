"""Teachers of Sparse Alignment Pretraining: what a pair of sentences should weigh in English pieces.

A teacher is named by a file of LexicalTeacher.save(), by a directory or hub name of a masked language model (SPLADE),
or by the word lexical: fitted on the English side of the bitext before training begins.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.errors import MilcoError
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.lexical_teacher import LexicalTeacher

LEXICAL = "lexical"


class Teacher(Protocol):
    """Sentence pairs to targets; the known ones read the English side alone.

    prepare() may run in a data loader's worker, targets() where the training runs.
    Every tensor of prepare() has B rows, so that a batch can be cut and moved like any other.
    """

    @property
    def vocabulary(self) -> list[str]:
        """English pieces, in the order of the target's columns."""

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Whatever targets() takes, of B pairs, on the CPU."""

    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Float32 [B, V_e]: logits before LogSat, the maximum over a text's tokens; no gradient."""


def open_teacher(
    name_or_path: str | Path,
    english_tokenizer: Tokenizer,
    english_texts: Callable[[], Iterable[str]],
    padding: str = "-inf",
    max_length: int = 256,
) -> Teacher:
    """The teacher of that name. english_texts: the English side of the bitext in mixed order, read only by lexical.

    padding: what a padded position says to a masked language model, "-inf" or "zero"; a lexical teacher has none.
    max_length: tokens of a text that are read. Raises MilcoError, with what to do instead, if it cannot be had.
    """
    name = str(name_or_path)
    if name == LEXICAL:
        return LexicalTeacher.fit(english_texts(), english_tokenizer, max_length=max_length)
    if name.endswith(".npz"):
        return LexicalTeacher.load(Path(name), max_length)
    from milco_pyserini.train.mlm_teacher import MaskedLanguageModelTeacher

    return MaskedLanguageModelTeacher.from_pretrained(name, padding, max_length)


def check_vocabulary(teacher_pieces: Sequence[str], english_pieces: Sequence[str]) -> None:
    """Raise MilcoError, with both sizes and the first difference, unless teacher and model have the same columns."""
    if list(teacher_pieces) == list(english_pieces):
        return
    shared = min(len(teacher_pieces), len(english_pieces))
    where = next((i for i in range(shared) if teacher_pieces[i] != english_pieces[i]), shared)
    first = f"the first {shared:,} are equal"
    if where < shared:
        first = f"piece {where} is {teacher_pieces[where]!r} there and {english_pieces[where]!r} here"
    raise MilcoError(
        f"the teacher has {len(teacher_pieces):,} English pieces and the model {len(english_pieces):,}; {first}: take "
        f"a teacher with the model's English tokenizer, or the teacher {LEXICAL}"
    )

"""Text to token ids with the checkpoint's own tokenizer, through the `tokenizers` library alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.checkpoint import ENGLISH, find_checkpoint, sub_model_directories
from milco_pyserini.model.loading import TOKENIZER_FILES, loading

_FILE, _SENTENCEPIECE, _WORD_PIECES = TOKENIZER_FILES
# The published checkpoints name a gated repository for the English side; its vocabulary is bert-base-uncased's.
_GATED = {"naver/splade-v3": "bert-base-uncased"}
# A tokenizer takes about a hundred bytes of memory for each character of a text.
_PIECE = 2**20
_AT_ONCE = 4 * _PIECE
# A piece of SentencePiece has 16 characters at most.
_CHARACTERS_PER_TOKEN = 32
_SPACES = " \n\t"


@dataclass(frozen=True)
class Tokens:
    """Ids of one text, <s> and </s> included, none for a blank text, and whether the text was longer than that."""

    ids: list[int]
    truncated: bool


class TextTokenizer:
    """The multilingual tokenizer of a checkpoint. name: how errors call it."""

    def __init__(self, tokenizer: Tokenizer, name: str = "the tokenizer") -> None:
        self.tokenizer = tokenizer
        self._name = name
        tokenizer.no_truncation()
        tokenizer.no_padding()

    @cached_property
    def pieces(self) -> list[str]:
        """The piece of every id. Raises MilcoError if an id has none, as where a vocabulary lists a piece twice."""
        pieces = [self.tokenizer.id_to_token(number) for number in range(self.tokenizer.get_vocab_size())]
        if None in pieces:
            raise MilcoError(
                f"{self._name} has {len(pieces):,} pieces and none of the number {pieces.index(None):,}: its "
                "vocabulary lists a piece twice, or leaves numbers out; train or save it again without gaps"
            )
        return pieces

    @cached_property
    def special_ids(self) -> list[int]:
        """Ids that stand for no text: <s>, <pad>, </s>, <unk>, <mask>."""
        added = self.tokenizer.get_added_tokens_decoder()
        return sorted(number for number, token in added.items() if token.special)

    @cached_property
    def num_special_tokens(self) -> tuple[int, int]:
        """How many ids stand before and behind a text's own: <s> and </s> of most encoders, </s> alone of some."""
        added = self.tokenizer.encode("a").special_tokens_mask
        first = added.index(0) if 0 in added else len(added)
        return first, sum(added[first:])

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """All the ids of every text, <s> and </s> included; none for a text without a piece of its own.

        A text of more than 2^20 characters is tokenized in pieces that end at white space, or after so many characters
        where there is none: only there the ids may differ from those of the text tokenized at once.
        """
        before, after = self.num_special_tokens
        rows: list[list[int]] = [[] for _ in texts]
        pieces = ((row, piece) for row, text in zip(rows, texts, strict=True) for piece in _pieces(text))
        for group in _groups(pieces):
            encodings = self.tokenizer.encode_batch_fast([piece for _, piece in group])
            for (row, _), encoding in zip(group, encodings, strict=True):
                row[len(row) - after :] = encoding.ids[before if row else 0 :]
        marks = before + after
        return [row if text.strip() and len(row) > marks else [] for text, row in zip(texts, rows, strict=True)]

    def tokenize(self, texts: Sequence[str], max_length: int) -> list[Tokens]:
        """Ids of every text, truncated to max_length (<s> and </s> included).

        Only the beginning of a long text is tokenized, as much of it as has twice the ids that stay: what comes later
        has no influence on them.
        """
        after, size = self.num_special_tokens[1], _CHARACTERS_PER_TOKEN * max_length
        ends = [_end(text, 0, size) for text in texts]
        rows = self.ids([text[:end] for text, end in zip(texts, ends, strict=True)])
        for number, (text, end) in enumerate(zip(texts, ends, strict=True)):
            while end < len(text) and len(rows[number]) < 2 * max_length:
                end = _end(text, 0, 4 * end)
                rows[number] = self.ids([text[:end]])[0]
        return [
            Tokens(
                ids if len(ids) <= max_length else ids[: max_length - after] + ids[len(ids) - after :],
                len(ids) > max_length,
            )
            for ids in rows
        ]

    def namer(self, rows: Sequence[Sequence[int]], names: Sequence[str]) -> Callable[[int], str]:
        """What an error calls the text of a row: its name, or else how it begins."""
        return lambda row: names[row] if names else self.tokenizer.decode(list(rows[row][:20]))

    def passages(self, texts: Sequence[str], max_length: int) -> list[list[list[int]]]:
        """Every text as consecutive passages of at most max_length tokens each, <s> and </s> included."""
        before, after = self.num_special_tokens
        room = max_length - before - after
        passages = []
        for ids in self.ids(texts):
            end = len(ids) - after
            spans = [(first, min(first + room, end)) for first in range(before, end, room)]
            passages.append([ids[:before] + ids[first:last] + ids[end:] for first, last in spans] or [ids])
        return passages


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that can be tokenized one by one."""
    start = 0
    while (stop := _end(text, start, _PIECE)) < len(text):
        yield replace_lone_surrogates(text[start:stop])
        start = stop
    yield replace_lone_surrogates(text[start:])


def _end(text: str, start: int, size: int) -> int:
    """Where a piece of size characters ends: before the last white space of its second half, or the next after it.

    So no word is split, and what follows does not change how the piece is tokenized; only after 2^20 characters
    without white space a piece ends anywhere.
    """
    stop = start + size
    if stop >= len(text):
        return len(text)
    if last := max(text.rfind(space, start + size // 2, stop) for space in _SPACES) + 1:
        return last - 1
    limit = min(start + max(size, _PIECE), len(text))
    return min((place for space in _SPACES if (place := text.find(space, stop, limit)) >= 0), default=limit)


def _groups(pieces: Iterable[tuple[list[int], str]]) -> Iterator[list[tuple[list[int], str]]]:
    """Consecutive pieces, as many as are tokenized at once."""
    group: list[tuple[list[int], str]] = []
    size = 0
    for row, piece in pieces:
        group.append((row, piece))
        size += len(piece)
        if size >= _AT_ONCE:
            yield group
            group, size = [], 0
    yield group


def open_tokenizer(name: str) -> TextTokenizer:
    """The multilingual tokenizer of a checkpoint: a directory, a hub name, or "mini". Weights are not fetched for it.

    Raises MilcoError as find_checkpoint() and load_tokenizer() do.
    """
    return load_tokenizer(find_checkpoint(name, weights=False))


def load_tokenizer(directory: Path) -> TextTokenizer:
    """The multilingual tokenizer of a checkpoint directory, ours or the authors'.

    Raises MilcoError if neither the checkpoint nor the sub-model that it names brings one.
    """
    tokenizer = _find(directory, "multilingual_encoder_checkpoint", [directory])
    return TextTokenizer(tokenizer, f"the tokenizer of {directory}")


def load_english_tokenizer(directory: Path) -> Tokenizer:
    """The English WordPiece tokenizer, whose vocabulary names the pivot columns."""
    return _find(directory, "lsr_encoder_checkpoint", [directory / ENGLISH])


def _find(directory: Path, field: str, places: list[Path]) -> Tokenizer:
    places = places + sub_model_directories(directory, field)
    for place in places:
        tokenizer = _read(place)
        if tokenizer is not None:
            return tokenizer
    name = read_json(directory / "config.json").get(field)
    if name and "/" in name and not name.startswith((".", "/")):
        return _from_hub(directory, name)
    raise MilcoError(
        f"checkpoint {directory} brings no tokenizer: expected {_FILE} in one of {', '.join(map(str, places))}"
    )


def _read(place: Path) -> Tokenizer | None:
    with loading(place, "a tokenizer"):
        if (place / _FILE).is_file():
            return Tokenizer.from_file(str(place / _FILE))
        if (place / _SENTENCEPIECE).is_file():
            from transformers import XLMRobertaTokenizerFast

            return XLMRobertaTokenizerFast.from_pretrained(place).backend_tokenizer
        if (place / _WORD_PIECES).is_file():
            from transformers import BertTokenizerFast

            return BertTokenizerFast.from_pretrained(place).backend_tokenizer
    return None


def _from_hub(directory: Path, name: str) -> Tokenizer:
    name = _GATED.get(name, name)
    try:
        return Tokenizer.from_pretrained(name)
    except Exception as error:
        # The library raises a plain Exception for every way in which a download can fail.
        raise MilcoError(
            f"checkpoint {directory} names the tokenizer of {name!r}, which is neither in the cache nor reachable: "
            f"download it once, or put its {_FILE} into the checkpoint directory"
        ) from error


def replace_lone_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced: tokenizers take what UTF-8 can hold."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

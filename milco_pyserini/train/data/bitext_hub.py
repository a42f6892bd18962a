"""The paper's nine collections for alignment pretraining (SAP), by the names of its table, from the Hugging Face hub.

Eight are Parquet files with the columns english and non_english, in a folder en-<language> for each language; their
folder "all" holds the same pairs once more and is not read. (The paper's counts of most are about twice the hub's,
as if "all" had been counted too.) mmarco is MS MARCO's passages, machine translated: for each language a file of
id TAB passage, whose lines are joined with those of the English one. Files are downloaded whole and kept in the hub's
cache, so that training reads from the disk: 56 GB for all of mmarco, 8 for opensubtitles, 6 for jw300, less for the
others.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.train.data.bitext import BitextPair, BitextSource

_ROWS_AT_A_TIME = 1024


class BitextCollection(NamedTuple):
    """A data set on the hub. paper: millions of pairs as the paper counts them (its table of pretraining data).

    pairs: those in the training split as the hub's card or viewer counts them, each once; None where neither was at
    hand.
    """

    repository: str
    paper: int
    pairs: int | None


def _sentences(name: str, paper: int, pairs: int | None) -> BitextCollection:
    return BitextCollection(f"sentence-transformers/parallel-sentences-{name}", paper, pairs)


MMARCO_PASSAGES = 8_841_823
_MMARCO_LANGUAGES = {
    "arabic": "ar",
    "chinese": "zh",
    "dutch": "nl",
    "french": "fr",
    "german": "de",
    "hindi": "hi",
    "indonesian": "id",
    "italian": "it",
    "japanese": "ja",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
    "vietnamese": "vi",
}

COLLECTIONS = {
    "mmarco": BitextCollection("unicamp-dl/mmarco", 115, len(_MMARCO_LANGUAGES) * MMARCO_PASSAGES),
    "wikititles": _sentences("wikititles", 14, 14_700_458),
    "wikimatrix": _sentences("wikimatrix", 19, 9_688_498),
    "europarl": _sentences("europarl", 50, 25_139_999),
    "opensubtitles": _sentences("opensubtitles", 274, None),
    "talks": _sentences("talks", 20, 9_750_031),
    "tatoeba": _sentences("tatoeba", 8, None),
    "jw300": _sentences("jw300", 92, 47_191_903),
    "news-commentary": _sentences("news-commentary", 2, 973_000),
}

_MMARCO_FILE = re.compile(r"data/google/collections/([a-z]+)_collection\.tsv")
# wikititles has one folder, "data", for some hundred languages, and does not say which text is in which: ISO 639's
# code for that is "und" (undetermined).
_TRAIN_FILE = re.compile(r"(?:en-(?P<language>[a-z]{2,3}(?:-[a-z]+)?)|data)/train-\d+-of-(?P<count>\d+)\.parquet")
_UNDETERMINED = "und"
_COLUMNS = ["non_english", "english"]
_WITHOUT_NETWORK = "Run the same command once with a network, or pass local files named <language>-en.tsv.gz."


class HubBitext:
    """The pairs of one language of a collection. They are fetched by size(), and kept in the hub's cache."""

    def __init__(self, collection: str, language: str, files: list[str]) -> None:
        """files: paths in the collection's repository."""
        self.collection = collection
        self.language = language
        self.name = f"{collection} ({language})"
        self._files = files

    def size(self) -> int:
        """The number of pairs in the files, which are fetched if the hub's cache does not hold them.

        Raises MilcoError if the hub cannot be reached, or a file is not what it should be.
        """
        return sum(_parquet(path).metadata.num_rows for path in self._paths())

    def pairs(self) -> Iterator[BitextPair]:
        """The pairs in the files' order, without white space around them. Pairs with an empty side are left out."""
        for path in self._paths():
            for batch in _parquet(path).iter_batches(_ROWS_AT_A_TIME, columns=_COLUMNS):
                texts, englishes = (batch.column(name).to_pylist() for name in _COLUMNS)
                for text, english in zip(texts, englishes, strict=True):
                    pair = BitextPair(self.language, (text or "").strip(), (english or "").strip())
                    if pair.text and pair.english:
                        yield pair

    def _paths(self) -> list[Path]:
        repository = COLLECTIONS[self.collection].repository
        return [fetch_hub_file(repository, file, repo_type=DATASET, hint=_WITHOUT_NETWORK) for file in self._files]


class HubPassages(HubBitext):
    """The passages of mmarco in one language, each with the English one. files: of the language, and of English."""

    def size(self) -> int:
        """The number of passages as published: reading gigabytes for it would tell no more."""
        self._paths()
        return MMARCO_PASSAGES

    def pairs(self) -> Iterator[BitextPair]:
        """The passages in the files' order. Those with an empty side are left out.

        Raises MilcoError, with the line, if the ids of the two files differ.
        """
        path, english_path = self._paths()
        both = zip(numbered_lines(path), numbered_lines(english_path), strict=False)
        for (number, line), (_, english_line) in both:
            identity, _, text = line.partition(b"\t")
            english_identity, _, english = english_line.partition(b"\t")
            if identity != english_identity:
                raise MilcoError(
                    f"{path}:{number}: passage {_text(identity)} where English has {_text(english_identity)}: "
                    "remove the two files from the hub's cache to have them fetched again"
                )
            pair = BitextPair(self.language, _text(text), _text(english))
            if pair.text and pair.english:
                yield pair


def hub_sources(name: str) -> list[BitextSource]:
    """One source for each language of a collection, in the order of the languages' codes.

    Lists the files of the hub (without a network, of its cache) and fetches none. Raises Unreachable if neither has
    the collection.
    """
    files = list_hub_files(COLLECTIONS[name].repository, repo_type=DATASET, hint=_WITHOUT_NETWORK)
    if name == "mmarco":
        return [*_passages(name, files)]
    by_language: dict[str, list[str]] = {}
    for file in sorted(files):
        found = _TRAIN_FILE.fullmatch(file)
        if found:
            by_language.setdefault(found["language"] or _UNDETERMINED, []).append(file)
    for language, parts in by_language.items():
        count = int(_TRAIN_FILE.fullmatch(parts[0])["count"])  # type: ignore[index]
        if len(parts) != count:
            raise MilcoError(f"bitext {name}: {len(parts)} of {count} files of {language} are cached", _WITHOUT_NETWORK)
    if not by_language:
        raise MilcoError(_no_files(name))
    return [HubBitext(name, language, parts) for language, parts in sorted(by_language.items())]


def _passages(name: str, files: list[str]) -> Iterator[HubPassages]:
    by_language = {found[1]: file for file in files if (found := _MMARCO_FILE.fullmatch(file))}
    english = by_language.get("english")
    if english is None or len(by_language) == 1:
        raise MilcoError(_no_files(name))
    for language, code in sorted(_MMARCO_LANGUAGES.items(), key=lambda item: item[1]):
        if language in by_language:
            yield HubPassages(name, code, [by_language[language], english])


def _no_files(name: str) -> str:
    return (
        f"bitext {name}: neither {COLLECTIONS[name].repository} on the Hugging Face hub nor its cached copy has files "
        "of pairs: give local files named <language>-en.tsv.gz instead"
    )


def _parquet(path: Path):  # type: ignore[no-untyped-def]  # pyarrow has no types
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise MilcoError(f"{path} is no whole Parquet file ({error}): remove it to have it fetched again") from None
    missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise MilcoError(f"{path} has no column {missing[0]!r}: its columns are {', '.join(file.schema_arrow.names)}")
    return file


def _text(side: bytes) -> str:
    return side.decode("utf-8", "replace").strip()

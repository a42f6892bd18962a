"""The paper's nine bitext collections for alignment pretraining (SAP), from the Hugging Face hub.

Eight are Parquet files with the columns english and non_english, in a folder en-LANG for each language; their folder
"all" repeats the same pairs and is not read. (The paper's counts of most are about twice the hub's, as if "all" had
been counted too.) mmarco is MS MARCO's passages, machine translated: for each language a file of id TAB passage, which
is joined with the English file. Files are downloaded to the hub's cache, so training reads from disk: 56 GB for all of
mmarco, 8 for opensubtitles, 6 for jw300, less for the others.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.bitext import BitextPair, BitextSource

_ROWS_AT_A_TIME = 1024


class BitextCollection(NamedTuple):
    """A dataset on the hub.

    paper: millions of pairs in the paper's table of pretraining data. pairs: in the training split, as the hub's card
    or viewer counts them; None if neither does.
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

# By the names of the paper's table.
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
# wikititles has one folder, "data", for some hundred languages, without a language column.
_TRAIN_FILE = re.compile(r"(?:en-(?P<language>[a-z]{2,3}(?:-[a-z]+)?)|data)/train-\d+-of-(?P<count>\d+)\.parquet")
_COLUMNS = ["non_english", "english"]
_HINT = "Run the same command once with a network, or pass local files named LANG-en.tsv.gz."


class HubBitext:
    """The pairs of one language of a collection, downloaded by size() to the hub's cache.

    Args:
        collection: name in COLLECTIONS.
        language: code.
        files: paths in the collection's repository.
    """

    def __init__(self, collection: str, language: str, files: list[str]) -> None:
        self.collection = collection
        self.language = language
        self.name = f"{collection} ({language})"
        self._files = files

    def paths(self) -> list[Path]:
        """Return the files in the hub's cache. Raises Unreachable if one cannot be downloaded."""
        repository = COLLECTIONS[self.collection].repository
        return [fetch_hub_file(repository, file, repo_type=DATASET, hint=_HINT) for file in self._files]

    def size(self) -> int:
        """Return the number of pairs, downloading the files. Raises MilcoError for a damaged file."""
        return sum(_open_parquet(path).metadata.num_rows for path in self.paths())

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs in file order, stripped; pairs with an empty side are skipped."""
        for path in self.paths():
            for batch in _open_parquet(path).iter_batches(_ROWS_AT_A_TIME, columns=_COLUMNS):
                texts, englishes = (batch.column(name).to_pylist() for name in _COLUMNS)
                for text, english in zip(texts, englishes, strict=True):
                    pair = BitextPair(self.language, (text or "").strip(), (english or "").strip())
                    if pair.text and pair.english:
                        yield pair


class HubPassages(HubBitext):
    """The passages of mmarco in one language with their English originals. files: of the language, and English."""

    def size(self) -> int:
        """Return the published number of passages, without reading gigabytes to count them."""
        self.paths()
        return MMARCO_PASSAGES

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the passages in file order; those with an empty side are skipped.

        Raises MilcoError with file and line if the ids of the two files differ.
        """
        path, english_path = self.paths()
        both = zip(numbered_lines(path), numbered_lines(english_path), strict=False)
        for (number, line), (_, english_line) in both:
            docid, _, text = line.decode("utf-8", "replace").partition("\t")
            english_docid, _, english = english_line.decode("utf-8", "replace").partition("\t")
            if docid != english_docid:
                raise MilcoError(
                    f"{path}:{number}: passage {docid} where English has {english_docid}",
                    "Remove both files from the hub's cache to download them again.",
                )
            pair = BitextPair(self.language, text.strip(), english.strip())
            if pair.text and pair.english:
                yield pair


def hub_sources(name: str) -> list[BitextSource]:
    """Return a source for each language of a collection, sorted by code.

    Lists the files of the hub (without a network, of its cache) and downloads none. Raises Unreachable if neither has
    the collection.
    """
    repository = COLLECTIONS[name].repository
    files = list_hub_files(repository, repo_type=DATASET, hint=_HINT)
    sources: list[BitextSource] = []
    if name == "mmarco":
        by_name = {found[1]: file for file in files if (found := _MMARCO_FILE.fullmatch(file))}
        for language, code in sorted(_MMARCO_LANGUAGES.items(), key=lambda item: item[1]):
            if language in by_name and "english" in by_name:
                sources.append(HubPassages(name, code, [by_name[language], by_name["english"]]))
    else:
        by_language: dict[str, list[str]] = {}
        counts: dict[str, int] = {}
        for file in sorted(files):
            if found := _TRAIN_FILE.fullmatch(file):
                language = found["language"] or UNDETERMINED
                by_language.setdefault(language, []).append(file)
                counts[language] = int(found["count"])
        for language, parts in sorted(by_language.items()):
            if len(parts) != counts[language]:
                raise MilcoError(
                    f"bitext {name}: {len(parts)} of {counts[language]} files of {language} are cached", _HINT
                )
            sources.append(HubBitext(name, language, parts))
    if not sources:
        raise MilcoError(
            f"bitext {name}: neither {repository} on the hub nor its cached copy has files of pairs", _HINT
        )
    return sources


def _open_parquet(path: Path):  # type: ignore[no-untyped-def]  # pyarrow has no types
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise MilcoError(
            f"{path} is not a complete Parquet file ({error})", "Remove it to download it again."
        ) from None
    missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise MilcoError(f"{path} has no column {missing[0]!r}: its columns are {', '.join(file.schema_arrow.names)}")
    return file

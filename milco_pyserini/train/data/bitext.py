"""Sentence pairs for alignment (SAP): TSV or JSONL files named LANG-en.*, and the paper's nine collections on the hub.

Eight collections are Parquet files with the columns english and non_english, in a folder en-LANG for each language;
their folder "all" repeats the same pairs and is not read. (The paper's counts of most are about twice the hub's, as if
"all" had been counted too.) mmarco is MS MARCO's passages, machine translated: for each language a file of id TAB
passage, which is joined with the English file. Files are downloaded to the hub's cache, so training reads from disk: 56
GB for all of mmarco, 8 for opensubtitles, 6 for jw300, less for the others.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError, unknown_name, validate_unique
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import first_line, numbered_lines
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.files import find_data_files, open_parquet, parse_json, parsed_lines

# Repositories by the names of the paper's table.
COLLECTIONS = {"mmarco": "unicamp-dl/mmarco"} | {
    name: f"sentence-transformers/parallel-sentences-{name}"
    for name in "wikititles wikimatrix europarl opensubtitles talks tatoeba jw300 news-commentary".split()
}
MMARCO_PASSAGES = 8_841_823

_FORMAT = re.compile(r"\.(tsv|jsonl)(\.gz)?$")
# An ISO 639 code, optionally with a script or region: de, zh-tw, sr-latn, es-419; not the wmt-de of wmt-de-en.tsv.
_LANGUAGE = re.compile(r"[a-z]{2}-[a-z]{2}|[a-z]{2,3}(?:-(?:[A-Za-z]{4}|[A-Z]{2}|[0-9]{3}))?")
_FILE_NAME = re.compile(rf"({_LANGUAGE.pattern})-en\.")
_NAMING = "LANG-en.tsv or LANG-en.jsonl (optionally .gz), such as de-en.tsv.gz"
_MMARCO_FILE = re.compile(r"data/google/collections/([a-z]+)_collection\.tsv")
_MMARCO_LANGUAGES = "ar:arabic de:german es:spanish fr:french hi:hindi id:indonesian it:italian ja:japanese nl:dutch"
_MMARCO_LANGUAGES += " pt:portuguese ru:russian vi:vietnamese zh:chinese"
# wikititles has one folder, "data", for some hundred languages, without a language column.
_TRAIN_FILE = re.compile(r"(?:en-(?P<language>[a-z]{2,3}(?:-[a-z]+)?)|data)/train-\d+-of-(?P<count>\d+)\.parquet")
_COLUMNS = ["non_english", "english"]
_ROWS_AT_A_TIME = 1024
_HINT = "Run the same command once with a network, or pass local files named LANG-en.tsv.gz."


class BitextPair(NamedTuple):
    """A text and its English translation. language: of the text, as files and collections spell it (de, zh-tw)."""

    language: str
    text: str
    english: str


class BitextStats(NamedTuple):
    """Number of pairs. digest: of the pairs; "" for a collection on the hub, whose revision is fixed."""

    pairs: int
    digest: str = ""


class BitextSource(Protocol):
    """Sentence pairs of one language. collection: the name that open_bitext() was given for them."""

    collection: str
    name: str
    language: str

    def stats(self) -> BitextStats:
        """Return the number and the digest of the pairs. Raises MilcoError if they cannot be read."""

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs from the start, always in the same order and in constant memory."""


def open_bitext(
    names: Sequence[str | Path], languages: Sequence[str] | None = None, ids: bool = False
) -> list[BitextSource]:
    """Resolve names to sources, one for each language and file, in the order of the names. No pair is read yet.

    Args:
        names: files, directories, and the paper's collections by name (COLLECTIONS); an existing path comes first.
        languages: keep only these.
        ids: TSV lines may begin with an id column.

    Raises:
        MilcoError: a name or language is unknown, a name is given twice, the language of a file is unknown, or the
            hub cannot be reached.
    """
    given = [str(name) for name in names]
    sources: list[BitextSource] = []
    for name in given:
        if given.count(name) > 1:
            raise MilcoError(f"bitext {name} is given {given.count(name)} times: name it once; NAME=SHARE weights it")
        path = Path(name)
        if name and path.exists():
            files = find_data_files(path, _FORMAT)
            if not files:
                raise MilcoError(f"{path} has no bitext: file names must be {_NAMING}")
            sources += [BitextFile(file, name, ids) for file in files]
        elif name in COLLECTIONS:
            sources += hub_sources(name)
        elif "/" in name or path.suffix:
            raise MilcoError(f"{name}: no such bitext file or directory")
        else:
            raise unknown_name("bitext", name, COLLECTIONS, "A file or directory is accepted too.")
    validate_unique("bitext", [Path(source.name).resolve() for source in sources if isinstance(source, BitextFile)])
    if languages is None:
        return sources
    known = {source.language for source in sources}
    for language in languages:
        if language not in known:
            raise unknown_name("language", language, known)
    return [source for source in sources if source.language in languages]


class BitextFile:
    """The sentence pairs of one file.

    Args:
        path: the file.
        collection: the name that the user gave for it: the file or a directory above it.
        ids: accept TSV lines with an id in a column before the pair, as in FLORES.

    Raises:
        MilcoError: neither the file's name nor its first line has the language.
    """

    def __init__(self, path: Path, collection: str, ids: bool = False) -> None:
        found = _FORMAT.search(path.name)
        if not found:
            raise MilcoError(f"{path} is not bitext: its name must be {_NAMING}")
        self.collection = collection
        self.name = str(path)
        self._path = path
        self._ids = ids
        self._is_json = found[1] == "jsonl"
        self.language = self._read_language()

    def stats(self) -> BitextStats:
        """Return the number and the digest of the pairs.

        The first call reads the file, so broken lines are found before training.
        """
        return self._stats

    @cached_property
    def _stats(self) -> BitextStats:
        count, digest = 0, blake2b(digest_size=16)
        for pair in self.pairs():
            count += 1
            digest.update("\t".join(pair).encode())
        if not count:
            raise MilcoError(f"{self.name} has no pairs: remove it or download it again")
        return BitextStats(count, digest.hexdigest())

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs in file order, stripped of surrounding white space.

        Raises MilcoError with file and line number at the first line that is not a pair.
        """
        parse = self._parse_json if self._is_json else self._parse_tsv
        return (BitextPair(self.language, *pair) for _, pair in parsed_lines(self._path, parse))

    def _parse_tsv(self, line: bytes) -> tuple[str, str]:
        try:
            cells = line.decode("utf-8").split("\t")
        except UnicodeDecodeError as error:
            raise BadLineError(f"not UTF-8 (byte {error.start + 1} of the line)") from None
        first = 1 if self._ids and len(cells) == 3 else 0
        if len(cells) - first != 2:
            layout = "[id TAB] text TAB English" if self._ids else "text TAB English"
            raise BadLineError(f"{len(cells)} tab-separated column(s): expected {layout}")
        return _stripped(cells[first], f"column {first + 1}"), _stripped(cells[first + 1], f"column {first + 2}")

    def _parse_json(self, line: bytes) -> tuple[str, str]:
        fields = parse_json(line)
        found = fields.get("language", self.language)
        if found != self.language:
            raise BadLineError(f"language {found!r} in a file of {self.language!r}: write one file for each language")
        for name in ("text", "english"):
            if not isinstance(fields.get(name), str):
                raise BadLineError(f"{name!r} is {'not a string' if name in fields else 'missing'}")
        return _stripped(fields["text"], "'text'"), _stripped(fields["english"], "'english'")

    def _read_language(self) -> str:
        named = _FILE_NAME.match(self._path.name)
        if named:
            return named[1]
        if self._is_json:
            try:
                language = orjson.loads(first_line(self._path)).get("language")
            except (orjson.JSONDecodeError, AttributeError):
                language = None
            if isinstance(language, str) and _LANGUAGE.fullmatch(language):
                return language
        alternative = ", or add the language to every line ({'language': 'de', ...})" if self._is_json else ""
        raise MilcoError(f"{self._path}: no language in the file name: name it {_NAMING}{alternative}")


class HubBitext:
    """The pairs of one language of a collection, downloaded by stats() to the hub's cache.

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
        repository = COLLECTIONS[self.collection]
        return [fetch_hub_file(repository, file, repo_type=DATASET, hint=_HINT) for file in self._files]

    def stats(self) -> BitextStats:
        """Return the number of pairs, downloading the files. Raises MilcoError for a damaged file."""
        return BitextStats(sum(open_parquet(path, *_COLUMNS).metadata.num_rows for path in self.paths()))

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs in file order, stripped; pairs with an empty side are skipped."""
        for path in self.paths():
            for batch in open_parquet(path, *_COLUMNS).iter_batches(_ROWS_AT_A_TIME, columns=_COLUMNS):
                texts, englishes = (batch.column(name).to_pylist() for name in _COLUMNS)
                for text, english in zip(texts, englishes, strict=True):
                    pair = BitextPair(self.language, (text or "").strip(), (english or "").strip())
                    if pair.text and pair.english:
                        yield pair


class HubPassages(HubBitext):
    """The passages of mmarco in one language with their English originals. files: of the language, and English."""

    def stats(self) -> BitextStats:
        """Return the published number of passages, without reading gigabytes to count them."""
        self.paths()
        return BitextStats(MMARCO_PASSAGES)

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
    repository = COLLECTIONS[name]
    files = list_hub_files(repository, repo_type=DATASET, hint=_HINT)
    sources: list[BitextSource] = []
    if name == "mmarco":
        by_name = {found[1]: file for file in files if (found := _MMARCO_FILE.fullmatch(file))}
        for code, _, language in (pair.partition(":") for pair in _MMARCO_LANGUAGES.split()):
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


def _stripped(text: str, name: str) -> str:
    text = text.strip()
    if not text:
        raise BadLineError(f"{name} is empty")
    return text

"""Sentence pairs for alignment (SAP): TSV or JSONL files named LANG-en.*, and the paper's collections on the hub.

Eight collections are Parquet files with the columns english and non_english, in a folder en-LANG for each language;
their folder "all" repeats the same pairs and is not read. (The paper's counts of most are about twice the hub's, as if
"all" had been counted too.) mmarco is MS MARCO's passages, machine translated: for each language a file of id TAB
passage, which is joined with the English file; mmarco_query, its training queries. Files are downloaded to the hub's
cache, so training reads from disk: 56 GB for all of mmarco, 8 for opensubtitles, 6 for jw300, less for the others.
Parquet files are unpacked to lines, about twice their size, because their footers alone, with the place of every
thousand rows, would fill the memory.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import orjson

from milco_pyserini.corpora.data_files import find_data_files, open_parquet, parse_json
from milco_pyserini.corpora.languages import UNDETERMINED
from milco_pyserini.corpora.pair_index import PairIndex, Row, Scan, open_index
from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError, unknown_name, validate_unique
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import first_line, is_gzip, lines_of, numbered_lines, open_lines

# Repositories by the names of the paper's table, and that of the authors' code for MS MARCO's training queries.
COLLECTIONS = dict.fromkeys(("mmarco", "mmarco_query"), "unicamp-dl/mmarco") | {
    name: f"sentence-transformers/parallel-sentences-{name}"
    for name in "wikititles wikimatrix europarl opensubtitles talks tatoeba jw300 news-commentary".split()
}

_FORMAT = re.compile(r"\.(tsv|jsonl)(\.gz)?$")
# An ISO 639 code, optionally with a script or region: de, zh-tw, sr-latn, es-419; not the wmt-de of wmt-de-en.tsv.
_LANGUAGE = re.compile(r"[a-z]{2}-[a-z]{2}|[a-z]{2,3}(?:-(?:[A-Za-z]{4}|[A-Z]{2}|[0-9]{3}))?")
_FILE_NAME = re.compile(rf"({_LANGUAGE.pattern})-en\.")
_NAMING = "LANG-en.tsv or LANG-en.jsonl (optionally .gz), such as de-en.tsv.gz"
_MMARCO_FILES = {
    "mmarco": re.compile(r"data/google/collections/([a-z]+)_collection\.tsv"),
    "mmarco_query": re.compile(r"data/google/queries/train/([a-z]+)_queries\.train\.tsv"),
}
_MMARCO_LANGUAGES = "ar:arabic de:german es:spanish fr:french hi:hindi id:indonesian it:italian ja:japanese nl:dutch"
_MMARCO_LANGUAGES += " pt:portuguese ru:russian vi:vietnamese zh:chinese"
# wikititles has one folder, "data", for some hundred languages, without a language column.
_TRAIN_FILE = re.compile(r"(?:en-(?P<language>[a-z]{2,3}(?:-[a-z]+)?)|data)/train-\d+-of-(?P<count>\d+)\.parquet")
_COLUMNS = ["non_english", "english"]
_ROWS_AT_A_TIME = 1024
# Characters that would end a line or a column of unpacked pairs.
_BREAKS = re.compile(r"[\t\r\n]+")
_HINT = "Run the same command once with a network, or pass local files named LANG-en.tsv.gz."


class BitextPair(NamedTuple):
    """A text and its English translation. language: of the text, as files and collections spell it (de, zh-tw)."""

    language: str
    text: str
    english: str


class BitextSource(ABC):
    """Sentence pairs of one language in files with an index. collection: the name given to open_bitext()."""

    def __init__(self, collection: str, name: str, language: str) -> None:
        self.collection, self.name, self.language = collection, name, language

    @cached_property
    @abstractmethod
    def index(self) -> PairIndex:
        """The number and the digest of the pairs, and where they are in the files.

        The first access reads all files, unless the index is in the cache, so broken lines are found before training.
        Raises MilcoError with file and line.
        """

    @abstractmethod
    def parse(self, row: Row) -> BitextPair:
        """Return the pair of a row, stripped of surrounding white space. Raises BadLineError."""

    def rows(self, block: int) -> list[Row]:
        """Return the pairs [block x BLOCK, (block + 1) x BLOCK), as they are in the files."""
        return self.index.rows(block)

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs in file order, in constant memory."""
        return (self.parse(row) for block in range(len(self.index.offsets) - 1) for row in self.rows(block))


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


class BitextFile(BitextSource):
    """The sentence pairs of one file.

    Args:
        path: the file.
        collection: the name that the user gave for it: the file or a directory above it.
        ids: accept TSV lines with an id in a column before the pair, as in FLORES.

    Raises:
        MilcoError: neither the file's name nor its first line has the language.
    """

    def __init__(self, path: Path, collection: str, ids: bool = False) -> None:
        ending = _FORMAT.search(path.name)
        if not ending:
            raise MilcoError(f"{path} is not bitext: its name must be {_NAMING}")
        self._path, self._ids, self._is_json = path, ids, ending[1] == "jsonl"
        super().__init__(collection, str(path), self._read_language())

    @cached_property
    def index(self) -> PairIndex:
        return open_index(self.name, [self._path], f"ids {self._ids}", is_gzip(self._path), self._scan)

    def parse(self, row: Row) -> BitextPair:
        (line,) = row
        return BitextPair(self.language, *(self._parse_json(line) if self._is_json else self._parse_tsv(line)))

    def _scan(self) -> Scan:
        with open_lines(self._path) as handle:
            for number, line in lines_of(handle, self.name):
                try:
                    self.parse((line,))
                except BadLineError as error:
                    raise MilcoError(f"{self._path}:{number}: {error}") from None
                yield line, (handle.tell(),)

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
        language = fields.get("language", self.language)
        if language != self.language:
            raise BadLineError(
                f"language {language!r} in a file of {self.language!r}: write one file for each language"
            )
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


class HubBitext(BitextSource):
    """The pairs of one language of a collection, downloaded for the index to the hub's cache.

    Args:
        collection: name in COLLECTIONS.
        language: code.
        files: paths in the collection's repository.
    """

    def __init__(self, collection: str, language: str, files: list[str]) -> None:
        super().__init__(collection, f"{collection} ({language})", language)
        self._files = files

    def paths(self) -> list[Path]:
        """Return the files in the hub's cache. Raises Unreachable if one cannot be downloaded."""
        repository = COLLECTIONS[self.collection]
        return [fetch_hub_file(repository, file, repo_type=DATASET, hint=_HINT) for file in self._files]

    @cached_property
    def index(self) -> PairIndex:
        paths = self.paths()
        return open_index(self.name, paths, "parquet", True, lambda: self._scan(paths))

    def parse(self, row: Row) -> BitextPair:
        text, _, english = row[0].decode().partition("\t")
        return BitextPair(self.language, text, english)

    def _scan(self, paths: list[Path]) -> Scan:
        for path in paths:
            for batch in open_parquet(path, *_COLUMNS).iter_batches(_ROWS_AT_A_TIME, columns=_COLUMNS):
                columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for row in zip(*columns, strict=True):
                    text, english = (_BREAKS.sub(" ", side or "").strip() for side in row)
                    yield (f"{text}\t{english}".encode(), ()) if text and english else None


class HubPassages(HubBitext):
    """The passages of mmarco in one language with their English originals. files: of the language, and English."""

    @cached_property
    def index(self) -> PairIndex:
        path, english = self.paths()
        return open_index(self.name, [path, english], "passages", False, lambda: self._scan([path, english]))

    def rows(self, block: int) -> list[Row]:
        """Return the lines of a block whose passages are not empty."""
        return [row for row in super().rows(block) if all(map(_passage, row))]

    def parse(self, row: Row) -> BitextPair:
        return BitextPair(self.language, *map(_passage, row))

    def _scan(self, paths: list[Path]) -> Scan:
        path, english_path = paths
        with open_lines(path) as handle, open_lines(english_path) as english_handle:
            both = zip(lines_of(handle, str(path)), lines_of(english_handle, str(english_path)), strict=False)
            for (number, line), (_, english_line) in both:
                docid, english_docid = (side.partition(b"\t")[0] for side in (line, english_line))
                if docid != english_docid:
                    raise MilcoError(
                        f"{path}:{number}: passage {docid.decode('utf-8', 'replace')} where English has "
                        f"{english_docid.decode('utf-8', 'replace')}",
                        "Remove both files from the hub's cache to download them again.",
                    )
                is_pair = _passage(line) and _passage(english_line)
                yield (line, (handle.tell(), english_handle.tell())) if is_pair else None


class HubQueries(HubBitext):
    """MS MARCO's training queries in one language with their English originals. files: of the language, and English."""

    def _scan(self, paths: list[Path]) -> Scan:
        texts, english_texts = (
            {line.partition(b"\t")[0]: _BREAKS.sub(" ", _passage(line)) for _, line in numbered_lines(path)}
            for path in paths
        )
        for docid, text in texts.items():
            english = english_texts.get(docid, "")
            yield (f"{text}\t{english}".encode(), ()) if text and english else None


def hub_sources(name: str) -> list[BitextSource]:
    """Return a source for each language of a collection, sorted by code.

    Lists the files of the hub (without a network, of its cache) and downloads none. Raises Unreachable if neither has
    the collection.
    """
    repository = COLLECTIONS[name]
    files = list_hub_files(repository, repo_type=DATASET, hint=_HINT)
    sources: list[BitextSource] = []
    if name in _MMARCO_FILES:
        source_class = HubPassages if name == "mmarco" else HubQueries
        by_name = {match[1]: file for file in files if (match := _MMARCO_FILES[name].fullmatch(file))}
        for code, _, language in (pair.partition(":") for pair in _MMARCO_LANGUAGES.split()):
            if language in by_name and "english" in by_name:
                sources.append(source_class(name, code, [by_name[language], by_name["english"]]))
    else:
        by_language: dict[str, list[str]] = {}
        counts: dict[str, int] = {}
        for file in sorted(files):
            if match := _TRAIN_FILE.fullmatch(file):
                language = match["language"] or UNDETERMINED
                by_language.setdefault(language, []).append(file)
                counts[language] = int(match["count"])
        for language, parts in sorted(by_language.items()):
            if len(parts) != counts[language]:
                message = f"bitext {name}: {len(parts)} of {counts[language]} files of {language} are cached"
                raise MilcoError(message, _HINT)
            sources.append(HubBitext(name, language, parts))
    if not sources:
        fix = _HINT
        raise MilcoError(f"bitext {name}: neither {repository} on the hub nor its cached copy has files of pairs", fix)
    return sources


def _passage(line: bytes) -> str:
    """Return the passage after the id of a line of mmarco."""
    return line.decode("utf-8", "replace").partition("\t")[2].strip()


def _stripped(text: str, name: str) -> str:
    text = text.strip()
    if not text:
        raise BadLineError(f"{name} is empty")
    return text

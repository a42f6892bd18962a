"""The paper's bitext collections, read from small files in the layout of the hub's cache."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from milco_pyserini.corpora.bitext import COLLECTIONS, open_bitext
from milco_pyserini.errors import MilcoError

SENTENCES = [("Hallo!", "Hi."), ("Grüß Gott!", "Good day."), (" ", "Nothing."), (None, "Nothing."), ("Ja.", "Yes.")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(cache: Path, name: str) -> Path:
    """The snapshot directory of a collection in the cache."""
    repository = cache / f"datasets--{COLLECTIONS[name].replace('/', '--')}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True, exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text("a" * 40)
    return snapshot


def write_parquet(path: Path, pairs: list, columns: tuple[str, str] = ("non_english", "english")) -> Path:
    """A file of pairs as the hub has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sides = [pa.array(side, pa.string()) for side in zip(*pairs, strict=True)]
    parquet.write_table(pa.table(sides, names=list(columns)), path)
    return path


def write_passages(snapshot: Path, language: str, *lines: str) -> None:
    """A collection of mmarco."""
    path = snapshot / f"data/google/collections/{language}_collection.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_a_collection_is_the_training_split_of_its_languages(cache: Path) -> None:
    """Language folders are read file by file; "all", dev splits and pairs with an empty side are skipped."""
    snapshot = cached(cache, "talks")
    write_parquet(snapshot / "en-de/train-00000-of-00002.parquet", SENTENCES)
    write_parquet(snapshot / "en-de/train-00001-of-00002.parquet", [("Nein.", "No.")])
    write_parquet(snapshot / "en-de/dev-00000-of-00001.parquet", [("Dev.", "Dev.")])
    write_parquet(snapshot / "en-zh-tw/train-00000-of-00001.parquet", [("是", "Yes.")])
    write_parquet(snapshot / "all/train-00000-of-00001.parquet", SENTENCES)
    german, chinese = open_bitext(["talks"])
    assert (german.name, german.collection, german.language, german.index.pairs) == ("talks (de)", "talks", "de", 4)
    assert list(german.pairs()) == [
        ("de", "Hallo!", "Hi."),
        ("de", "Grüß Gott!", "Good day."),
        ("de", "Ja.", "Yes."),
        ("de", "Nein.", "No."),
    ]
    assert list(chinese.pairs()) == [("zh-tw", "是", "Yes.")]
    assert [source.language for source in open_bitext(["talks"], ["zh-tw"])] == ["zh-tw"]
    with pytest.raises(MilcoError, match="unknown language 'fr': valid are de, zh-tw"):
        open_bitext(["talks"], ["fr"])


def test_wikititles_have_an_undetermined_language(cache: Path) -> None:
    """Its languages are mixed in one folder."""
    write_parquet(cached(cache, "wikititles") / "data/train-00000-of-00001.parquet", [("Wien", "Vienna")])
    (source,) = open_bitext(["wikititles"])
    assert list(source.pairs()) == [("und", "Wien", "Vienna")]


def test_mmarco_passages_are_joined_by_id(cache: Path) -> None:
    """Lines with the same id are a pair; different ids are an error with file and line."""
    snapshot = cached(cache, "mmarco")
    write_passages(snapshot, "english", "0\tA dog.", "1\tA cat.", "2\tA cow.")
    write_passages(snapshot, "german", "0\tEin Hund.", "1\t", "2\tEine Kuh.")
    write_passages(snapshot, "dutch", "0\tEen hond.", "2\tEen koe.")
    german, dutch = open_bitext(["mmarco"])
    assert (german.name, german.index.pairs, german.index.skipped) == ("mmarco (de)", 2, 1)
    assert list(german.pairs()) == [("de", "Ein Hund.", "A dog."), ("de", "Eine Kuh.", "A cow.")]
    with pytest.raises(MilcoError, match=r"dutch_collection\.tsv:2: passage 2 where English has 1. Remove both"):
        list(dutch.pairs())


def test_queries_of_mmarco_are_joined_by_id(cache: Path) -> None:
    """In the order of the language; a query without an English one is skipped and counted."""
    for language, lines in (("english", "7\twho?\n5\twhere?\n"), ("german", "5\two?\n9\twann?\n7\twer?\n")):
        path = cached(cache, "mmarco_query") / f"data/google/queries/train/{language}_queries.train.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines, encoding="utf-8")
    (german,) = open_bitext(["mmarco_query"])
    assert list(german.pairs()) == [("de", "wo?", "where?"), ("de", "wer?", "who?")]
    assert (german.index.pairs, german.index.skipped) == (2, 1)


def test_a_listed_file_that_is_not_cached_is_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's list decides on the languages; files come from the cache, or else from the hub."""
    here = write_parquet(cached(cache, "europarl") / "en-de/train-00000-of-00001.parquet", [("Ja.", "Yes.")])
    elsewhere = write_parquet(cache / "elsewhere.parquet", [("Oui.", "Yes.")])
    files = [f"en-{language}/train-00000-of-00001.parquet" for language in ("de", "fr")]
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda self, repository, **_: [*files, "README.md"])
    german, french = open_bitext(["europarl"])
    assert list(german.pairs()) == [("de", "Ja.", "Yes.")]
    with pytest.raises(MilcoError, match=r"en-fr/train-0.*europarl is not in the local cache and the hub"):
        _ = french.index
    fetched: list[str] = []

    def download(repository: str, file: str, local_files_only: bool = False, **_: object) -> str:
        if file.startswith("en-de"):
            return str(here)
        if local_files_only:
            raise FileNotFoundError(file)
        fetched.append(f"{repository} {file}")
        return str(elsewhere)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert (german.index.pairs, french.index.pairs) == (1, 1)
    assert fetched == [f"sentence-transformers/parallel-sentences-europarl {files[1]}"]


def test_an_incomplete_cache_is_refused(cache: Path) -> None:
    """A missing or truncated file, other columns, no files of pairs; offline, the error names what to pass."""
    with pytest.raises(MilcoError, match=r"parallel-sentences-talks is not in the local cache .*LANG-en\.tsv\.gz"):
        open_bitext(["talks"])
    snapshot = cached(cache, "jw300")
    with pytest.raises(MilcoError, match="nor its cached copy has files of pairs"):
        open_bitext(["jw300"])
    path = write_parquet(snapshot / "en-de/train-00000-of-00002.parquet", SENTENCES)
    with pytest.raises(MilcoError, match="bitext jw300: 1 of 2 files of de are cached"):
        open_bitext(["jw300"])
    path = path.rename(path.with_name("train-00000-of-00001.parquet"))
    (source,) = open_bitext(["jw300"])
    write_parquet(path, SENTENCES, ("translation", "english"))
    with pytest.raises(MilcoError, match="has no column 'non_english': its columns are translation, english"):
        _ = source.index
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(MilcoError, match="is not a complete Parquet file"):
        _ = source.index

"""The contract of an index in shards: it is searched, explained, served and verified as one index."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from built import DOCUMENTS, FILTERS, INDEXES, SHARDED_INDEXES, SHARDS, STORED_INDEXES, Built, queries_for
from msgspec import structs

from milco_pyserini.cli.index import main as index_command
from milco_pyserini.cli.search import main as search
from milco_pyserini.cli.verify import main as verify
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, open_index
from milco_pyserini.index.shards import shard_name
from milco_pyserini.index.weights import TermImpacts
from milco_pyserini.integrations.pyserini.encoders import vectors_of
from milco_pyserini.io.records import ShardRecord

EXACT = [kind for kind in INDEXES if kind.values[0] in ("exact", "lucene", "qdrant")]


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("threads", [1, 2])
def test_hits_are_those_of_one_index(built: Built, kind: str, threads: int) -> None:
    """Docids, scores to the bit, ties and totals, for every k."""
    one, sharded = (open_index(built.path(name)).searcher() for name in (kind, kind + SHARDS))
    assert sharded.num_documents == one.num_documents
    for k in (1, 7, 10 * DOCUMENTS):
        expected = one.search(queries_for(kind, 20), k)
        for hits, wanted in zip(sharded.search(queries_for(kind, 20), k, threads=threads), expected, strict=True):
            assert hits.docids == wanted.docids
            assert hits.scores.dtype == wanted.scores.dtype
            np.testing.assert_array_equal(hits.scores, wanted.scores)
            assert hits.total == wanted.total


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_stored_documents_and_filters_are_those_of_one_index(built: Built, kind: str) -> None:
    """For every filter, with counts; documents of all shards are found."""
    one, sharded = (open_index(built.path(name)) for name in (kind, kind + SHARDS))
    assert sharded.manifest.fields == one.manifest.fields
    first, second = one.searcher(), sharded.searcher()
    for filters in FILTERS:
        for k in (1, 7, DOCUMENTS):
            expected = first.search(queries_for(kind), k, filters=filters)
            for hits, wanted in zip(second.search(queries_for(kind), k, filters=filters), expected, strict=True):
                assert (hits.docids, hits.scores.tolist()) == (wanted.docids, wanted.scores.tolist())
                assert hits.total == wanted.total
    docids = first.search(queries_for(kind, 1), DOCUMENTS)[0].docids
    assert second.documents([*docids, "nowhere"]) == first.documents(docids)
    with pytest.raises(MilcoError, match="did you mean 'lang'"):
        second.search(queries_for(kind), 5, filters={"lng": ["de"]})


def test_approximate_scores_are_those_of_one_index(built: Built) -> None:
    """Seismic may find other documents; of those that both find, scores differ in the last digits of sums at most."""
    pytest.importorskip("seismic")
    one, sharded = (open_index(built.path(name)).searcher() for name in ("seismic", "seismic" + SHARDS))
    for hits, wanted in zip(*(each.search(queries_for("seismic"), 20) for each in (sharded, one)), strict=True):
        expected = dict(zip(wanted.docids, wanted.scores.tolist(), strict=True))
        found = dict(zip(hits.docids, hits.scores.tolist(), strict=True))
        common = expected.keys() & found.keys()
        assert common and {docid: found[docid] for docid in common} == pytest.approx(
            {docid: expected[docid] for docid in common}
        )


def test_the_generation_is_that_of_all_shards(tmp_path: Path, built: Built) -> None:
    """It changes if one shard is built again."""
    shutil.copytree(built.path("lucene" + SHARDS), tmp_path / "index")
    before = open_index(tmp_path / "index")
    assert before.generation == open_index(built.path("lucene" + SHARDS)).generation
    # Lucene gives each segment a random id.
    Index.build(built.documents("lucene"), tmp_path / "index", shard_id=1, shard_num=2, overwrite=True)
    assert open_index(tmp_path / "index").generation != before.generation


def test_shards_copied_over_an_index_are_refused(tmp_path: Path, built: Built) -> None:
    """The index does not know the older of the two."""
    path = shutil.copytree(built.path("exact"), tmp_path / "index")
    shutil.copytree(built.path("exact" + SHARDS), path, dirs_exist_ok=True)
    with pytest.raises(MilcoError, match="shard-00000-of-00002"):
        open_index(path)
    with pytest.raises(MilcoError, match="shards of another one"):
        Index.build(built.documents("exact"), path, "exact", overwrite=True)


@pytest.mark.parametrize("kind", SHARDED_INDEXES)
def test_the_manifest_is_that_of_one_index(built: Built, kind: str) -> None:
    """Counts are sums; the vectors are those of the complete store."""
    one, sharded = (open_index(built.path(name)).manifest for name in (kind.removesuffix(SHARDS), kind))
    assert structs.replace(sharded, files=None) == structs.replace(one, files=None, recall=None)


@pytest.mark.parametrize("kind", EXACT)
def test_the_numbers_of_an_explanation_are_those_of_one_index(built: Built, kind: str) -> None:
    """Every document of a ranking has its own, in the same order."""
    queries = queries_for(kind, 3)
    opened = [open_index(built.path(name)) for name in (kind, kind + SHARDS)]
    one, sharded = (TermImpacts(index.searcher(), index) for index in opened)
    assert (sharded.scale, sharded.unit, sharded.is_readable) == (one.scale, one.unit, True)
    for query, hits in zip(queries, opened[0].searcher().search(queries, 20), strict=True):
        terms = list(query)
        assert sharded.query(query) == one.query(query)
        for docid in hits.docids:
            assert list((sharded.document(docid, terms) or {}).items()) == list(
                (one.document(docid, terms) or {}).items()
            )
    assert sharded.document("nowhere", list(queries[0])) is None


def test_an_incomplete_index_names_its_missing_shards(
    built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Searching and verifying refuse it; the command that builds the last shard reports that it is complete."""
    store = str(built.path("parquet"))
    command = ["--vectors", store, "--engine", "exact", "--output", str(tmp_path / "index"), "--shard-num", "2"]
    assert index_command([*command, "--shard-id", "1"]) == 0
    assert f"{tmp_path / 'index'} still lacks 1 of 2 shards (number 0)" in capsys.readouterr().err
    with pytest.raises(MilcoError, match=r"\(number 0\)"):
        open_index(tmp_path / "index")
    assert verify([str(tmp_path / "index")]) == 2
    assert "lacks 1 of 2 shards (number 0)" in capsys.readouterr().err
    assert index_command([*command, "--shard-id", "0"]) == 0
    assert f"{tmp_path / 'index'} has all of its 2 shards" in capsys.readouterr().err
    assert verify([str(tmp_path / "index")]) == 0
    assert capsys.readouterr().out.count("all checksums match") == 2
    shard = open_index(tmp_path / "index" / shard_name(1, 2))
    assert (shard.manifest.shard, shard.manifest.documents) == (ShardRecord(id=1, num=2), 30)
    run = ["--topics", str(built.path("jsonl")), "--output", str(tmp_path / "run.txt")]
    assert search(["--index", str(tmp_path / "index"), *run]) == 0
    # A shard whose job was killed at its very end is built again by nobody.
    built_first = (tmp_path / "index" / shard_name(0, 2) / "manifest.json").stat().st_mtime_ns
    capsys.readouterr()
    assert index_command([*command, "--shard-id", "0"]) == 0
    assert "shard-00000-of-00002 is up to date\n" in capsys.readouterr().err
    assert (tmp_path / "index" / shard_name(0, 2) / "manifest.json").stat().st_mtime_ns == built_first
    # A shard is replaced on request, and an index without shards replaces all.
    assert index_command(command[:-2]) == index_command([*command, "--shard-id", "0", "--prune", "top-k:3"]) == 2
    assert index_command([*command, "--shard-id", "0", "--overwrite"]) == 0
    assert index_command([*command[:-2], "--overwrite"]) == 0
    assert not open_index(tmp_path / "index").shards


def test_files_next_to_shards_are_not_lost(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--overwrite names what is not part of the index, as it does in an index without shards."""
    whole = ["--vectors", str(built.path("parquet")), "--engine", "exact", "--overwrite", "--output"]
    path = tmp_path / "project"
    assert index_command([*whole, str(path), "--shard-num", "2"]) == 0
    for file in ("thesis.tex", "shard-00000-of-00002/notes/mine.txt"):
        (path / file).parent.mkdir(exist_ok=True)
        (path / file).write_text("mine")
        assert index_command([*whole, str(path)]) == 2
        assert f"{path} holds {file}, which are not part of the index there" in capsys.readouterr().err
        (path / file).unlink()
    assert index_command([*whole, str(path)]) == 0
    (path / "thesis.tex").write_text("mine")
    assert index_command([*whole, str(path)]) == 2
    assert (path / "thesis.tex").read_text() == "mine"


def test_shards_of_different_indexes_are_refused(built: Built, tmp_path: Path) -> None:
    """Before a shard is built, and when shards are opened that were copied together."""
    index = shutil.copytree(built.path("exact" + SHARDS), tmp_path / "index")
    shutil.rmtree(index / shard_name(0, 2))
    for options, field in (({"engine": "seismic"}, "engine"), ({"prune": ["top-k:3"]}, "vectors")):
        with pytest.raises(MilcoError, match=f"their {field} differ"):
            Index.build(built.path("parquet"), index, **{"engine": "exact", **options}, shard_num=2)  # type: ignore[arg-type]
    with pytest.raises(MilcoError, match="shard-00001-of-00002"):
        Index.build(built.path("parquet"), index, "exact", shard_num=3)
    other = Index.build(built.path("parquet"), tmp_path / "other", "exact", prune=["top-k:3"], shard_num=2)
    shutil.copytree(other.path, index / other.path.name)
    with pytest.raises(MilcoError, match=r"vectors differ: .*prune or views"):
        open_index(index)
    (index / other.path.name).rename(index / shard_name(0, 3))
    with pytest.raises(MilcoError, match="holds shards of 2 and of 3"):
        open_index(index)


def test_what_cannot_have_shards_is_refused(built: Built, tmp_path: Path) -> None:
    """Before anything is written: more shards than parts, external vectors, numbers out of range; updates."""
    corpus = built.path("jsonl") / "parts" / "part-00000.jsonl"
    plain = {"plain": True, "scale": 1.0, "shard_num": 2}
    for source, engine, options, message in (
        (built.path("jsonl"), "exact", {"shard_num": 3}, "shard_num=3.* 2 parts"),
        (corpus, "exact", plain, "shard_num and plain exclude each other"),
        (built.path("jsonl"), "exact", {"shard_id": 2, "shard_num": 2}, "shard_id=2"),
        (built.path("jsonl"), "exact", {"shard_id": 1}, "shard_id=1"),
    ):
        with pytest.raises(MilcoError, match=message):
            Index.build(source, tmp_path / "index", engine, **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MilcoError, match=r"notes\.txt"):
        Index.build(built.path("jsonl"), tmp_path, "exact", shard_num=2)
    for path in (built.path("lucene" + SHARDS), built.path("lucene" + SHARDS) / shard_name(0, 2)):
        with pytest.raises(MilcoError, match="shards cannot be updated"):
            open_index(path).update(delete=["d1"])
    with pytest.raises(MilcoError, match="has shards"):
        vectors_of(str(built.path("lucene" + SHARDS)))

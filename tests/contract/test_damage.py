"""milco verify finds every flipped bit; opening an index or a store finds what is cheap to compare."""

import importlib.util
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from built import DOCUMENTS, EVERY, INDEXES, NEEDS, STORES, Built, answers
from synthetic_stores import renew_checksums, synthetic_queries, vocabulary

from milco_pyserini.cli.verify import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index, find_engine, open_index
from milco_pyserini.io.files import checksum_bytes
from milco_pyserini.io.manifest import DamagedError, read_checked, write_checked
from milco_pyserini.model.checkpoint import loading
from milco_pyserini.request import BuildRequest
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

# Bytes of a file of an index this small that is read when the index is opened.
LARGEST_READ = 2**17


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name != "write.lock")


def flipped(file: Path, bits: int) -> Iterator[int]:
    """Flip one bit of a file at a time, at reproducible random positions, and restore it at the end."""
    content = file.read_bytes()
    for _ in range(bits):
        bit = random.Random(f"{file.name} {_}").randrange(8 * len(content))
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        yield bit
    file.write_bytes(content)


@pytest.mark.parametrize("kind", EVERY)
def test_verify_finds_every_flipped_bit(built: Built, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In every file, including the manifest. An intact directory has one summary line."""
    path = built.path(kind)
    # Qdrant's files have up to 32 MB, nearly all of it holes.
    step, bits = (5, 1) if kind.startswith("qdrant") else (1, 2)
    for file in files(path)[::step]:
        for bit in flipped(file, bits):
            assert main([str(path)]) == 2, (file, bit)
            assert f"{file}: " in capsys.readouterr().out, (file, bit)
    assert main([str(path)]) == 0
    size = sum(file.stat().st_size for file in files(path))
    expected = f"Verified {path}: {len(files(path))} files, {size:,} bytes, all checksums match\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("kind", EVERY)
def test_opening_finds_missing_files_and_other_sizes(built: Built, kind: str, tmp_path: Path) -> None:
    """Opening reads the smallest files, and so finds every flipped bit in them: in all files, but for Qdrant."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    for file in files(path):
        content = file.read_bytes()
        if file.name == "recall.json":
            continue
        for damage in (content[:-1], b"", content + b"12345678", None):
            file.unlink() if damage is None else file.write_bytes(damage)
            with pytest.raises(MilcoError):
                answers(kind, path)
        file.write_bytes(content)
        if len(content) > LARGEST_READ:
            continue
        for bit in flipped(file, 2):
            with pytest.raises(MilcoError):
                pytest.fail(f"{file} {bit} {answers(kind, path)}")


@pytest.mark.parametrize("kind", ["exact", "jsonl"])
def test_verify_reports_every_file(built: Built, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, a truncated and an unexpected file: one line each. The other paths are verified too."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    missing, cut = [file for file in files(path) if file.name != "manifest.json"][:2]
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    (path / "more").write_bytes(b"")
    assert main([str(path), str(built.path(kind))]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{missing}: it is missing"
    assert out.splitlines()[1].startswith(f"{cut}: {cut.stat().st_size:,} bytes, not ")
    assert out.splitlines()[2] == f"{path / 'more'}: not in the manifest, remove it"
    assert out.splitlines()[3].startswith(f"Verified {built.path(kind)}: ")
    assert f"error: damaged: {path}. " in err


def test_names_in_a_manifest_cannot_act_on_a_terminal(
    built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """milco verify and the error line show control characters as escapes."""
    path = shutil.copytree(built.path("jsonl"), tmp_path / "\u202ed")
    manifest = read_checked(path / "manifest.json")
    manifest["parts"][0]["file"] = "a\x1b[31m"
    write_checked(path / "manifest.json", manifest)
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert "\\u202ed/a\\x1b[31m: it is missing\n" in captured.out
    assert "error: damaged: " in captured.err
    assert not {"\x1b", "\u202e"} & {*captured.out, *captured.err}


@pytest.mark.parametrize("name", ["/etc/passwd", "../jsonl/manifest.json", "a\0b", "", "fifo", "zero"])
def test_a_manifest_cannot_name_anything_but_files_of_its_directory(
    built: Built, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is opened by milco verify or by readers: one would never end, others are not theirs to read."""
    path = shutil.copytree(built.path("jsonl"), tmp_path / "store")
    os.mkfifo(path / "fifo")
    (path / "zero").symlink_to("/dev/zero")
    manifest = read_checked(path / "manifest.json")
    manifest["parts"][0] |= {"file": name, "bytes": 0}
    write_checked(path / "manifest.json", manifest)
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert "it is not a regular file" in captured.out or "the relative path of a file in this directory" in captured.out
    with pytest.raises(MilcoError, match=r"it is not a regular file|the relative path of a file in this directory"):
        open_store(path).load()


@pytest.mark.parametrize("damage", ["dropped", "counted"])
def test_a_store_without_some_of_its_documents_is_damaged(
    built: Built, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With right checksums: a part that the manifest does not list, or another number of documents."""
    path = shutil.copytree(built.path("jsonl"), tmp_path / "store")
    manifest = read_checked(path / "manifest.json")
    if damage == "dropped":
        manifest["parts"].pop()
    else:
        manifest["documents"] += 3
    write_checked(path / "manifest.json", manifest)
    listed = sum(part["documents"] for part in manifest["parts"])
    reason = f"{manifest['documents']} documents, the parts that it lists have {listed}"
    assert main([str(path)]) == 2
    assert f"manifest.json: {reason}\n" in capsys.readouterr().out
    with pytest.raises(DamagedError, match=reason):
        open_store(path)


RECORDS = [
    *({"id": "d", "vector": {"w1": impact}} for impact in ("7", None, [1], 0, -5, 1.5)),
    {"id": 5, "vector": {"w1": 1}},
    {"id": "d", "vector": [1]},
    {"id": "d"},
    [],
    "x",
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_part_that_milco_encode_never_writes_is_one_error(built: Built, record: object, tmp_path: Path) -> None:
    """With right checksums, however it is read: the error has the line."""
    path = shutil.copytree(built.path("jsonl"), tmp_path / "store")
    with_content(path, 0, json.dumps(record).encode() + b"\n")
    for engine in ("exact", "qdrant"):
        if importlib.util.find_spec(NEEDS.get(engine, "numpy")):
            with pytest.raises(MilcoError, match=r"part-00000\.jsonl:1: expected "):
                build_index(open_store(path), find_engine(engine), tmp_path / "index")
    with pytest.raises(MilcoError, match=r"part-00000\.jsonl:1: expected "):
        open_store(path).load()


def with_content(store: Path, number: int, content: bytes) -> None:
    """Replace a part of a store, with its checksum."""
    manifest = read_checked(store / "manifest.json")
    part = manifest["parts"][number]
    (store / part["file"]).write_bytes(content)
    part |= {"bytes": len(content), "checksum": checksum_bytes(content)}
    write_checked(store / "manifest.json", manifest)


@pytest.mark.parametrize("weight", [np.inf, np.nan, -1.0])
def test_an_exact_index_with_impossible_weights_is_damaged(built: Built, weight: float, tmp_path: Path) -> None:
    """Found by whatever reads them all, such as an explanation; a search refuses a score that is not finite."""
    path = shutil.copytree(built.path("exact"), tmp_path / "exact")
    np.save(path / "table.npy", np.full_like(np.load(path / "table.npy"), weight))
    renew_checksums(path)
    searcher = open_index(path).searcher()
    with pytest.raises(DamagedError, match=r"weights.npy: "):
        searcher.matrix()
    if weight == np.inf:
        with pytest.raises(MilcoError, match="score inf"):
            searcher.search(synthetic_queries(1), 10)


def test_verify_refuses_what_it_cannot_check(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before reading anything: a missing directory, a training run, an incomplete store."""
    write_checked(tmp_path / "run" / "manifest.json", {"command": "train"})
    write_checked(tmp_path / "begun" / "plan.json", {"texts": 3})
    for name, message in (
        ("nothing", "is neither a vector store nor an index"),
        ("run", "is neither a vector store nor an index"),
        ("begun", "is not complete: rerun its milco encode command"),
    ):
        assert main([str(built.path("exact")), str(tmp_path / name)]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert f"error: {tmp_path / name} {message}" in err


@pytest.mark.parametrize("kind", EVERY)
def test_a_manifest_without_a_checksum_is_refused(
    built: Built, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """milco verify gives the same reason."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    manifest = read_checked(path / "manifest.json")
    (path / "manifest.json").write_text(json.dumps({key: manifest[key] for key in manifest if key != "files"}))
    with pytest.raises(DamagedError, match="checksum is missing"):
        answers(kind, path)
    assert main([str(path)]) == 2
    assert "checksum is missing" in capsys.readouterr().out


def test_an_index_remains_verified_when_its_settings_are_saved(built: Built, tmp_path: Path) -> None:
    """As milco index tune does, with other recall queries too."""
    pytest.importorskip("seismic")
    index = open_index(shutil.copytree(built.path("seismic"), tmp_path / "seismic"))
    index.save_settings({"query_cut": 32}, {"recall@10": 0.5})
    assert main([str(index.path)]) == 0
    assert open_index(index.path).manifest.search_settings["query_cut"] == 32


VALUES = (None, "x", 1.5, -1, [], {}, True, [1], {"a": 1}, 10**15)


# One for each table of fields.
@pytest.mark.parametrize("kind", [*STORES, *(kind for kind in INDEXES if kind.values[0] == "seismic")])
def test_a_manifest_with_wrong_types_is_one_error(built: Built, kind: str, tmp_path: Path) -> None:
    """Whatever the value of a field, and without the field: opening succeeds or raises a MilcoError of one line."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    manifest = read_checked(path / "manifest.json")
    changed = [{**manifest, key: value} for key in manifest for value in VALUES]
    changed += [{name: value for name, value in manifest.items() if name != key} for key in manifest]
    for about in ("vectors", "texts"):
        nested = manifest[about] if isinstance(manifest.get(about), dict) else {}
        changed += [{**manifest, about: {**nested, key: value}} for key in nested for value in VALUES]
    for one in changed:
        write_checked(path / "manifest.json", one)
        try:
            answers(kind, path)
        except MilcoError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("row", [DOCUMENTS, 2**16 - 1])
def test_an_exact_index_with_wrong_rows_never_reads_out_of_bounds(built: Built, row: int, tmp_path: Path) -> None:
    """With right checksums: in a search, and in the SciPy matrix."""
    path = shutil.copytree(built.path("exact"), tmp_path / "exact")
    rows = np.load(path / "rows.npy")
    np.save(path / "rows.npy", np.full_like(rows, row))
    renew_checksums(path)
    searcher = open_index(path).searcher()
    for use in (lambda: searcher.search(synthetic_queries(1), 10), lambda: searcher.matrix()):
        with pytest.raises(DamagedError, match=r"is damaged \(rows.npy: "):
            use()


def shortened(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def falling(array: np.ndarray) -> np.ndarray:
    return array[::-1].copy()


@pytest.mark.parametrize("file", ["indptr.npy", "chunks.indptr.npy", "ids.ends.npy", "terms.ends.npy"])
@pytest.mark.parametrize("change", [shortened, falling, np.float64])
def test_an_exact_index_with_inconsistent_files_is_damaged(
    built: Built, file: str, change: Callable[[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    """Arrays of another length, order or type, and docids that are not UTF-8."""
    path = shutil.copytree(built.path("exact"), tmp_path / "exact")
    np.save(path / file, change(np.load(path / file)))
    renew_checksums(path)
    with pytest.raises(DamagedError, match=rf"\({file.split('.')[0]}\.[^\n]*Run milco verify"):
        answers("exact", path)


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_opens_without_the_parser_of_literals(
    built: Built, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python 3.11 threads disturb each other in it, and an intact index seemed damaged."""
    expected = answers(kind, built.path(kind))

    def fails(_: str) -> None:
        raise SystemError("AST constructor recursion depth mismatch (before=72, after=53)")

    monkeypatch.setattr("ast.literal_eval", fails)
    assert answers(kind, built.path(kind)) == expected


def test_an_error_of_python_is_not_damage(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SystemError is raised as it is: nobody builds an intact index again because of it."""

    def fails(*_: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch (before=72, after=53)")

    monkeypatch.setattr("milco_pyserini.index.exact.PostingLists", fails)
    with pytest.raises(SystemError, match="mismatch"):
        open_index(built.path("exact")).searcher()
    with pytest.raises(SystemError, match="mismatch"), loading(built.path("exact")):
        fails()


def test_ids_that_are_not_utf8_are_damaged(built: Built, tmp_path: Path) -> None:
    """It is found when the id is read."""
    path = shutil.copytree(built.path("exact"), tmp_path / "exact")
    (path / "ids.utf8").write_bytes(b"\xff" * (path / "ids.utf8").stat().st_size)
    renew_checksums(path)
    with pytest.raises(DamagedError, match=r"\(ids.utf8: "):
        answers("exact", path)


def test_columns_beyond_the_vocabulary_are_refused(built: Built, tmp_path: Path) -> None:
    """With right checksums, too."""
    path = shutil.copytree(built.path("parquet"), tmp_path / "parquet")
    short = vocabulary().to_json() | {"english": ["only"], "source": []}
    (path / "vocabulary.json").write_text(json.dumps(short))
    with pytest.raises(DamagedError, match=r"is damaged \(vocabulary.json: "):
        answers("parquet", path)
    renew_checksums(path)
    with pytest.raises(MilcoError, match="beyond the 1 terms"):
        answers("parquet", path)


def test_an_index_can_be_replaced_while_it_is_opened(built: Built, tmp_path: Path) -> None:
    """By one of the same vectors: the new one is searched. By another: an error that does not report damage."""
    store = open_store(built.path("jsonl"))
    before = build_index(store, find_engine("exact"), tmp_path / "index")
    pruned = PrunedStore(store, [PruningRule.parse("top-k:3")])
    build_index(pruned, find_engine("exact"), tmp_path / "index", BuildRequest(overwrite=True))
    with pytest.raises(MilcoError, match="index was replaced"):
        before.searcher()
    after = read_checked(tmp_path / "index" / "manifest.json")
    write_checked(tmp_path / "index" / "manifest.json", before.manifest.to_json() | {"files": after["files"]})
    assert len(before.searcher().search(synthetic_queries(1), 5)[0]) == 5

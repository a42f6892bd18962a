"""What every interrupted command promises: the same command completes the work, with the same bytes."""

from pathlib import Path
from typing import Any

import pytest
from golden_set import GOLDEN, TEXTS

from milco_pyserini.cli.main import main
from milco_pyserini.encode.writer import StoreWriter

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
FORMATS = {"jsonl": [], "parquet": ["--format", "parquet"], "dense": ["--dense"]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven documents."""
    path = tmp_path_factory.mktemp("corpus") / "docs.tsv"
    texts = [" ".join(text.split()) or "blank" for text in TEXTS][:11]
    path.write_text("".join(f"d{number}\t{text}\n" for number, text in enumerate(texts)), encoding="utf-8")
    return path


def encode(corpus: Path, output: Path, *options: str) -> int:
    """Run milco encode with parts of three documents."""
    command = ["encode", "--corpus", str(corpus), "--encoder", CHECKPOINT, "--output", str(output), "--part-size", "3"]
    return main([*command, *options])


def content(store: Path) -> dict[str, bytes]:
    """Return the files of a store."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", FORMATS)
def test_an_interrupted_store_is_completed_with_the_same_bytes(
    corpus: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the second part, then the same command."""
    assert encode(corpus, tmp_path / "once", *FORMATS[kind]) == 0
    published = iter(range(99))
    write = StoreWriter.write

    def interrupted(self: StoreWriter, *arguments: Any, **named: Any) -> object:
        if next(published) == 2:
            raise KeyboardInterrupt
        return write(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "write", interrupted)
        assert encode(corpus, tmp_path / "twice", *FORMATS[kind]) == 130
    assert not (tmp_path / "twice" / "manifest.json").exists()
    assert encode(corpus, tmp_path / "twice", *FORMATS[kind]) == 0
    assert content(tmp_path / "twice") == content(tmp_path / "once")


@pytest.mark.parametrize("kind", FORMATS)
def test_shards_write_the_store_of_one_process(corpus: Path, kind: str, tmp_path: Path) -> None:
    """In any order; the last one completes it."""
    assert encode(corpus, tmp_path / "one", *FORMATS[kind]) == 0
    for shard in ("2", "0", "1"):
        options = ["--shard-id", shard, "--shard-num", "3", *FORMATS[kind]]
        assert encode(corpus, tmp_path / "three", *options) == 0
    assert content(tmp_path / "three") == content(tmp_path / "one")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_part_is_encoded_again(corpus: Path, kind: str, tmp_path: Path) -> None:
    """The same command on a complete store restores a part that was truncated."""
    assert encode(corpus, tmp_path / "store", *FORMATS[kind]) == 0
    before = content(tmp_path / "store")
    part = next((tmp_path / "store" / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:-7])
    assert encode(corpus, tmp_path / "store", *FORMATS[kind]) == 0
    assert content(tmp_path / "store") == before


def test_a_changed_option_is_refused_by_name(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store is never continued with other options."""
    assert encode(corpus, tmp_path / "store", "--max-length", "16") == 0
    capsys.readouterr()
    assert encode(corpus, tmp_path / "store", "--max-length", "17") == 2
    error = capsys.readouterr().err
    assert "16" in error and "17" in error and "--overwrite" in error

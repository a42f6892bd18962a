"""The contract of every interrupted command: the same command completes the work, with the same bytes."""

import json
import shutil
from pathlib import Path

import pytest
from golden_set import GOLDEN, TEXTS

from milco_pyserini.cli.main import main
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import PARTIAL, checksum_bytes
from milco_pyserini.io.manifest import read_checked, write_checked
from milco_pyserini.model.configuration import VIEW_VARIANTS

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
FORMATS = {"jsonl": [], "parquet": ["--format", "parquet"], "passages": ["--split-passages", "--max-length", "8"]}
DOCUMENTS = [" ".join(text.split()) or "blank" for text in TEXTS][:11]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven documents."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "docs.tsv", DOCUMENTS)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents in another order with other ids; one of them is missing, one is there twice, three are new."""
    texts = ["a new text", *DOCUMENTS[:2:-1], "changed", "changed", *DOCUMENTS[:2], DOCUMENTS[0]]
    return write_corpus(tmp_path_factory.mktemp("changed") / "docs.tsv", texts)


@pytest.fixture(scope="module")
def old(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the eleven documents in each format."""
    root = tmp_path_factory.mktemp("old")
    for kind, options in FORMATS.items():
        assert encode(corpus, root / kind, *options) == 0
    return root


def write_corpus(path: Path, texts: list[str]) -> Path:
    """Write documents d0, d1, ..."""
    path.write_text("".join(f"d{number}\t{text}\n" for number, text in enumerate(texts)), encoding="utf-8")
    return path


def encode(corpus: Path, output: Path, *options: str) -> int:
    """Run milco encode, in float32 and with parts of three documents unless options state others."""
    command = ["encode", "--corpus", str(corpus), "--output", str(output)]
    for default in (["--encoder", CHECKPOINT], ["--part-size", "3"], ["--dtype", "float32"]):
        command += default if default[0] not in options else []
    return main([*command, *options])


def interrupt(patched: pytest.MonkeyPatch, after: int) -> None:
    """Press Ctrl-C when so many parts have got their names."""
    published = iter(range(99))
    replace = Path.replace

    def interrupted(file: Path, target: Path) -> Path:
        if Path(target).parent.name == "parts" and next(published) == after:
            raise KeyboardInterrupt
        return replace(file, target)

    patched.setattr(Path, "replace", interrupted)


def content(store: Path) -> dict[str, bytes]:
    """Return the files of a store."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", FORMATS)
def test_an_interrupted_store_is_completed_with_the_same_bytes(
    corpus: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C after the second part, which leaves no partial file, then the same command."""
    assert encode(corpus, tmp_path / "once", *FORMATS[kind]) == 0
    with monkeypatch.context() as patched:
        interrupt(patched, after=2)
        assert encode(corpus, tmp_path / "twice", *FORMATS[kind]) == 130
    line = "milco encode: interrupted; complete parts are kept; rerun the same command to resume"
    assert capsys.readouterr().err.splitlines()[-1] == line
    left = [path.name for path in (tmp_path / "twice").rglob("*")]
    assert "manifest.json" not in left and not [name for name in left if PARTIAL in name]
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
def test_a_store_that_reuses_vectors_has_the_bytes_of_one_that_does_not(
    changed: Path, old: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the ids and the order of the documents; also after Ctrl-C and in shards."""
    options = [*FORMATS[kind], "--part-size", "4", "--reuse", str(old / kind)]
    assert encode(changed, tmp_path / "without", *options[:-2]) == 0
    with monkeypatch.context() as patched:
        interrupt(patched, after=1)
        assert encode(changed, tmp_path / "reused", *options) == 130
    for shard in ("1", "0"):
        assert encode(changed, tmp_path / "reused", *options, "--shard-id", shard, "--shard-num", "2") == 0
    assert content(tmp_path / "reused") == content(tmp_path / "without")


@pytest.mark.parametrize("kind", FORMATS)
def test_only_texts_that_the_old_store_lacks_are_encoded(
    corpus: Path, changed: Path, old: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary counts both."""
    options = [*FORMATS[kind], "--reuse", str(old / kind)]
    assert encode(changed, tmp_path / "changed", *options) == 0
    err = capsys.readouterr().err
    assert f"Encoding those of 14 documents that {old / kind} (11 texts) lacks on " in err
    assert f"Encoded 3 documents into {tmp_path / 'changed'} in " in err
    assert f", reused 11 of {old / kind}\n" in err
    assert encode(corpus, tmp_path / "same", *options) == 0
    assert "Encoded 0 documents into " in capsys.readouterr().err
    assert content(tmp_path / "same") == content(old / kind)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--max-length", "9"], "--max-length 512"),
        (["--prune", "top-k:3"], "--prune top-k:3"),
        (["--views", "pivot"], "--views pivot source"),
        (["--format", "parquet"], "--format jsonl"),
        (["--dtype", "bfloat16"], "--dtype float32"),
        (["--encoder", "mini"], f"--encoder {CHECKPOINT}"),
        (["--reuse", "nowhere"], "nowhere"),
    ],
)
def test_vectors_of_other_options_are_not_reused(
    changed: Path, old: Path, options: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the option, and nothing is written."""
    command = {"--reuse": [str(old / "jsonl")], options[0]: options[1:]}
    assert encode(changed, tmp_path / "new", *(word for name, value in command.items() for word in (name, *value))) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("milco encode: error: ") and expected in error
    assert not (tmp_path / "new").exists()


def test_a_store_to_reuse_must_be_intact(
    changed: Path, old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed part, changed digests, and the output itself are refused."""
    store = shutil.copytree(old / "jsonl", tmp_path / "old")
    assert encode(changed, store, "--reuse", str(store), "--overwrite") == 2
    assert f"--output {store}: --reuse reads it" in capsys.readouterr().err
    for file in ("digests/part-00001.npy", "parts/part-00001.jsonl"):
        before = (store / file).read_bytes()
        (store / file).write_bytes(before.replace(before[-9:-4], b"xxxxx"))
        assert encode(changed, tmp_path / "new", "--reuse", str(store)) == 2
        assert f"{store} is damaged ({file}: checksum mismatch" in capsys.readouterr().err
        (store / file).write_bytes(before)
    assert encode(changed, tmp_path / "new", "--reuse", str(store)) == 0


def test_a_store_of_version_0_3_is_complete_and_reused(
    corpus: Path, changed: Path, old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest has no variants of the views, and it holds no documents: a new one gets them without the model."""
    store = tmp_path / "old"
    assert encode(corpus, store, *FORMATS["jsonl"], "--no-store") == 0
    manifest = read_checked(store / "manifest.json")
    for name in (*VIEW_VARIANTS, "store_documents"):
        manifest.pop(name, None)
    write_checked(store / "manifest.json", manifest)
    before = content(store)
    assert encode(corpus, store, *FORMATS["jsonl"], "--no-store") == 0
    assert content(store) == before
    capsys.readouterr()
    assert encode(corpus, store, *FORMATS["jsonl"]) == 2
    assert f"was begun without the texts and fields of its documents. Choose another --output with --reuse {store}" in (
        capsys.readouterr().err
    )
    assert encode(corpus, tmp_path / "texts", *FORMATS["jsonl"], "--reuse", str(store)) == 0
    assert "Encoded 0 documents" in capsys.readouterr().err
    assert content(tmp_path / "texts") == content(old / "jsonl")
    assert main(["verify", str(store)]) == 0
    capsys.readouterr()
    assert encode(changed, tmp_path / "new", *FORMATS["jsonl"], "--reuse", str(store)) == 0
    assert "Encoded 3 documents into " in capsys.readouterr().err


def test_another_variant_in_the_configuration_of_a_checkpoint_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hash of the weights is the same, and the vectors are not."""
    checkpoint, store = tmp_path / "checkpoint", tmp_path / "store"
    MilcoEncoder.from_pretrained(CHECKPOINT).save_pretrained(checkpoint)
    options = ["--encoder", str(checkpoint)]
    assert encode(corpus, store, *options) == 0
    before = content(store)
    config = checkpoint / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pivot_top_k": 2}))
    assert encode(corpus, store, *options) == 2
    wanted = "without pivot_top_k, not with pivot_top_k 2"
    assert f"{store} was begun {wanted}. Choose another --output" in capsys.readouterr().err
    assert encode(corpus, tmp_path / "new", *options, "--reuse", str(store)) == 2
    assert f"encoded {wanted}. Encode with the same config.json" in capsys.readouterr().err
    assert content(store) == before


def test_other_limits_of_queries_are_refused_for_topics_only(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents do not depend on them; a store of topics of an earlier version does not state them."""
    checkpoint, topics, documents = (tmp_path / name for name in ("checkpoint", "topics", "documents"))
    MilcoEncoder.from_pretrained(CHECKPOINT).save_pretrained(checkpoint)
    options = ["--encoder", str(checkpoint), "--dtype", "float32"]
    of_topics = ["encode", "--topics", str(corpus), "--output", str(topics), *options]
    assert encode(corpus, documents, *options) == main(of_topics) == 0
    stored = read_checked(topics / "manifest.json")
    assert stored["query_pivot_top_k"] is None and "query_pivot_top_k" not in read_checked(documents / "manifest.json")
    config = checkpoint / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"query_pivot_top_k": 2}))
    assert encode(corpus, documents, *options) == 0
    capsys.readouterr()
    assert main(of_topics) == 2
    assert "begun without query_pivot_top_k, not with query_pivot_top_k 2. Choose" in capsys.readouterr().err
    del stored["query_pivot_top_k"], stored["query_source_top_k"]
    write_checked(topics / "manifest.json", stored)
    assert main(of_topics) == 0


@pytest.mark.parametrize("content", [b"", b"not JSON\n", b'{"id":"d0","contents":""}\n'])
def test_vectors_of_a_store_with_other_content_are_not_reused(
    changed: Path, old: Path, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With right checksums, too: one error that names the part."""
    store = Path(shutil.copytree(old / "jsonl", tmp_path / "old"))
    manifest = read_checked(store / "manifest.json")
    part = manifest["parts"][0]
    (store / part["file"]).write_bytes(content)
    part |= {"bytes": len(content), "checksum": checksum_bytes(content)}
    write_checked(store / "manifest.json", manifest)
    assert encode(changed, tmp_path / "new", "--reuse", str(store)) == 2
    assert f"error: {store} is damaged ({part['file']}: ValueError: " in capsys.readouterr().err

"""milco encode: complete stores, bad input, resuming, shards."""

import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch

from milco_pyserini.cli.encode import main
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.encode.writer import StoreWriter
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.sparse import Vocabulary, open_store
from milco_pyserini.sparse.store import VOCABULARY

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
WORDS = ["old harbour", "小さな市場", "первая книга", "Brücke", "خريطة", "train", "river bridge", "marché"]
KILLS = 20


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    lines = [
        {"id": f"d{number}", "contents": " ".join(WORDS[: number % 8 + 1] * (number % 3 + 1))} for number in range(50)
    ]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


def arguments(corpus: Path, output: Path, *more: str) -> list[str]:
    """The options of a small store; those in more replace them."""
    options = {"--corpus": str(corpus), "--output": str(output), "--encoder": str(CHECKPOINT)}
    options |= {"--dtype": "float32", "--device": "cpu", "--part-size": "10"}
    return [word for option, value in options.items() if option not in more for word in (option, value)] + [*more]


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a store by its name."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def refused(argv: list[str], capsys: pytest.CaptureFixture, *expected: str) -> None:
    """The command ends with exit code 2 and one line on stderr that has the expected parts."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if "error:" in line]
    assert captured.err.endswith("\n") and len(lines) == 1
    for text in expected:
        assert text in lines[0]


def test_a_store_has_every_document_and_describes_itself(corpus: Path, tmp_path: Path) -> None:
    """JSONL parts of --part-size documents, in order, and a manifest with correct counts."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    store = open_store(tmp_path / "v")
    vectors = dict(store.vectors())
    assert list(vectors) == [f"d{number}" for number in range(50)]
    assert [part.documents for part in store.manifest.parts] == [10] * 5
    pivot = sum(not term.startswith("m_") for vector in vectors.values() for term in vector)
    assert store.manifest.terms_per_document["pivot"] == round(pivot / 50, 3) > 0
    assert store.manifest.field_rule == "contents, or else title + ' ' + text"
    listed = {file.file for part in store.manifest.parts for file in part.files}
    assert contents(tmp_path / "v").keys() == listed | {MANIFEST, VOCABULARY}


def test_a_document_is_one_record_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Id, title, contents and fields next to its vector; --no-store leaves them out, and changes no vector."""
    corpus = tmp_path / "docs.jsonl"
    document = {"id": "d1", "title": "Nile", "text": "A river.", "lang": "en", "meta": {"year": 2024}}
    corpus.write_bytes(orjson.dumps(document))
    for name, *more in (("v",), ("bare", "--no-store"), ("floats", "--format", "parquet")):
        assert main(arguments(corpus, tmp_path / name, *more)) == 0
    record, bare = (orjson.loads((tmp_path / name / "parts/part-00000.jsonl").read_bytes()) for name in ("v", "bare"))
    fields = {"title": "Nile", "contents": "Nile A river.", "lang": "en", "meta.year": 2024}
    assert record == {"id": "d1", **fields, "vector": bare["vector"]}
    assert bare == {"id": "d1", "contents": "", "vector": record["vector"]}
    assert [orjson.loads(one) for one in open_store(tmp_path / "floats").documents()] == [{"id": "d1", **fields}]
    about = open_store(tmp_path / "v").manifest
    assert (about.kinds, about.languages) == ({"lang": "string", "meta.year": "integer"}, ["en"])
    refused(arguments(corpus, tmp_path / "v", "--no-store"), capsys, "with store_documents, not without")


def test_changed_fields_are_refused_or_written_with_reused_vectors(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The texts are the same: nothing is encoded. A name that no store can hold is refused before the encoder opens."""
    corpus = tmp_path / "docs.jsonl"
    for year in (2024, 2025):
        corpus.write_bytes(orjson.dumps({"id": "d1", "text": "A river.", "year": year}))
        if year == 2024:
            assert main(arguments(corpus, tmp_path / "v")) == 0
    refused(arguments(corpus, tmp_path / "v"), capsys, f"titles or fields of {corpus} have changed", "with --reuse")
    assert main(arguments(corpus, tmp_path / "new", "--reuse", str(tmp_path / "v"))) == 0
    assert "Encoded 0 documents" in capsys.readouterr().err
    assert [orjson.loads(one)["year"] for one in open_store(tmp_path / "new").documents()] == [2025]
    corpus.write_bytes(orjson.dumps({"id": "d1", "text": "A river.", "a\nb": 1}))
    refused(arguments(corpus, tmp_path / "bad"), capsys, "a store cannot hold a field named")
    assert not (tmp_path / "bad").exists()


def test_the_start_line_shows_what_is_encoded(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """How many texts, and how the first begins: topics given as a corpus are seen at once."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    assert f"{corpus}: 50 documents, the first is 'd0': 'old harbour'\n" in capsys.readouterr().err
    (tmp_path / "one.tsv").write_text("q1\t" + "wer  erfand das Telefon " * 20 + "\n")
    assert main(arguments(tmp_path / "one.tsv", tmp_path / "w")) == 0
    stderr = capsys.readouterr().err
    assert "one.tsv: 1 document, the first is 'q1': 'wer erfand das Telefon wer erfand" in stderr
    assert len(stderr.splitlines()[0]) < len(str(tmp_path)) + 150


def test_a_complete_store_is_not_encoded_again(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The same command again reports so and succeeds; one with other options is refused with the difference."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    before = contents(tmp_path / "v")
    assert main(arguments(corpus, tmp_path / "v")) == 0
    assert "is up to date" in capsys.readouterr().err
    refused(arguments(corpus, tmp_path / "v", "--max-length", "9"), capsys, "--max-length 512, not 9", "--overwrite")
    assert contents(tmp_path / "v") == before
    assert main(arguments(corpus, tmp_path / "v", "--max-length", "9", "--overwrite")) == 0
    assert open_store(tmp_path / "v").manifest.max_length == 9


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_first(path: Path) -> None:
    """Change the first byte of a file, so that it is not JSON."""
    path.write_bytes(b"?" + path.read_bytes()[1:])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a part gone": lambda store: (store / "parts/part-00001.jsonl").unlink(),
    "a part emptied": lambda store: (store / "parts/part-00004.jsonl").write_bytes(b""),
    "digests gone": lambda store: (store / "digests/part-00001.npy").unlink(),
    "digests changed": lambda store: flip(store / "digests/part-00004.npy"),
    "two parts changed": lambda store: (flip(store / "parts/part-00000.jsonl"), flip(store / "parts/part-00003.jsonl")),
    "vocabulary gone": lambda store: (store / "vocabulary.json").unlink(),
    "vocabulary changed": lambda store: flip(store / "vocabulary.json"),
    "all parts gone": lambda store: shutil.rmtree(store / "parts"),
}


def test_the_same_command_repairs_a_damaged_store(corpus: Path, tmp_path: Path) -> None:
    """Whatever is missing or changed is encoded again, and nothing else; the store is the undamaged one."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    intact = contents(tmp_path / "v")
    kept = (tmp_path / "v/parts/part-00002.jsonl").stat().st_mtime_ns
    for name, damage in DAMAGE.items():
        damage(tmp_path / "v")
        assert main(arguments(corpus, tmp_path / "v")) == 0
        assert contents(tmp_path / "v") == intact, name
        again = (tmp_path / "v/parts/part-00002.jsonl").stat().st_mtime_ns
        assert (again == kept) is (name != "all parts gone"), name


@pytest.mark.parametrize("damage", [Path.unlink, flip_first])
def test_what_is_damaged_in_an_incomplete_store_is_made_again(
    corpus: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A missing or changed file of any kind; the plan, without which nothing is known, is refused."""
    assert main(arguments(corpus, tmp_path / "one")) == 0
    assert main(arguments(corpus, tmp_path / "v", "--shard-id", "0", "--shard-num", "5")) == 0
    refused = []
    for file in contents(tmp_path / "v"):
        store = shutil.copytree(tmp_path / "v", tmp_path / file.replace("/", "."))
        damage(store / file)
        if main(arguments(corpus, store)) != 0:
            refused.append(file)
            assert main(arguments(corpus, store, "--overwrite")) == 0
        assert contents(store) == contents(tmp_path / "one"), file
    assert len(refused) <= 1


def test_overwrite_replaces_a_complete_store(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Also where the plan is the same, and where the manifest, without which nothing vouches for a part, is lost."""
    again = arguments(corpus, tmp_path / "v", "--overwrite")
    assert main(arguments(corpus, tmp_path / "v")) == 0
    intact, made = contents(tmp_path / "v"), (tmp_path / "v/parts/part-00000.jsonl").stat().st_mtime_ns
    assert main(again) == 0
    assert contents(tmp_path / "v") == intact
    assert (tmp_path / "v/parts/part-00000.jsonl").stat().st_mtime_ns > made
    for damage in (Path.unlink, flip_first, flip):
        damage(tmp_path / "v/manifest.json")
        capsys.readouterr()
        refused(again[:-1], capsys, "has no manifest of what it was made from", "start over with --overwrite")
        assert main(again) == 0
        assert contents(tmp_path / "v") == intact


def test_overwrite_replaces_a_store_behind_a_link(corpus: Path, tmp_path: Path) -> None:
    """And keeps the link."""
    (tmp_path / "link").symlink_to(tmp_path / "store")
    (tmp_path / "store").mkdir()
    for options in ((), ("--overwrite",)):
        assert main(arguments(corpus, tmp_path / "link", *options)) == 0
        assert (tmp_path / "link").is_symlink() and (tmp_path / "store" / "manifest.json").is_file()


def test_a_complete_store_on_a_read_only_file_system_is_no_error(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete store does not need a writable directory."""
    assert main(arguments(corpus, tmp_path / "v")) == 0

    def refuse(path: Path, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert main(arguments(corpus, tmp_path / "v")) == 0
    assert "is up to date" in capsys.readouterr().err


def test_a_late_process_leaves_nothing_in_a_complete_store(tmp_path: Path) -> None:
    """A part that was in hand when another process finished the same store leaves no record behind."""
    plan = StoreManifest(format_version=1, kind="documents", texts=1, corpus="other", scale=1.0)
    counts = {"documents": 1, "texts": 1, "truncated": 0, "terms": {}, "empty": 0}
    with StoreWriter(tmp_path / "v", plan) as first, StoreWriter(tmp_path / "v", plan) as late:
        first.write(0, "jsonl", b"{}", **counts)
        assert first.complete(1, (), Vocabulary([], []))
        finished = contents(tmp_path / "v")
        late.write(0, "jsonl", b"{}", **counts)
        assert contents(tmp_path / "v") == finished


def change(path: Path, line: int = 7) -> None:
    """Give one document another text, and none to the others."""
    lines = path.read_bytes().splitlines()
    lines[line] = orjson.dumps({"id": f"d{line}", "contents": "train train"})
    path.write_bytes(b"".join(line + b"\n" for line in lines))


CHANGED = ["other documents: ids or texts of ", "have changed since (50 then, 50 now)", "--overwrite"]


def test_a_changed_corpus_is_refused(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Another text under the same name and number is an error, also for a second shard; --overwrite encodes it."""
    first, second = (["--shard-id", number, "--shard-num", "2"] for number in "01")
    assert main(arguments(corpus, tmp_path / "v")) == main(arguments(corpus, tmp_path / "s", *first)) == 0
    before = contents(tmp_path / "v"), contents(tmp_path / "s")
    change(corpus)
    capsys.readouterr()
    refused(arguments(corpus, tmp_path / "v"), capsys, *CHANGED)
    refused(arguments(corpus, tmp_path / "s", *second), capsys, *CHANGED)
    assert (contents(tmp_path / "v"), contents(tmp_path / "s")) == before
    assert main(arguments(corpus, tmp_path / "v", "--overwrite")) == 0
    assert main(arguments(corpus, tmp_path / "new")) == 0
    assert contents(tmp_path / "v") == contents(tmp_path / "new")


def test_parts_of_a_corpus_that_changes_meanwhile_are_removed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it changes between validation and encoding, no part of it remains; the next run completes the store."""
    assert main(arguments(corpus, tmp_path / "v", "--shard-id", "0", "--shard-num", "2")) == 0
    before, original = contents(tmp_path / "v"), corpus.read_bytes()
    load = EncodePlan.load_encoder
    monkeypatch.setattr(EncodePlan, "load_encoder", lambda *given: (change(corpus, 15), load(*given))[1])
    capsys.readouterr()
    second = arguments(corpus, tmp_path / "v", "--shard-id", "1", "--shard-num", "2")
    refused(second, capsys, "corpus.jsonl changed while it was being encoded", "rerun the same command")
    assert contents(tmp_path / "v") == before
    monkeypatch.undo()
    corpus.write_bytes(original)
    assert main(second) == 0
    assert main(arguments(corpus, tmp_path / "one")) == 0
    assert contents(tmp_path / "v") == contents(tmp_path / "one")


def test_partial_files_of_killed_processes_are_removed(corpus: Path, tmp_path: Path) -> None:
    """A fragment of a part that another process wrote in the end: gone with the next command at the latest."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    before = contents(tmp_path / "v")
    for name in ("parts/.part-00003.jsonl.partial-x", ".vocabulary.json.partial-y"):
        (tmp_path / "v" / name).write_text("half")
        os.utime(tmp_path / "v" / name, (0, 0))
    assert main(arguments(corpus, tmp_path / "v")) == 0
    assert contents(tmp_path / "v") == before


def test_overwrite_is_refused_while_another_process_writes(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """While a process writes the store, another with --overwrite is refused; once it has ended, it is not."""
    plan = StoreManifest(format_version=1, kind="documents", texts=50, corpus="other", scale=1.0)
    anew = arguments(corpus, tmp_path / "v", "--overwrite")
    with StoreWriter(tmp_path / "v", plan):
        before = contents(tmp_path / "v")
        refused(anew, capsys, "another process is writing", "Stop it, or wait for it, before --overwrite")
        assert contents(tmp_path / "v") == before
    assert main(anew) == 0


FORKED = """
# Encodes argument 1 into directory 2 by processes that load no network: uninterrupted, killed at as many file events as
# argument 3 states and run again, and two at once.
import os, signal, sys
from pathlib import Path

import torch, transformers
from worker_encoders import WordLengthPlan
from milco_pyserini.encode.corpus import encode_corpus

corpus, root, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "tempfile.mkstemp")

def encode(place):
    encode_corpus(corpus, place, WordLengthPlan(encoder="mini", part_size=5), device="cpu")

def fork(place, moment=None):
    child = os.fork()
    if child:
        return child
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in EVENTS and str(place) in str(arguments[0]):
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    encode(place)
    (root / "events").write_text(str(count))
    os._exit(0)

def end(child):
    return os.waitpid(child, 0)[1]

encode(root / "whole")
assert end(fork(root / "again")) == 0
events = int((root / "events").read_text())
assert events >= kills
for step in range(kills):
    moment = 1 + round(step * (events - 1) / (kills - 1))
    place = root / f"killed-{moment}"
    assert end(fork(place, moment)) == signal.SIGKILL, moment
    assert end(fork(place)) == 0, moment
assert [end(child) for child in [fork(root / "both") for _ in range(2)]] == [0, 0]
"""


@pytest.mark.slow
def test_killed_and_concurrent_processes_write_the_bytes_of_one(corpus: Path, tmp_path: Path) -> None:
    """SIGKILL at twenty file operations spread over the run and the same command again; two processes at once."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(corpus), str(tmp_path), str(KILLS)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [*sys.path]))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    whole = contents(tmp_path / "whole")
    assert "manifest.json" in whole
    stores = [*tmp_path.glob("killed-*"), tmp_path / "both", tmp_path / "again"]
    assert len(stores) == KILLS + 2
    for store in stores:
        assert contents(store) == whole, store


def test_topics_carry_their_text_for_a_plain_pyserini(tmp_path: Path) -> None:
    """Encoded topics: id, the query's text as contents, and the vector."""
    (tmp_path / "topics.tsv").write_text("q1\told harbour\nq2\t最初の本\n")
    argv = ["--topics", str(tmp_path / "topics.tsv"), "--encoder", str(CHECKPOINT), "--output", str(tmp_path / "q")]
    assert main(argv) == 0
    lines = (tmp_path / "q" / "parts" / "part-00000.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["contents"] for line in lines] == ["old harbour", "最初の本"]
    manifest = open_store(tmp_path / "q").manifest
    assert (manifest.kind, manifest.max_length) == ("topics", 64)


def test_a_corpus_and_its_topics_have_different_default_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents go to vectors/NAME, topics of the same name to vectors/NAME.topics; neither replaces the other."""
    monkeypatch.chdir(tmp_path)
    encoder = ["--encoder", str(CHECKPOINT), "--dtype", "float32"]
    assert main(["--corpus", "sample-sw", *encoder]) == 0
    assert main(["--topics", "sample-sw", *encoder]) == 0
    assert open_store(Path("vectors/sample-sw")).manifest.kind == "documents"
    assert open_store(Path("vectors/sample-sw.topics")).manifest.kind == "topics"
    capsys.readouterr()
    for kind, there, output in (("topics", "documents", "sample-sw"), ("corpus", "topics", "sample-sw.topics")):
        for more in ([], ["--overwrite"]):
            argv = [f"--{kind}", "sample-sw", "--output", f"vectors/{output}", *encoder, *more]
            assert main(argv) == 2
            stderr = capsys.readouterr().err
            assert f"vectors/{output} holds vectors of {there}, not of " in stderr
            assert "Choose another --output.\n" in stderr and "--overwrite" not in stderr


def test_long_documents_become_passages(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Every token of a long document is in one of its passages, which are counted; a short one is its only passage."""
    (tmp_path / "c.jsonl").write_bytes(
        orjson.dumps({"id": "long", "contents": "old harbour " * 40})
        + b"\n"
        + orjson.dumps({"id": "short", "contents": "train"})
        + b"\n"
    )
    assert main(arguments(tmp_path / "c.jsonl", tmp_path / "v", "--split-passages", "--max-length", "20")) == 0
    store = open_store(tmp_path / "v")
    names = [name for name, _ in store.vectors()]
    assert names[0] == "long#0" and names[-1] == "short#0" and len(names) > 4
    assert f"Split 2 documents into {len(names)} passages" in capsys.readouterr().err
    assert store.manifest.texts == 2 and store.manifest.truncated_documents == 0


def test_empty_and_overlong_texts_are_kept_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A text without terms stays a document; one over the length is cut; both are reported."""
    (tmp_path / "c.jsonl").write_text(
        '{"id": "a", "contents": " "}\n{"id": "b", "contents": "' + "train " * 50 + '"}\n'
    )
    assert main(arguments(tmp_path / "c.jsonl", tmp_path / "v", "--max-length", "16")) == 0
    store = open_store(tmp_path / "v")
    vectors = dict(store.vectors())
    assert vectors["a"] == {} and vectors["b"]
    assert (store.manifest.empty_documents, store.manifest.truncated_documents) == (1, 1)
    stderr = capsys.readouterr().err
    assert (
        "1 of 2 texts have empty vectors (kept)\n" in stderr
        and "warning: truncated 1 text to 16 tokens, the first is 'b'\n" in stderr
    )


def test_text_prints_terms_strongest_first(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """--text and standard input print the same listing, weights falling within each view."""
    argv = ["--encoder", str(CHECKPOINT), "--dtype", "float32", "--top-k", "5"]
    assert main(["--text", "old harbour", *argv]) == 0
    printed = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"old harbour"), "latin-1"))
    assert main(["--text", "-", *argv]) == 0
    assert capsys.readouterr().out == printed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "latin-1"))
    assert main(["--text", "-", *argv]) == 2
    assert "--text -: stdin is not UTF-8 (byte 4)" in capsys.readouterr().err
    pivot, source = printed.split("source view")
    for view in (pivot, source):
        weights = [float(line.split()[0]) for line in view.splitlines()[1:]]
        assert weights and len(weights) <= 5 and weights == sorted(weights, reverse=True)
    assert main(["--text", " ", *argv]) == 0
    captured = capsys.readouterr()
    assert "pivot view (English): 0 terms\n" in captured.out
    assert captured.err.endswith("The text is blank: its vector is empty\n")


def test_options_change_what_is_encoded(corpus: Path, tmp_path: Path) -> None:
    """--views, --prune, --english-prefix and --scale change the vectors accordingly."""
    assert main(arguments(corpus, tmp_path / "s", "--views", "source")) == 0
    assert all(term.startswith("m_") for _, vector in open_store(tmp_path / "s").vectors() for term in vector)
    assert main(arguments(corpus, tmp_path / "k", "--prune", "top-k:3", "--english-prefix", "e_")) == 0
    vectors = [vector for _, vector in open_store(tmp_path / "k").vectors()]
    assert {len(vector) for vector in vectors} == {3}
    assert all(term.startswith(("e_", "m_")) for vector in vectors for term in vector)
    each = ["--prune", "pivot:top-k:2", "source:top-k:1"]
    assert main(arguments(corpus, tmp_path / "each", *each)) == 0
    store = open_store(tmp_path / "each")
    assert store.manifest.pruning == "pivot:top-k:2 source:top-k:1"
    for _, vector in store.vectors():
        assert sorted(term.startswith("m_") for term in vector) == [False, False, True]
    assert main(arguments(corpus, tmp_path / "big", "--scale", "1000")) == 0
    assert main(arguments(corpus, tmp_path / "small", "--scale", "100")) == 0
    big, small = (dict(open_store(tmp_path / name).vectors())["d1"] for name in ("big", "small"))
    assert all(abs(big[term] - 10 * impact) <= 5 for term, impact in small.items())


def test_bad_input_is_one_clear_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, the value and the fix, and nothing written; cli/ has the options that are alike in all commands."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    twice, cut = tmp_path / "twice.jsonl", tmp_path / "cut.jsonl"
    twice.write_bytes(corpus.read_bytes() + b'{"id": "d3", "contents": "twice"}\n')
    cut.write_bytes(corpus.read_bytes() + b'{"id": "x", "contents": \n')
    for change, *expected in (
        (["--corpus", "absent.jsonl"], "absent.jsonl"),
        (["--corpus", str(twice)], "duplicate id 'd3'", "twice.jsonl:4", "twice.jsonl:51"),
        (["--corpus", str(cut)], "cut.jsonl:51", "JSON"),
        (["--encoder", "omai-research/absent"], "'omai-research/absent'", "mini"),
        (["--scale", "nan"], "--scale nan: must be above 0"),
        (["--shard-id", "2", "--shard-num", "2"], "--shard-id 2", "0 to 1"),
        (["--top-k", "3"], "--top-k requires --text"),
    ):
        refused(arguments(corpus, tmp_path / "v", *change), capsys, *expected)
        assert not (tmp_path / "v").exists()
    refused(arguments(corpus, tmp_path / "v", "--scale", "2e9"), capsys, "x scale 2e+09 is above 2,147,483,647")
    assert not list((tmp_path / "v").rglob("*.jsonl"))


def test_skipped_lines_are_counted_and_listed(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """--skip-bad-lines continues without them and lists them."""
    corpus.write_bytes(corpus.read_bytes() + b"{broken\n")
    assert main(arguments(corpus, tmp_path / "v", "--skip-bad-lines")) == 0
    error = capsys.readouterr().err
    assert "Skipped 1 invalid line" in error and "corpus.jsonl:51" in error
    assert len(open_store(tmp_path / "v")) == 50


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("letter.txt", "dear"),
        ("manifest.json", '{"name": "somebody\'s web page"}'),
        ("manifest.json", '{"format_version": 1, "engine": "lucene"}'),
        ("manifest.json", "broken"),
        ("plan.json", '{"corpus": "world", "format_version": 1}'),
    ],
)
def test_overwrite_removes_only_a_store(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, name: str, content: str
) -> None:
    """--overwrite is refused for a directory that is not a vector store: it may be somebody's home, or an index."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / name).write_text(content)
    refused(arguments(corpus, tmp_path / "home", "--overwrite"), capsys, "home", "never replaced. Choose another")
    assert (tmp_path / "home" / name).read_text() == content
    (tmp_path / "file").write_text("dear")
    refused(arguments(corpus, tmp_path / "file", "--overwrite"), capsys, "file", "never replaced. Choose another")
    assert (tmp_path / "file").read_text() == "dear"


def test_overwrite_removes_a_store_atomically(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Killed while --overwrite removes the old store, no half of it has the name; the next run removes the rest."""
    assert main(arguments(corpus, tmp_path / "v")) == 0
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    again = arguments(corpus, tmp_path / "v", "--max-length", "9", "--overwrite")
    assert main(again) == 130
    assert "rerun the same command to resume" in capsys.readouterr().err
    assert not (tmp_path / "v").exists()
    monkeypatch.undo()
    assert main(again) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "v"]


LIGHT = """
import sys
from milco_pyserini.cli.encode import main
for line in sys.stdin:
    code = main(line.split("\\t")[:-1])
    assert code == 2 and "torch" not in sys.modules, (code, line)
"""


def test_bad_input_is_reported_before_torch_is_loaded(corpus: Path, tmp_path: Path) -> None:
    """Errors in options, output and texts do not wait for a model to load."""
    (tmp_path / "taken").write_text("dear")
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "plan.json").write_text('{"format_version": 1, "texts": 50, "corpus": "other"}')
    changes = "--corpus absent.jsonl, --output taken, --output begun, --scale nan, --prune topk:3, --views pivots, "
    changes += "--device tpu, --dtype float16, --max-length 1, --corpus broken.jsonl"
    commands = [arguments(corpus, tmp_path / "v", *change.split()) for change in changes.split(", ")]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        input="".join("\t".join([*command, "\n"]) for command in commands),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error:") == len(commands)
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_weight_that_is_not_finite_is_never_written(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The error names the document and the encoder, in every format."""
    load = EncodePlan.load_encoder

    def damaged(*given: Any) -> Any:
        encoder = load(*given)
        network = getattr(encoder.model, "encoder", encoder.model)
        with torch.no_grad():
            next(layer for layer in network.modules() if isinstance(layer, torch.nn.LayerNorm)).bias[0] = float("nan")
        return encoder

    monkeypatch.setattr(EncodePlan, "load_encoder", damaged)
    more = ["--format", kind]
    refused(arguments(corpus, tmp_path / "v", *more), capsys, "the vector of 'd0' has the weight nan", str(CHECKPOINT))
    assert not list((tmp_path / "v").rglob("part-*"))


def test_a_full_disk_is_one_clear_line_and_complete_parts_are_kept(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends the run with exit code 2; with space again the same command finishes the same store."""
    assert main(arguments(corpus, tmp_path / "whole")) == 0
    written = 0
    true_fsync = os.fsync

    def full(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written == 9:
            raise OSError(28, "No space left on device")
        true_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    refused(arguments(corpus, tmp_path / "v"), capsys, ": No space left on device. Free some space")
    monkeypatch.setattr(os, "fsync", true_fsync)
    assert not [name for name in contents(tmp_path / "v") if ".partial-" in name]
    assert main(arguments(corpus, tmp_path / "v")) == 0
    assert contents(tmp_path / "v") == contents(tmp_path / "whole")

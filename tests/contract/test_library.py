"""The contract of the library: it is silent, and opened objects can be closed and shared."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.errors import MilcoError
from milco_pyserini.request import SearchRequest

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
MESSAGES = """
import logging, sys
from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.plan import EncodePlan

def use():
    encode_corpus("corpus.tsv", "vectors", EncodePlan(sys.argv[1], dtype="float32"), device="cpu", overwrite=True)
    Index.build("vectors", "index", "exact", overwrite=True)
    assert Searcher.open("index", device="cpu").search("river bridge", k=1).docids == ["d1"]

use()
sys.stderr.write("asked:\\n")
MilcoEncoder.from_pretrained(sys.argv[1], device="cpu").encode_document("river", show_progress=True)
sys.stderr.write("configured:\\n")
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
use()
"""


def test_messages_go_to_logging_and_progress_is_shown_on_request(tmp_path: Path) -> None:
    """Nothing on stdout and stderr unless the program configures logging, or passes show_progress."""
    (tmp_path / "corpus.tsv").write_text("d1\triver bridge\n")
    program = [sys.executable, "-c", MESSAGES, str(CHECKPOINT)]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    silent, _, rest = done.stderr.partition("asked:\n")
    asked, _, configured = rest.partition("configured:\n")
    assert (done.returncode, done.stdout, silent) == (0, "", ""), done.stderr
    assert asked.startswith("Encoded: 1/1 text, ") and asked.count("\n") == 1
    for line in ("Loading encoder ", "Encoded 1 document into vectors in ", "Indexed into index: 1/1 document, "):
        assert f"\nmilco_pyserini INFO {line}" in configured


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def index(encoder: MilcoEncoder, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Eight documents that share terms."""
    texts = [f"river bridge train {number}" for number in range(8)]
    ids = [f"d{number}" for number in range(8)]
    path = tmp_path_factory.mktemp("library") / "index"
    return Index.build(encoder.encode_document(texts), path, "exact", ids=ids, encoder=encoder)


def test_eight_threads_share_a_searcher(index: Index, encoder: MilcoEncoder) -> None:
    """Each has the hits of its own text, with the encoder loaded in one of them."""
    texts = [f"train {number}" for number in range(8)] * 4
    with Searcher.open(index.path, encoder) as searcher:
        expected = [hits.docids for hits in searcher.search_batch(texts, k=3)]
    shared = Searcher.open(index.path, str(CHECKPOINT), device="cpu", dtype="float32")
    with shared, ThreadPoolExecutor(8) as pool:
        assert [hits.docids for hits in pool.map(lambda text: shared.search(text, k=3), texts)] == expected


def test_what_is_closed_is_one_error(index: Index, encoder: MilcoEncoder) -> None:
    """A searcher and its explainer are closed; a second close has no effect."""
    with Searcher.open(index.path, encoder) as searcher:
        explainer = searcher.explainer()
        assert explainer.explain("river", ["d1"])[0].docid == "d1"
    searcher.close()
    for call in (
        lambda: searcher.search("river"),
        lambda: searcher.rank([({"river": 1.0},)], SearchRequest()),
        lambda: searcher.documents(["d1"]),
        lambda: searcher.explain("river", "d1"),
        lambda: explainer.explain("river"),
    ):
        with pytest.raises(MilcoError, match=f"{index.path} is closed: open it again"):
            call()


def test_a_searcher_that_cannot_be_opened_leaves_nothing_open(index: Index) -> None:
    """That one is given twice is seen when it is open already."""
    with pytest.raises(MilcoError, match="given twice"):
        Searcher.open([index.path, index.path], fuse="rrf")
    assert str(index.path) not in Path("/proc/self/maps").read_text()

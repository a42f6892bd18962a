"""What a program that uses the library may rely on: it is silent, and what it opens can be closed and shared."""

import subprocess
import sys
from pathlib import Path

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
MESSAGES = """
import logging, sys
from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.encode import EncodePlan, encode_corpus

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

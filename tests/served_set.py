"""A small index of documents in several scripts, encoded by a tiny checkpoint, as milco serve opens it."""

import functools
import json
import tempfile
from pathlib import Path

from golden_set import GOLDEN
from pages import EVIL

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.index import Index
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

_ROOT = tempfile.TemporaryDirectory(prefix="served-")
DOCUMENTS = [
    {"id": "evil", "title": f"Title {EVIL}", "text": f"{EVIL} ends"},
    {"id": "a/b#c?", "title": "", "text": "The river Nile flows north through Egypt."},
    {"id": "ar", "title": "نهر النيل", "text": "نهر النيل أطول أنهار القارة الأفريقية."},
    {"id": "ja", "title": "ナイル川", "text": "ナイル川はアフリカ大陸を流れる世界で最も長い川である。"},
    {"id": "long", "title": "Long", "text": f"{'water flows. ' * 60}The river ends here. {'stones lie. ' * 60}"},
    *({"id": f"d{number:02}", "title": "", "text": f"Document {number} of a river."} for number in range(25)),
]
for _document in DOCUMENTS:
    _document["lang"] = _document["id"] if _document["id"] in ("ar", "ja") else "en"


@functools.cache
def index() -> Index:
    """Encode and index the documents with the engine exact."""
    root = Path(_ROOT.name)
    corpus = root / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS), encoding="utf-8")
    (root / "queries.tsv").write_text(f"1\t{EVIL}\n2\t誰ですか\n", encoding="utf-8")
    options = ["--encoder", str(GOLDEN / "ckpt_distillation"), *"--device cpu --dtype float32 --part-size 20".split()]
    assert encode(["--corpus", str(corpus), "--output", str(root / "vectors"), *options]) == 0
    return Index.build(root / "vectors", root / "docs.exact", "exact", store_documents=True)


@functools.cache
def searcher() -> Searcher:
    """Open the index."""
    return Searcher.open(index().path, device="cpu", dtype="float32")


def service(**options: int) -> SearchService:
    """Open a service over the index."""
    return SearchService(IndexSnapshot(searcher()), **options)

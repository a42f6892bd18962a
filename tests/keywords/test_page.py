"""The commands of docs/keywords.md for a cluster, which are not run with those of the other pages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opensearch_cluster import Cluster
from test_docs import DOCS, blocks, steps

pytestmark = pytest.mark.cluster


def test_the_requests_to_opensearch_find_the_note(opensearch: Cluster, tmp_path: Path) -> None:
    """As the page has them: the notes and their keywords, the requests, and the hit of a question."""
    page = DOCS / "keywords.md"
    files = {step.file: step.content for step in steps(page) if step.file}
    (tmp_path / "bulk.py").write_text(files["bulk.py"], encoding="utf-8")
    made = [step.command for step in steps(page) if "notes.jsonl" in step.command]
    (block,) = (text for language, text in blocks(page) if language == "sh")
    script = "\n".join(["set -e", *made, block.replace("http://localhost:9200", opensearch.urls[0])])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        timeout=300,
        check=True,
    )
    # Answers of curl follow each other without a line end.
    answer = json.loads('{"took"' + ended.stdout.decode().rpartition('{"took"')[2])
    assert [hit["_source"]["contents"] for hit in answer["hits"]["hits"]] == ["Die Brücke wird bis Oktober repariert."]

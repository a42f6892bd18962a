"""MIRACL: monolingual retrieval from Wikipedia in 18 languages, through ir_datasets.

Pyserini's spelling is accepted, too: miracl-v1.0-ar-dev, miracl-ar-testA.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQrels, DatasetQueries

LANGUAGES = "ar bn de en es fa fi fr hi id ja ko ru sw te th yo zh".split()
SPLITS = {
    "train": [code for code in LANGUAGES if code not in ("de", "yo")],
    "dev": LANGUAGES,
    "test-a": "ar bn en fi id ja ko ru sw te th".split(),
    "test-b": LANGUAGES,
}


def _corpora() -> dict[str, BenchmarkCorpus]:
    corpora: dict[str, BenchmarkCorpus] = {}
    for code in LANGUAGES:
        corpus = BenchmarkCorpus(DatasetDocuments(f"miracl/{code}"), code)
        corpora |= {f"miracl-{code}": corpus, f"miracl-v1.0-{code}": corpus}
    return corpora


def _topics() -> dict[str, BenchmarkTopics]:
    topics: dict[str, BenchmarkTopics] = {}
    for split, codes in SPLITS.items():
        for code in codes:
            identity = f"miracl/{code}/{split}"
            one = BenchmarkTopics(DatasetQueries(identity), DatasetQrels(identity))
            topics |= {f"miracl-{code}-{split}": one, f"miracl-v1.0-{code}-{split}": one}
            if split.startswith("test"):
                topics[f"miracl-{code}-test{split[-1].upper()}"] = one
    return topics


MIRACL = Benchmark(
    name="miracl",
    title="MIRACL",
    corpus_names="miracl-LANG",
    topics_names="miracl-LANG-SPLIT",
    languages=tuple(LANGUAGES),
    license="Apache-2.0",
    citation="Zhang et al. MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages. TACL 2023",
    source="ir_datasets miracl",
    field_rule="title + ' ' + text",
    corpora=_corpora(),
    topics=_topics(),
)

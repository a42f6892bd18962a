"""BEIR: zero-shot retrieval in English, through ir_datasets."""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQrels, DatasetQueries

# Datasets and the splits of their topics.
_SPLITS = {
    "arguana": ("test",),
    "climate-fever": ("test",),
    "dbpedia-entity": ("dev", "test"),
    "fever": ("train", "dev", "test"),
    "fiqa": ("train", "dev", "test"),
    "hotpotqa": ("train", "dev", "test"),
    "msmarco": ("train", "dev", "test"),
    "nfcorpus": ("train", "dev", "test"),
    "nq": ("test",),
    "quora": ("dev", "test"),
    "scidocs": ("test",),
    "scifact": ("train", "test"),
    "trec-covid": ("test",),
    "webis-touche2020": ("test",),
}
_CQADUPSTACK = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
_SPLITS |= {f"cqadupstack/{forum}": ("test",) for forum in _CQADUPSTACK}
# Name -> id of ir_datasets, which omits a split that is the only one.
_TOPICS = {
    f"beir-{name.replace('/', '-')}-{split}": f"beir/{name}/{split}" if len(splits) > 1 else f"beir/{name}"
    for name, splits in _SPLITS.items()
    for split in splits
}

BEIR = Benchmark(
    name="beir",
    title="BEIR",
    corpus_names="beir-NAME",
    topics_names="beir-NAME-SPLIT",
    languages=("en",),
    license="each dataset its own; MS MARCO, NQ and SciFact are non-commercial (according to MTEB)",
    citation="Thakur et al. BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models. "
    "NeurIPS Datasets and Benchmarks 2021",
    source="ir_datasets beir",
    field_rule="title + ' ' + text",
    corpora={
        f"beir-{name.replace('/', '-')}": BenchmarkCorpus(DatasetDocuments(f"beir/{name}"), "en") for name in _SPLITS
    },
    topics={
        name: BenchmarkTopics(DatasetQueries(identity), DatasetQrels(identity)) for name, identity in _TOPICS.items()
    },
)

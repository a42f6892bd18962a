"""Mr. TyDi: monolingual retrieval from Wikipedia in eleven languages, through ir_datasets."""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.ir_datasets import DatasetDocuments, DatasetQrels, DatasetQueries

LANGUAGES = "ar bn en fi id ja ko ru sw te th".split()
# Name -> id of ir_datasets.
_TOPICS = {
    f"mrtydi-{code}-{split}": f"mr-tydi/{code}/{split}" for code in LANGUAGES for split in ("train", "dev", "test")
}

MRTYDI = Benchmark(
    name="mrtydi",
    title="Mr. TyDi",
    corpus_names="mrtydi-LANG",
    topics_names="mrtydi-LANG-SPLIT",
    languages=tuple(LANGUAGES),
    license="Apache-2.0",
    citation="Zhang et al. Mr. TyDi: A Multi-lingual Benchmark for Dense Retrieval. MRL 2021",
    source="ir_datasets mr-tydi",
    field_rule="default_text of ir_datasets",
    corpora={f"mrtydi-{code}": BenchmarkCorpus(DatasetDocuments(f"mr-tydi/{code}"), code) for code in LANGUAGES},
    topics={
        name: BenchmarkTopics(DatasetQueries(identity), DatasetQrels(identity)) for name, identity in _TOPICS.items()
    },
)

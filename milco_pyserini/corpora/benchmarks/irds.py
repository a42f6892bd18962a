"""Benchmarks that ir_datasets reads: MIRACL, Mr. TyDi and BEIR."""

from milco_pyserini.corpora.benchmark import Benchmark, dataset_corpus, dataset_topics

MIRACL_LANGUAGES = "ar bn de en es fa fi fr hi id ja ko ru sw te th yo zh".split()
MIRACL_SPLITS = {
    "train": [code for code in MIRACL_LANGUAGES if code not in ("de", "yo")],
    "dev": MIRACL_LANGUAGES,
    "test-a": "ar bn en fi id ja ko ru sw te th".split(),
    "test-b": MIRACL_LANGUAGES,
}
# Name -> id of ir_datasets. Pyserini's spelling is accepted, too: miracl-v1.0-ar-dev, miracl-ar-testA.
_MIRACL_TOPICS = {
    f"{name}-{code}-{spelling}": f"miracl/{code}/{split}"
    for split, codes in MIRACL_SPLITS.items()
    for code in codes
    for name, spelling in (
        ("miracl", split),
        ("miracl-v1.0", split),
        ("miracl", split.replace("-a", "A").replace("-b", "B")),
    )
}
MRTYDI_LANGUAGES = "ar bn en fi id ja ko ru sw te th".split()
_BEIR_SPLITS = {
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
_BEIR_SPLITS |= {f"cqadupstack/{forum}": ("test",) for forum in _CQADUPSTACK}
# ir_datasets omits a split that is the only one.
_BEIR_TOPICS = {
    f"beir-{name.replace('/', '-')}-{split}": f"beir/{name}/{split}" if len(splits) > 1 else f"beir/{name}"
    for name, splits in _BEIR_SPLITS.items()
    for split in splits
}

MIRACL = Benchmark(
    name="miracl",
    title="MIRACL",
    corpus_names="miracl-LANG",
    topics_names="miracl-LANG-SPLIT",
    languages=tuple(MIRACL_LANGUAGES),
    license="Apache-2.0",
    citation="Zhang et al. MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages. TACL 2023",
    source="ir_datasets miracl",
    corpora={
        f"{name}-{code}": dataset_corpus(f"miracl/{code}", code)
        for code in MIRACL_LANGUAGES
        for name in ("miracl", "miracl-v1.0")
    },
    topics={name: dataset_topics(identity) for name, identity in _MIRACL_TOPICS.items()},
)

MRTYDI = Benchmark(
    name="mrtydi",
    title="Mr. TyDi",
    corpus_names="mrtydi-LANG",
    topics_names="mrtydi-LANG-SPLIT",
    languages=tuple(MRTYDI_LANGUAGES),
    license="Apache-2.0",
    citation="Zhang et al. Mr. TyDi: A Multi-lingual Benchmark for Dense Retrieval. MRL 2021",
    source="ir_datasets mr-tydi",
    field_rule="default_text of ir_datasets",
    corpora={f"mrtydi-{code}": dataset_corpus(f"mr-tydi/{code}", code) for code in MRTYDI_LANGUAGES},
    topics={
        f"mrtydi-{code}-{split}": dataset_topics(f"mr-tydi/{code}/{split}")
        for code in MRTYDI_LANGUAGES
        for split in ("train", "dev", "test")
    },
)

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
    corpora={f"beir-{name.replace('/', '-')}": dataset_corpus(f"beir/{name}", "en") for name in _BEIR_SPLITS},
    topics={name: dataset_topics(identity) for name, identity in _BEIR_TOPICS.items()},
)

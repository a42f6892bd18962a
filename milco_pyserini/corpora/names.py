"""The names of public collections that ir_datasets reads, and its ids that they stand for (all others: families.py).

Pyserini's spelling of MIRACL (miracl-v1.0-ar-dev, miracl-v1.0-ar-test-a) is understood too. What has no
name here is opened by its ir_datasets id.
"""

MIRACL_LANGUAGES = "ar bn de en es fa fi fr hi id ja ko ru sw te th yo zh".split()
MIRACL_SPLITS = {
    "train": [code for code in MIRACL_LANGUAGES if code not in ("de", "yo")],
    "dev": MIRACL_LANGUAGES,
    "test-a": "ar bn en fi id ja ko ru sw te th".split(),
    "test-b": MIRACL_LANGUAGES,
}
MRTYDI_LANGUAGES = "ar bn en fi id ja ko ru sw te th".split()
MRTYDI_SPLITS = ("train", "dev", "test")
# NeuCLIR writes ISO 639-3 where ir_datasets writes ISO 639-1; both are understood.
NEUCLIR_LANGUAGES = {"zho": "zh", "fas": "fa", "rus": "ru", "zh": "zh", "fa": "fa", "ru": "ru"}
# BEIR collections and the splits of their topics. Where there is one only, ir_datasets leaves it unsaid.
BEIR_SPLITS = {
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
CQADUPSTACK = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()


def _corpora() -> dict[str, str]:
    names: dict[str, str] = {}
    for code in MIRACL_LANGUAGES:
        names[f"miracl-{code}"] = names[f"miracl-v1.0-{code}"] = f"miracl/{code}"
    for code in MRTYDI_LANGUAGES:
        names[f"mrtydi-{code}"] = f"mr-tydi/{code}"
    for code, inner in NEUCLIR_LANGUAGES.items():
        names[f"neuclir-{code}"] = f"neuclir/1/{inner}"
    names["neuclir-multi"] = "neuclir/1/multi"
    for name in BEIR_SPLITS:
        names[f"beir-{name}"] = f"beir/{name}"
    for name in CQADUPSTACK:
        names[f"beir-cqadupstack-{name}"] = f"beir/cqadupstack/{name}"
    return names


def _topics() -> dict[str, str]:
    names: dict[str, str] = {}
    for split, codes in MIRACL_SPLITS.items():
        for code in codes:
            names[f"miracl-{code}-{split}"] = names[f"miracl-v1.0-{code}-{split}"] = f"miracl/{code}/{split}"
            if split.startswith("test"):
                names[f"miracl-{code}-test{split[-1].upper()}"] = f"miracl/{code}/{split}"
    for code in MRTYDI_LANGUAGES:
        for split in MRTYDI_SPLITS:
            names[f"mrtydi-{code}-{split}"] = f"mr-tydi/{code}/{split}"
    for code, inner in NEUCLIR_LANGUAGES.items():
        names[f"neuclir-{code}-2022"] = f"neuclir/1/{inner}/trec-2022"
    for name, splits in BEIR_SPLITS.items():
        for split in splits:
            names[f"beir-{name}-{split}"] = f"beir/{name}/{split}" if len(splits) > 1 else f"beir/{name}"
    for name in CQADUPSTACK:
        names[f"beir-cqadupstack-{name}-test"] = f"beir/cqadupstack/{name}"
    return names


CORPORA = _corpora()
TOPICS = _topics()

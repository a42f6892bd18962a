"""Multilingual benchmarks of MTEB that came after the paper. Sizes are those of its descriptive statistics (2.26)."""

from milco_pyserini.corpora.benchmark import Benchmark, language_code, size_table
from milco_pyserini.corpora.hub_tables import HubTask

_MMTEB = "Enevoldsen et al. MMTEB: Massive Multilingual Text Embedding Benchmark. ICLR 2025"

# Documents and queries of each pair, the documents' language first.
_XPQA_SIZES = size_table("""
ara-ara=1495/750 eng-ara=1533/750 ara-eng=1495/742 deu-deu=1248/766 eng-deu=1499/766 deu-eng=1248/766 spa-spa=1941/793
eng-spa=1936/793 spa-eng=1941/793 fra-fra=1548/749 eng-fra=1674/749 fra-eng=1548/749 hin-hin=1251/925 eng-hin=1506/925
hin-eng=1251/912 ita-ita=1272/663 eng-ita=1301/663 ita-eng=1272/663 jpn-jpn=1601/825 eng-jpn=1745/825 jpn-eng=1601/822
kor-kor=889/654 eng-kor=1169/654 kor-eng=889/614 pol-pol=1579/785 eng-pol=1753/785 pol-eng=1579/777 por-por=1622/800
eng-por=1639/800 por-eng=1622/797 tam-tam=1275/782 eng-tam=1484/782 tam-eng=1275/769 cmn-cmn=1705/824 eng-cmn=1763/824
cmn-eng=1705/820
""")
_XPQA_TASKS = {
    pair: HubTask("mteb/XPQARetrieval", "fc4624be978945a0ceebbc4b85737258fe26330b", "test", pair)
    for pair in _XPQA_SIZES
}
XPQA = Benchmark(
    name="xpqa",
    title="xPQA (MTEB)",
    corpus_names="xpqa-DOCUMENTS-QUERIES",
    topics_names="xpqa-DOCUMENTS-QUERIES-test",
    languages=tuple("ara deu eng spa fra hin ita jpn kor pol por tam cmn".split()),
    license="CDLA-Sharing-1.0",
    citation="Shen et al. xPQA: Cross-Lingual Product Question Answering in 12 Languages. ACL 2023 (industry track); "
    f"{_MMTEB}",
    source=f"Hugging Face hub: {_XPQA_TASKS['ara-ara']}",
    corpora={
        f"xpqa-{pair}": task.corpus(language_code(pair[:3]), _XPQA_SIZES[pair][0]) for pair, task in _XPQA_TASKS.items()
    },
    topics={f"xpqa-{pair}-test": task.topics(_XPQA_SIZES[pair][1]) for pair, task in _XPQA_TASKS.items()},
    note="product questions; each pair of languages is a task with documents of its own",
    unconfirmed="that the first language of a pair is the documents': inferred from their lengths in MTEB's statistics",
)

_WEBFAQ_SIZES = size_table("""
ara=142664/10000 aze=4869/487 ben=14315/1432 bul=34734/3474 cat=12694/1270 ces=72308/7231 dan=137686/10000
deu=891201/10000 ell=38516/3852 eng=5278725/10000 est=12891/1290 fas=226940/10000 fin=73547/7355 fra=569505/10000
heb=38951/3896 hin=100031/10000 hrv=5545/555 hun=45294/4530 ind=111315/10000 isl=4778/478 ita=257803/10000
jpn=309157/10000 kat=2405/241 kaz=2995/300 kor=102000/10000 lav=13117/1312 lit=18363/1837 mar=7404/741 msa=6429/643
nld=370662/10000 nor=63232/6324 pol=192515/10000 por=209353/10000 ron=59892/5990 rus=387504/10000 slk=31522/3153
slv=16168/1617 spa=604661/10000 sqi=2077/208 srp=5824/583 swe=158738/10000 tgl=3697/370 tha=47429/4743 tur=144846/10000
ukr=68501/6851 urd=2775/278 uzb=1263/127 vie=123972/10000 zho=132491/10000
""")
_WEBFAQ_TASKS = {
    code: HubTask("mteb/WebFAQRetrieval", "f64f483ad0f31d2e78209d524c14a4a867965959", "test", code)
    for code in _WEBFAQ_SIZES
}
WEBFAQ = Benchmark(
    name="webfaq",
    title="WebFAQ (MTEB)",
    corpus_names="webfaq-LANG",
    topics_names="webfaq-LANG-test",
    languages=tuple(_WEBFAQ_TASKS),
    license="CC BY 4.0",
    citation="Dinzinger et al. WebFAQ: A Multilingual Collection of Natural Q&A Datasets for Dense Retrieval. "
    f"arXiv:2502.20936, 2025; {_MMTEB}",
    source=f"Hugging Face hub: {_WEBFAQ_TASKS['ara']}",
    corpora={
        f"webfaq-{code}": task.corpus(language_code(code), _WEBFAQ_SIZES[code][0])
        for code, task in _WEBFAQ_TASKS.items()
    },
    topics={f"webfaq-{code}-test": task.topics(_WEBFAQ_SIZES[code][1]) for code, task in _WEBFAQ_TASKS.items()},
)

_NEUCLIR_REVISIONS = {
    "2022": "cc5a0360c8bdf1e4afa19d2ea8ec111c0ca96335",
    "2023": "efb44bb789b9f82223aa819e18dba3748fd09e33",
}
_NEUCLIR_SIZES = size_table(
    "fas-2022=8882/45 rus-2022=8724/44 zho-2022=10325/47 fas-2023=15921/74 rus-2023=16247/75 zho-2023=17265/75"
)
_NEUCLIR_TASKS = {
    name: HubTask(f"mteb/NeuCLIR{name[4:]}RetrievalHardNegatives", _NEUCLIR_REVISIONS[name[4:]], "test", name[:3])
    for name in _NEUCLIR_SIZES
}
NEUCLIR_HN = Benchmark(
    name="neuclir-hn",
    title="NeuCLIR, hard negatives (MTEB)",
    corpus_names="neuclir-hn-LANG-YEAR",
    topics_names="neuclir-hn-LANG-YEAR-test",
    languages=("fas", "rus", "zho"),
    license="ODC-BY",
    citation=f"Lawrie et al. Overview of the TREC 2022 NeuCLIR Track. TREC 2022; {_MMTEB}",
    source=f"Hugging Face hub: {_NEUCLIR_TASKS['fas-2022']}, {_NEUCLIR_TASKS['fas-2023']}",
    corpora={
        f"neuclir-hn-{name}": task.corpus(language_code(name[:3]), _NEUCLIR_SIZES[name][0])
        for name, task in _NEUCLIR_TASKS.items()
    },
    topics={f"neuclir-hn-{name}-test": task.topics(_NEUCLIR_SIZES[name][1]) for name, task in _NEUCLIR_TASKS.items()},
    note="the measure is nDCG@20; the 250 best of BM25, multilingual-e5-large and e5-mistral for each query",
    unconfirmed="the language of the queries",
)

_NANO_LANGUAGES = tuple("ar de en es fr it ja ko no pt sv".split())
# Dataset -> repository's name and revision, documents and queries of each language.
_NANO = {
    "arguana": ("ArguAna", "c0b2a891577e87141baf768b28e7acb997ac5680", 3635, 50),
    "climate-fever": ("ClimateFever", "2fe8eb61630d248dc0bd1a13e4b7f6406b4a3e2a", 3408, 50),
    "dbpedia": ("DBPedia", "d190b64f4888205f70b5bfdd4fdf806100139dd0", 6045, 50),
    "fever": ("FEVER", "58c0c39b5718de4c64ba115e30ae830f25fc6c62", 4996, 50),
    "fiqa": ("FiQA2018", "6af7d1d165dab5c41840440ee33373d3a459483a", 4598, 50),
    "hotpotqa": ("HotpotQA", "d226781cb805c360229d14c2efa8672d11226075", 5090, 50),
    "msmarco": ("MSMARCO", "f579311c703483afcec3062f58fe69e9f0813843", 5043, 50),
    "nfcorpus": ("NFCorpus", "4484b487f178125827f7dda052f1b2f5673548d6", 2953, 50),
    "nq": ("NQ", "4104e3376fe243f0bd4845e204b01c0fc3f7d1d7", 5035, 50),
    "quora": ("Quora", "eb9418faade7449e869be388846f287aa3535b64", 5046, 50),
    "scidocs": ("SCIDOCS", "06cff48c8ebea5f46e3effa29573fc22a5b9d8fc", 2210, 50),
    "scifact": ("SciFact", "3e75543b8006c013ec14d36a17dd3010eb139f72", 2919, 50),
    "touche2020": ("Touche2020", "cc244b553d65a88fb66d913907146fe4c33aef29", 5745, 49),
}
_NANO_TASKS = {
    f"nanobeir-{dataset}-{code}": (
        HubTask(f"mteb/MultilingualNano{name}Retrieval", revision, "test", code),
        code,
        documents,
        queries,
    )
    for dataset, (name, revision, documents, queries) in _NANO.items()
    for code in _NANO_LANGUAGES
}
NANOBEIR = Benchmark(
    name="nanobeir",
    title="NanoBEIR, multilingual (MTEB)",
    corpus_names="nanobeir-DATASET-LANG",
    topics_names="nanobeir-DATASET-LANG-test",
    languages=_NANO_LANGUAGES,
    license="CC BY 4.0 (according to MTEB, ArguAna's and ClimateFEVER's; others as their originals)",
    citation=f"LiquidAI/nanobeir-multilingual-extended on the hub; {_MMTEB}",
    source=f"Hugging Face hub: {_NANO_TASKS['nanobeir-arguana-ar'][0]} and twelve more",
    corpora={name: task.corpus(code, documents) for name, (task, code, documents, _) in _NANO_TASKS.items()},
    topics={f"{name}-test": task.topics(queries) for name, (task, _, _, queries) in _NANO_TASKS.items()},
    note="13 datasets of BEIR, 50 queries each, machine-translated: minutes on a CPU",
)

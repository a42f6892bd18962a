"""Belebele: questions on the same 488 passages in 122 languages and scripts, from the publisher's repository.

Ids are the same in all languages: a passage's is its link, a question's its link and number. Topics of one language can
be searched in the documents of any other; MTEB's task X-Y is belebele-X with belebele-Y-test.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, file_topics, language_code
from milco_pyserini.corpora.readers import json_reader
from milco_pyserini.corpora.records import Document, Query, text_of
from milco_pyserini.corpora.remote import HubFile, RemoteRecords

_REPOSITORY = "facebook/belebele"
_REVISION = "75b399394a9803252cfec289d103de462763db7c"

_LANGUAGES = """
acm_Arab afr_Latn als_Latn amh_Ethi apc_Arab arb_Arab arb_Latn ars_Arab ary_Arab arz_Arab asm_Beng azj_Latn bam_Latn
ben_Beng ben_Latn bod_Tibt bul_Cyrl cat_Latn ceb_Latn ces_Latn ckb_Arab dan_Latn deu_Latn ell_Grek eng_Latn est_Latn
eus_Latn fin_Latn fra_Latn fuv_Latn gaz_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hin_Latn hrv_Latn
hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kac_Latn kan_Knda kat_Geor kaz_Cyrl
kea_Latn khk_Cyrl khm_Khmr kin_Latn kir_Cyrl kor_Hang lao_Laoo lin_Latn lit_Latn lug_Latn luo_Latn lvs_Latn mal_Mlym
mar_Deva mkd_Cyrl mlt_Latn mri_Latn mya_Mymr nld_Latn nob_Latn npi_Deva npi_Latn nso_Latn nya_Latn ory_Orya pan_Guru
pbt_Arab pes_Arab plt_Latn pol_Latn por_Latn ron_Latn rus_Cyrl shn_Mymr sin_Latn sin_Sinh slk_Latn slv_Latn sna_Latn
snd_Arab som_Latn sot_Latn spa_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn tam_Taml tel_Telu tgk_Cyrl tgl_Latn
tha_Thai tir_Ethi tsn_Latn tso_Latn tur_Latn ukr_Cyrl urd_Arab urd_Latn uzn_Latn vie_Latn war_Latn wol_Latn xho_Latn
yor_Latn zho_Hans zho_Hant zsm_Latn zul_Latn
""".split()
_FILES = {language: HubFile(_REPOSITORY, f"data/{language}.jsonl", _REVISION) for language in _LANGUAGES}


def _passage_id(row: dict) -> str:
    # A link has no white space; if one has, the id must not.
    return "_".join(text_of(row["link"], "link").split())


def _question_id(row: dict) -> str:
    return f"{_passage_id(row)}#{row['question_number']}"


_documents = json_reader(lambda row: Document(_passage_id(row), "", text_of(row["flores_passage"], "flores_passage")))
_queries = json_reader(lambda row: Query(_question_id(row), text_of(row["question"], "question")))
_judgments = json_reader(lambda row: [(_question_id(row), _passage_id(row), 1)])

BELEBELE = Benchmark(
    name="belebele",
    title="Belebele",
    corpus_names="belebele-LANG",
    topics_names="belebele-LANG-test",
    languages=tuple(_FILES),
    license="CC BY-SA 4.0",
    citation="Bandarkar et al. The Belebele Benchmark: a Parallel Reading Comprehension Dataset in 122 Language "
    "Variants. ACL 2024",
    source=f"Hugging Face hub: {_REPOSITORY} at {_REVISION[:10]}",
    field_rule="flores_passage",
    corpora={
        f"belebele-{language}": BenchmarkCorpus(
            RemoteRecords(_documents, [file], "flores_passage", unique=True), language_code(language), 488
        )
        for language, file in _FILES.items()
    },
    topics={
        f"belebele-{language}-test": file_topics(file, _queries, _judgments, 900) for language, file in _FILES.items()
    },
    note="ids are the same in all languages: topics of one language, documents of another, qrels of either. MTEB's "
    "task X-Y is documents of X and topics of Y, where MTEB merges questions of the same wording",
)

"""Belebele: questions on the same 488 passages in 122 languages and scripts, from its publisher's repository.

Ids are the same in every language: a passage's is its link, a question's its link and number. So topics of one
language can be searched in the documents of any other; MTEB's task X-Y is belebele-X with belebele-Y-test.
"""

from milco_pyserini.corpora.origin import (
    CorpusOrigin,
    Family,
    Judgement,
    TopicsOrigin,
    documents,
    json_reader,
    judgements,
    queries,
)
from milco_pyserini.corpora.records import Document, Query, text_of
from milco_pyserini.corpora.remote import HubFile

REPOSITORY = "facebook/belebele"
REVISION = "75b399394a9803252cfec289d103de462763db7c"
_PASSAGES, _QUESTIONS = 488, 900

LANGUAGES = """
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


def _passage_id(row: dict) -> str:
    # An address has no white space; if one has nevertheless, a run could not hold it.
    return "_".join(text_of(row["link"], "link").split())


def _question_id(row: dict) -> str:
    return f"{_passage_id(row)}#{row['question_number']}"


def _document(row: dict) -> Document:
    return Document(_passage_id(row), "", text_of(row["flores_passage"], "flores_passage"))


def _query(row: dict) -> Query:
    return Query(_question_id(row), text_of(row["question"], "question"))


def _judged(row: dict) -> list[Judgement]:
    return [(_question_id(row), _passage_id(row), 1)]


def _file(language: str) -> HubFile:
    return HubFile(REPOSITORY, f"data/{language}.jsonl", REVISION)


def _corpus(file: HubFile) -> CorpusOrigin:
    return CorpusOrigin(documents(json_reader(_document), "flores_passage", file, once=True), _PASSAGES)


def _topics(file: HubFile) -> TopicsOrigin:
    return TopicsOrigin(queries(json_reader(_query), file), judgements(json_reader(_judged), file), _QUESTIONS)


FAMILIES = (
    Family(
        name="belebele",
        title="Belebele",
        patterns=("belebele-LANG", "belebele-LANG-test"),
        languages=tuple(LANGUAGES),
        licence="CC BY-SA 4.0",
        source=f"Hugging Face hub: {REPOSITORY} at {REVISION[:10]}",
        field_rule="flores_passage",
        corpora={f"belebele-{language}": _corpus(_file(language)) for language in LANGUAGES},
        topics={f"belebele-{language}-test": _topics(_file(language)) for language in LANGUAGES},
        note="ids are the same in all languages: topics of one language, documents of another, judgements of either. "
        "MTEB's task X-Y is documents of X and topics of Y, there with questions of the same wording as one",
    ),
)

"""The language of a corpus, by its name."""

from pathlib import Path

# Anserini's code -> how names of benchmarks write it. Belebele's Arabic of several countries is written alike.
_SPELLINGS = {
    "ar": "ara arb_Arab acm_Arab apc_Arab ars_Arab ary_Arab arz_Arab",
    "bn": "ben_Beng",
    "da": "dan_Latn",
    "de": "deu deu_Latn",
    "en": "eng eng_Latn",
    "es": "spa spa_Latn",
    "fa": "fas pes_Arab",
    "fi": "fin_Latn",
    "fr": "fra_Latn",
    "ha": "hau_Latn",
    "hi": "hin hin_Deva",
    "hu": "hun_Latn",
    "id": "ind_Latn",
    "it": "ita_Latn",
    "ja": "jpn_Jpan",
    "ko": "kor_Hang",
    "nl": "nld_Latn",
    "no": "nob_Latn",
    "pl": "pol_Latn",
    "pt": "por_Latn",
    "ru": "rus rus_Cyrl",
    "so": "som_Latn",
    "sv": "swe_Latn",
    "sw": "swh_Latn",
    "te": "tel_Telu",
    "th": "tha_Thai",
    "tr": "tur_Latn",
    "uk": "ukr_Cyrl",
    "yo": "yor_Latn",
    "zh": "zho zho_Hans zho_Hant",
}
_CODES = {spelling: code for code, spellings in _SPELLINGS.items() for spelling in spellings.split()}
# Whose languages are the questions'.
_DOCUMENTS_IN = {"mkqa": "en", "afriqa-en": "en", "afriqa-fr": "fr"}
# More than one language.
_MIXED = ("neuclir-multi", "sample")


def corpus_language(name: str) -> str | None:
    """The language of the documents of a corpus, as Anserini writes it ("ar"), if the name alone says it.

    A name of a benchmark does (miracl-ar, also as miracl-ar@PATH or its id of ir_datasets), and sample-ar; a path
    does not, nor does a collection of several languages.
    """
    from milco_pyserini.corpora.families import CORPORA, FAMILIES

    named = name.partition("@")[0].removeprefix("ir_datasets:")
    named = next((known for known, place in CORPORA.items() if place == named), named)
    if Path(name).exists() or named in _MIXED:
        return None
    if named in _DOCUMENTS_IN:
        return _DOCUMENTS_IN[named]
    family = next((family for family in FAMILIES.values() if named in family.corpora), None)
    if family is None:
        return None
    if len(family.languages) == 1:
        return family.languages[0]
    # Of two, as in mlqa-DOCUMENTS-QUERIES, the first is the documents'.
    parts = named.removeprefix(f"{family.name}-").removeprefix("v1.0-").split("-")
    return _CODES.get(parts[0], parts[0])

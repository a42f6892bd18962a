"""MLQA: questions in seven languages on passages of Wikipedia in the same seven, from its publisher's archive.

A passage has a hash of its text as its id, the same in every file of its language.
"""

from itertools import product

from milco_pyserini.corpora.origin import Family, TopicsOrigin
from milco_pyserini.corpora.remote import Member, WebFile
from milco_pyserini.corpora.squad import FIELD_RULE, squad_corpus, squad_topics, text_hash

_ARCHIVE = WebFile("https://dl.fbaipublicfiles.com/MLQA/MLQA_V1.zip", "mlqa", "MLQA_V1.zip")
_LANGUAGES = "ar de en es hi vi zh".split()
# Questions in one language on passages in the same, as the publisher counts them.
_QUESTIONS = {
    "dev": {"en": 1148, "de": 512, "es": 500, "ar": 517, "zh": 504, "vi": 511, "hi": 507},
    "test": {"en": 11_590, "de": 4517, "es": 5254, "ar": 5335, "zh": 5137, "vi": 5495, "hi": 4918},
}


def _file(split: str, context: str, question: str) -> Member:
    return Member(_ARCHIVE, f"MLQA_V1/{split}/{split}-context-{context}-question-{question}.json")


def _topics(split: str, context: str, question: str) -> TopicsOrigin:
    count = _QUESTIONS[split][context] if context == question else None
    return squad_topics(_file(split, context, question), text_hash, count)


_NAMES = {
    f"mlqa-{context}-{question}-{split}": (split, context, question)
    for context, question in product(_LANGUAGES, repeat=2)
    for split in _QUESTIONS
}

FAMILIES = (
    Family(
        name="mlqa",
        title="MLQA",
        patterns=("mlqa-DOCUMENTS-QUERIES-SPLIT", "mlqa-DOCUMENTS-QUERIES-SPLIT"),
        languages=tuple(_LANGUAGES),
        licence="CC BY-SA 3.0",
        source=_ARCHIVE.url,
        field_rule=FIELD_RULE,
        corpora={name: squad_corpus(_file(*which), text_hash) for name, which in _NAMES.items()},
        topics={name: _topics(*which) for name, which in _NAMES.items()},
        note="a pair's documents are those with a question in the other language; those of a pair of the same language "
        "are all of that language, with the same ids",
        unconfirmed="the archive's SHA-256",
    ),
)

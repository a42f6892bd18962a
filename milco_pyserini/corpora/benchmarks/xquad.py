"""XQuAD: the same 240 Wikipedia passages and 1,190 questions in twelve languages, from the publisher's repository.

Questions have the same ids in all languages, and a passage is named after its first question: topics of one language
can be searched in documents of another.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.readers import first_question_id, squad_documents, squad_judgments, squad_queries
from milco_pyserini.corpora.remote import RemoteQrels, RemoteRecords, WebFile

_COMMIT = "7d30520c717524000f0d9d2f9c10a069acd9d285"
# SHA-256 of the files at that commit.
_SHA256 = {
    "ar": "abdabd7afed5c635d99cca0f3f0d0c9d9ed0bc77451e963c2e4e0638c29e486d",
    "de": "990b5d746746ed65ed4702ea5f35f99ffa4e2f1c390c07d003642acd937916f9",
    "el": "821cf0f88e73fa258fd2f548b19b6ec39f7025059e16f6f9fc8cd797c9c3663e",
    "en": "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
    "es": "dcbae93ec3a9f4b9e78fd834a171d6f96c1a875e10e15b7530b7e4ef4971e37e",
    "hi": "df2cce3532b37e9beb8979704b5c9a4bf874358f105395a298b89427b43b9d24",
    "ro": "94f8d54e93ad2b7dd2e76dd921a666b5b8eff2d4379df9f179c42b445f09643f",
    "ru": "208d5b1aa154c52b1b5c5eda16281e455e8fd198cdb9af3f469f0d6037d973bf",
    "th": "5cdda11d0e1e075f7872abf4e6ae830388ce7f617964d542308e9ae4257e0f43",
    "tr": "92179a564774b7696100d144c1e10870d0a966b6fccbdd254a65b9d2ab1971cc",
    "vi": "f619a1eb11fb42d3ab0834259e488a65f585447ef6154437bfb7199d85161a04",
    "zh": "691d0b3359bc6b8faa8de931dfdfe21d50a65861ae348e32a0d1a0190b0c8835",
}
_FILES = {
    code: WebFile(
        f"https://raw.githubusercontent.com/google-deepmind/xquad/{_COMMIT}/xquad.{code}.json",
        "xquad",
        f"xquad.{code}.json",
        checksum,
    )
    for code, checksum in _SHA256.items()
}

XQUAD = Benchmark(
    name="xquad",
    title="XQuAD",
    corpus_names="xquad-LANG",
    topics_names="xquad-LANG-validation",
    languages=tuple(_SHA256),
    license="CC BY-SA 4.0",
    citation="Artetxe et al. On the Cross-lingual Transferability of Monolingual Representations. ACL 2020",
    source=f"github.com/google-deepmind/xquad at {_COMMIT[:10]}",
    field_rule="context",
    corpora={
        f"xquad-{code}": BenchmarkCorpus(
            RemoteRecords(squad_documents(first_question_id), [file], "context"), code, 240
        )
        for code, file in _FILES.items()
    },
    topics={
        f"xquad-{code}-validation": BenchmarkTopics(
            RemoteRecords(squad_queries, [file]), RemoteQrels([file], squad_judgments(first_question_id)), 1190
        )
        for code, file in _FILES.items()
    },
    note="ids are the same in all languages: topics of one language, documents of another, qrels of either",
)

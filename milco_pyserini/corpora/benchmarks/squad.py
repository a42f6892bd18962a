"""Question answering in SQuAD's format, from the publishers: XQuAD and MLQA.

XQuAD has the same passages and questions in twelve languages. Questions have the same ids in all of them, and a passage
is named after its first question: topics of one language can be searched in documents of another. A passage of MLQA is
named by a hash of its text, the same in all files of its language.
"""

from itertools import product

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, file_topics, size_table
from milco_pyserini.corpora.readers import (
    first_question_id,
    squad_documents,
    squad_judgments,
    squad_queries,
    text_hash,
)
from milco_pyserini.corpora.remote import ArchiveMember, RemoteRecords, WebFile

_XQUAD_COMMIT = "7d30520c717524000f0d9d2f9c10a069acd9d285"
# SHA-256 of the files at that commit.
_XQUAD_SHA256 = {
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
_XQUAD_SERVER = f"https://raw.githubusercontent.com/google-deepmind/xquad/{_XQUAD_COMMIT}"
_XQUAD_FILES = {
    code: WebFile(f"{_XQUAD_SERVER}/xquad.{code}.json", "xquad", f"xquad.{code}.json", checksum)
    for code, checksum in _XQUAD_SHA256.items()
}

XQUAD = Benchmark(
    name="xquad",
    title="XQuAD",
    corpus_names="xquad-LANG",
    topics_names="xquad-LANG-validation",
    languages=tuple(_XQUAD_FILES),
    license="CC BY-SA 4.0",
    citation="Artetxe et al. On the Cross-lingual Transferability of Monolingual Representations. ACL 2020",
    source=f"github.com/google-deepmind/xquad at {_XQUAD_COMMIT[:10]}",
    field_rule="context",
    corpora={
        f"xquad-{code}": BenchmarkCorpus(
            RemoteRecords(squad_documents(first_question_id), [file], "context"), code, 240
        )
        for code, file in _XQUAD_FILES.items()
    },
    topics={
        f"xquad-{code}-validation": file_topics(file, squad_queries, squad_judgments(first_question_id), 1190)
        for code, file in _XQUAD_FILES.items()
    },
    note="ids are the same in all languages: topics of one language, documents of another, qrels of either",
)

_MLQA_ARCHIVE = WebFile(
    "https://dl.fbaipublicfiles.com/MLQA/MLQA_V1.zip",
    "mlqa",
    "MLQA_V1.zip",
    "246e8089933d13007fe80684d5c5c0713d6834cf8b3b4a0ec7c66f0a0d2baac8",
)
_MLQA_LANGUAGES = "ar de en es hi vi zh".split()
# Questions of dev and test for a pair of languages, in either direction. Hugging Face's and TensorFlow's datasets
# record the archive's hash, and Hugging Face's the number of questions in each file; those of dev add up to MTEB's
# total over its 49 pairs. The publisher's README differs in one number: 5,254 Spanish questions on Spanish passages in
# test, where both others count 5,253 in an archive of the same hash.
_MLQA_QUESTIONS = size_table("""
ar-ar=517/5335 ar-de=207/1649 ar-en=517/5335 ar-es=161/1978 ar-hi=186/1831 ar-vi=163/2047 ar-zh=188/1912
de-de=512/4517 de-en=512/4517 de-es=196/1776 de-hi=163/1430 de-vi=182/1675 de-zh=190/1621
en-en=1148/11590 en-es=500/5253 en-hi=507/4918 en-vi=511/5495 en-zh=504/5137
es-es=500/5253 es-hi=187/1723 es-vi=189/2018 es-zh=161/1947
hi-hi=507/4918 hi-vi=177/1947 hi-zh=189/1767 vi-vi=511/5495 vi-zh=184/1943 zh-zh=504/5137
""")
_MLQA_FILES = {
    (documents, queries, split): ArchiveMember(
        _MLQA_ARCHIVE, f"MLQA_V1/{split}/{split}-context-{documents}-question-{queries}.json"
    )
    for documents, queries, split in product(_MLQA_LANGUAGES, _MLQA_LANGUAGES, ("dev", "test"))
}

MLQA = Benchmark(
    name="mlqa",
    title="MLQA",
    corpus_names="mlqa-DOCUMENTS-QUERIES-SPLIT",
    topics_names="mlqa-DOCUMENTS-QUERIES-SPLIT",
    languages=tuple(_MLQA_LANGUAGES),
    license="CC BY-SA 3.0",
    citation="Lewis et al. MLQA: Evaluating Cross-lingual Extractive Question Answering. ACL 2020",
    source=_MLQA_ARCHIVE.url,
    field_rule="context",
    corpora={
        f"mlqa-{documents}-{queries}-{split}": BenchmarkCorpus(
            RemoteRecords(squad_documents(text_hash), [file], "context"), documents
        )
        for (documents, queries, split), file in _MLQA_FILES.items()
    },
    topics={
        f"mlqa-{documents}-{queries}-{split}": file_topics(
            file,
            squad_queries,
            squad_judgments(text_hash),
            _MLQA_QUESTIONS["-".join(sorted((documents, queries)))][split == "test"],
        )
        for (documents, queries, split), file in _MLQA_FILES.items()
    },
    note="the documents of a pair are the passages with a question in the other language; those of a language with "
    "itself are all of that language, with the same ids",
    unconfirmed="the number of questions of mlqa-es-es-test: two independent counts give 5,253, the publisher's README "
    "5,254",
)

"""All benchmarks that go by name: which names, whence, under which licence, how many documents and topics."""

from collections.abc import Sequence

from milco_pyserini.corpora import names
from milco_pyserini.corpora.benchmarks import (
    afriqa,
    beir,
    belebele,
    ciral,
    limit,
    miracl,
    mkqa,
    mldr,
    mlqa,
    mrtydi,
    mteb,
    neuclir,
    sample,
    xquad,
)
from milco_pyserini.corpora.origin import CorpusOrigin, Family, TopicsOrigin


def _through_ir_datasets(
    name: str, title: str, patterns: tuple[str, str], languages: Sequence[str], licence: str, rule: str
) -> Family:
    return Family(
        name=name,
        title=title,
        patterns=patterns,
        languages=tuple(languages),
        licence=licence,
        source=f"ir_datasets {'mr-tydi' if name == 'mrtydi' else name}",
        field_rule=rule,
        corpora={key: place for key, place in names.CORPORA.items() if key.startswith(f"{name}-")},
        topics={key: place for key, place in names.TOPICS.items() if key.startswith(f"{name}-")},
    )


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *sample.FAMILIES,
        _through_ir_datasets(
            "miracl",
            "MIRACL",
            ("miracl-LANG", "miracl-LANG-SPLIT"),
            names.MIRACL_LANGUAGES,
            "Apache-2.0",
            "title + ' ' + text",
        ),
        *mteb.FAMILIES,
        *belebele.FAMILIES,
        *mldr.FAMILIES,
        *mkqa.FAMILIES,
        *neuclir.FAMILIES,
        _through_ir_datasets(
            "beir",
            "BEIR",
            ("beir-NAME", "beir-NAME-SPLIT"),
            ("en",),
            "each data set its own; MS MARCO, NQ and SciFact are non-commercial (as MTEB says)",
            "title + ' ' + text",
        ),
        *limit.FAMILIES,
        _through_ir_datasets(
            "mrtydi",
            "Mr. TyDi",
            ("mrtydi-LANG", "mrtydi-LANG-SPLIT"),
            names.MRTYDI_LANGUAGES,
            "Apache-2.0",
            "default_text of ir_datasets",
        ),
        *xquad.FAMILIES,
        *mlqa.FAMILIES,
        *afriqa.FAMILIES,
        *ciral.FAMILIES,
    )
}

# Names -> an ir_datasets id, or an origin of our own.
CORPORA: dict[str, str | CorpusOrigin] = {
    name: place for family in FAMILIES.values() for name, place in family.corpora.items()
}
TOPICS: dict[str, str | TopicsOrigin] = {
    name: place for family in FAMILIES.values() for name, place in family.topics.items()
}

# The ids of ir_datasets among them -> what reads them from a copy of their publisher's files.
COPIED_CORPORA = {**miracl.CORPORA, **neuclir.DOCUMENTS, **beir.CORPORA, **mrtydi.CORPORA}
COPIED_TOPICS = {**miracl.TOPICS, **neuclir.TITLES, **beir.TOPICS, **mrtydi.TOPICS}

"""AfriQA: questions in African languages on passages of English or French Wikipedia, from its publisher's repository.

The documents are the gold passages of all languages that were asked about in the same one, of all splits: some
thousands. (The publisher's baselines search all of Wikipedia, which is not here.) A passage has a hash of its title
and text as its id. Questions that the files have without a passage are left out, so the sizes in the publisher's
README, which counts all questions, are not those of the names here.
"""

from hashlib import blake2b

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
from milco_pyserini.corpora.records import Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import WebFile

_SERVER = "https://raw.githubusercontent.com/masakhane-io/afriqa/main/"
_ALL = ("train", "dev", "test")
# Language of the passages -> language of the questions -> splits that the repository holds gold passages of.
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "bem": _ALL,
        "hau": _ALL,
        "ibo": _ALL,
        "kin": _ALL,
        "swa": ("test",),
        "twi": _ALL,
        "yor": ("train", "test"),
        "zul": _ALL,
    },
    "fr": {"fon": _ALL},
}


def _file(pivot: str, code: str, split: str) -> WebFile:
    path = f"data/gold_passages/{code}/gold_span_passages.afriqa.{code}.{pivot}.{split}.json"
    return WebFile(_SERVER + path, "afriqa", path)


def _passage(row: dict) -> Document | None:
    if row["context"] is None:
        return None
    # Some passages have no title.
    title, text = text_of(row["title"] or "", "title").strip(), text_of(row["context"], "context").strip()
    identity = blake2b(f"{title}\n{text}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return Document(identity, title, text)


def _query(row: dict) -> Query | None:
    if row["context"] is None:
        return None
    return Query(record_id(row["id"]), text_of(row["question_lang"], "question_lang"))


def _judged(row: dict) -> list[Judgement]:
    passage = _passage(row)
    return [] if passage is None else [(record_id(row["id"]), passage.id, 1)]


def _corpus(pivot: str) -> CorpusOrigin:
    files = [_file(pivot, code, split) for code, splits in _FILES[pivot].items() for split in splits]
    return CorpusOrigin(documents(json_reader(_passage), "title + ' ' + context", *files, once=True))


def _topics(file: WebFile) -> TopicsOrigin:
    return TopicsOrigin(queries(json_reader(_query), file), judgements(json_reader(_judged), file))


FAMILIES = (
    Family(
        name="afriqa",
        title="AfriQA, gold passages",
        patterns=("afriqa-en, afriqa-fr", "afriqa-LANG-SPLIT"),
        languages=tuple(code for codes in _FILES.values() for code in codes),
        licence="CC BY 4.0",
        source="github.com/masakhane-io/afriqa, branch main",
        field_rule="title + ' ' + context",
        corpora={f"afriqa-{pivot}": _corpus(pivot) for pivot in _FILES},
        topics={
            f"afriqa-{code}-{split}": _topics(_file(pivot, code, split))
            for pivot, codes in _FILES.items()
            for code, splits in codes.items()
            for split in splits
        },
        note="questions in the named language (fon: on French passages, the others: on English ones); those without a "
        "passage are left out",
        unconfirmed="whether the repository has gold passages of swa train and dev, yor dev and wol; hashes; counts",
    ),
)

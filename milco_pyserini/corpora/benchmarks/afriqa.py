"""AfriQA: questions in African languages on English or French Wikipedia passages, from the publisher's repository.

The documents are the gold passages of all languages and splits with the same passage language: a few thousand. (The
publisher's baselines search all of Wikipedia.) A passage is named by a hash of its title and text. Questions without a
gold passage are dropped, so there are fewer than in the publisher's README, which counts all questions.
"""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.readers import Judgment, Reader, json_reader
from milco_pyserini.corpora.records import Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import RemoteQrels, RemoteRecords, WebFile

T = TypeVar("T")
_COMMIT = "5c29933753692c28773c34ac1f68482007f1d2bb"
# Languages of the questions and the passages -> SHA-256 of each split's file, and the number of its questions with a
# passage. The repository has no gold passages of swa train and dev, of yor dev, and of wol.
_FILES = {
    ("bem", "en"): {
        "train": ("17dfc33975c94ef5372a72b27108d04a90c2a54096c5fa31c2c1272f0c69037d", 228),
        "dev": ("3ec8d5a9f74623a940092399970c6140c6c61322169285606daeae67f41371ae", 235),
        "test": ("72e7f7e3dd207b955968403f9a3699fb11aef996981d142063614e7f434e7c52", 308),
    },
    ("hau", "en"): {
        "train": ("21d975df45d8e1316c964f4fe8521dd7ab455fbe1b0edea1564824352b67be2e", 223),
        "dev": ("ef9cb217e8ea4922935c7fb9e7456364e91c2712519390071170a18131e9e132", 222),
        "test": ("e1a0d530d75641760387a2947044d69090c15db620fd9a4dbcf8dc52940d7687", 300),
    },
    ("ibo", "en"): {
        "train": ("5300a29efc78c3dec1fc68c66eb1fec3a72577de4136a41d7c85aac355f1a5b8", 305),
        "dev": ("9636bfa38368c69319f1b7a2bca1ab995c7b4ad63c5801a25da53b34a5fa4e02", 307),
        "test": ("490af9c615ec5e56ec50a3da21efed82df5f67c794ac5d8d6c5e7d30845cc48d", 409),
    },
    ("kin", "en"): {
        "train": ("967a849f4e6d58ebbb3ea81bbbddd4f9d00a30d8752c2354cb894c1596285dc2", 214),
        "dev": ("5598ac675fecfc5e7009a3cb1a511e81c69983a763715726d3dda2bcd3ed9d28", 230),
        "test": ("fe067f3aa30c581adbaae7d0012eea5290b5f3119396bbb1c70d665d9e6f31eb", 347),
    },
    ("swa", "en"): {
        "test": ("18609b69d21c37b737426baed0a4f02495ab237285dd524e8f502f756350d0bf", 295),
    },
    ("twi", "en"): {
        "train": ("cdbba2a4d6a40e6e8fd587d25cb56e57ea2fe888bac254f66fc29409cec1afaa", 351),
        "dev": ("d9bd337c4a47bb1dbccffb74fa170e418911c7b6c3cbb8c034ae17d6794ada79", 348),
        "test": ("329221245f9880896b9038405c44b7f8ef48db3067aa556fbd82819de46b954d", 486),
    },
    ("yor", "en"): {
        "train": ("864d91d1cab11b587b6535e6a293cc21ba2cf62ce7cc44f175f0fd7656f4925c", 247),
        "test": ("0aa0f6c1769f07788c918fd0dc1848b70ec0f06e8de9a6893d9037b9ff05abaa", 254),
    },
    ("zul", "en"): {
        "train": ("a5bd82873ef476aaad58cbfb7f5b4234d5f4798aa09ba934dc23edc397355655", 242),
        "dev": ("3332f7063e65d80cad27d6625de1c9681569a357a6e6eab64132416e64871689", 242),
        "test": ("e6edc93eed66267a0f8b98a96bc4ef104c66e33a903678fa260219e8c66efd75", 325),
    },
    ("fon", "fr"): {
        "train": ("8fd0b5ad42ee3ebdc91ac8d770c6da15718ae5605f754b9934183c09f56b383c", 282),
        "dev": ("0c94c4405a2b448d647bee4387cbb34b7dfc14f63fc6655f498c2d49254c8a2b", 271),
        "test": ("3308b7d0e455912d4e37dd0b9e8b06e6c1d108d2af040a7f7ffbc3e838dfc927", 386),
    },
}
# Distinct passages over all splits and languages.
_PASSAGES = {"en": 5367, "fr": 790}
_NAN = re.compile(rb"([:\[] ?)NaN(?=[,\]}])")


def _file(code: str, pivot: str, split: str) -> WebFile:
    path = f"data/gold_passages/{code}/gold_span_passages.afriqa.{code}.{pivot}.{split}.json"
    url = f"https://raw.githubusercontent.com/masakhane-io/afriqa/{_COMMIT}/{path}"
    return WebFile(url, "afriqa", path, _FILES[code, pivot][split][0])


def _reader(make: Callable[[dict], T | None]) -> Reader[T]:
    # Python wrote these files: empty cells of a spreadsheet are NaN, which is not JSON.
    read = json_reader(make)
    return lambda lines, bad: read(((number, _NAN.sub(rb"\1null", line)) for number, line in lines), bad)


def read_passage(row: dict) -> Document | None:
    """Return the passage of a row, None if the question has none."""
    if row["context"] is None:
        return None
    # Some passages have no title.
    title, text = text_of(row["title"] or "", "title").strip(), text_of(row["context"], "context").strip()
    identity = blake2b(f"{title}\n{text}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return Document(identity, title, text)


def read_query(row: dict) -> Query | None:
    """Return the question of a row, None if it has no passage."""
    if row["context"] is None:
        return None
    return Query(record_id(row["id"]), text_of(row["question_lang"], "question_lang"))


def read_judgments(row: dict) -> list[Judgment]:
    """Return the passage of a row as relevant to its question."""
    passage = read_passage(row)
    return [] if passage is None else [(record_id(row["id"]), passage.id, 1)]


def _corpus(pivot: str) -> BenchmarkCorpus:
    files = [_file(*codes, split) for codes, splits in _FILES.items() if codes[1] == pivot for split in splits]
    passages = RemoteRecords(_reader(read_passage), files, "title + ' ' + context", unique=True)
    return BenchmarkCorpus(passages, pivot, _PASSAGES[pivot])


AFRIQA = Benchmark(
    name="afriqa",
    title="AfriQA, gold passages",
    corpus_names="afriqa-en, afriqa-fr",
    topics_names="afriqa-LANG-SPLIT",
    languages=tuple(code for code, _ in _FILES),
    license="CC BY 4.0",
    citation="Ogundepo et al. AfriQA: Cross-lingual Open-Retrieval Question Answering for African Languages. "
    "Findings of EMNLP 2023",
    source=f"github.com/masakhane-io/afriqa at {_COMMIT[:10]}",
    field_rule="title + ' ' + context",
    corpora={f"afriqa-{pivot}": _corpus(pivot) for pivot in _PASSAGES},
    topics={
        f"afriqa-{code}-{split}": BenchmarkTopics(
            RemoteRecords(_reader(read_query), [_file(code, pivot, split)]),
            RemoteQrels([_file(code, pivot, split)], _reader(read_judgments)),
            count,
        )
        for (code, pivot), splits in _FILES.items()
        for split, (_, count) in splits.items()
    },
    note="questions in the named language on English passages (fon: French); those without a passage are dropped",
)

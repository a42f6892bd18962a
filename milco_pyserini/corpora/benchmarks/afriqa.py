"""AfriQA: questions in African languages on English or French Wikipedia passages, from the publisher's repository.

The documents are the gold passages of all languages and splits with the same passage language: a few thousand. (The
publisher's baselines search all of Wikipedia.) A passage is named by a hash of its title and text. Questions without a
gold passage are dropped, so there are fewer than in the publisher's README, which counts all questions.
"""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, file_topics
from milco_pyserini.corpora.readers import Judgment, Reader, json_reader
from milco_pyserini.corpora.records import Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import RemoteRecords, WebFile

T = TypeVar("T")
_COMMIT = "5c29933753692c28773c34ac1f68482007f1d2bb"
# Languages of the questions and the passages, split, number of questions with a passage, SHA-256 of the file. The
# repository has no gold passages of swa train and dev, of yor dev, and of wol.
_TABLE = """
bem en train 228 17dfc33975c94ef5372a72b27108d04a90c2a54096c5fa31c2c1272f0c69037d
bem en dev 235 3ec8d5a9f74623a940092399970c6140c6c61322169285606daeae67f41371ae
bem en test 308 72e7f7e3dd207b955968403f9a3699fb11aef996981d142063614e7f434e7c52
hau en train 223 21d975df45d8e1316c964f4fe8521dd7ab455fbe1b0edea1564824352b67be2e
hau en dev 222 ef9cb217e8ea4922935c7fb9e7456364e91c2712519390071170a18131e9e132
hau en test 300 e1a0d530d75641760387a2947044d69090c15db620fd9a4dbcf8dc52940d7687
ibo en train 305 5300a29efc78c3dec1fc68c66eb1fec3a72577de4136a41d7c85aac355f1a5b8
ibo en dev 307 9636bfa38368c69319f1b7a2bca1ab995c7b4ad63c5801a25da53b34a5fa4e02
ibo en test 409 490af9c615ec5e56ec50a3da21efed82df5f67c794ac5d8d6c5e7d30845cc48d
kin en train 214 967a849f4e6d58ebbb3ea81bbbddd4f9d00a30d8752c2354cb894c1596285dc2
kin en dev 230 5598ac675fecfc5e7009a3cb1a511e81c69983a763715726d3dda2bcd3ed9d28
kin en test 347 fe067f3aa30c581adbaae7d0012eea5290b5f3119396bbb1c70d665d9e6f31eb
swa en test 295 18609b69d21c37b737426baed0a4f02495ab237285dd524e8f502f756350d0bf
twi en train 351 cdbba2a4d6a40e6e8fd587d25cb56e57ea2fe888bac254f66fc29409cec1afaa
twi en dev 348 d9bd337c4a47bb1dbccffb74fa170e418911c7b6c3cbb8c034ae17d6794ada79
twi en test 486 329221245f9880896b9038405c44b7f8ef48db3067aa556fbd82819de46b954d
yor en train 247 864d91d1cab11b587b6535e6a293cc21ba2cf62ce7cc44f175f0fd7656f4925c
yor en test 254 0aa0f6c1769f07788c918fd0dc1848b70ec0f06e8de9a6893d9037b9ff05abaa
zul en train 242 a5bd82873ef476aaad58cbfb7f5b4234d5f4798aa09ba934dc23edc397355655
zul en dev 242 3332f7063e65d80cad27d6625de1c9681569a357a6e6eab64132416e64871689
zul en test 325 e6edc93eed66267a0f8b98a96bc4ef104c66e33a903678fa260219e8c66efd75
fon fr train 282 8fd0b5ad42ee3ebdc91ac8d770c6da15718ae5605f754b9934183c09f56b383c
fon fr dev 271 0c94c4405a2b448d647bee4387cbb34b7dfc14f63fc6655f498c2d49254c8a2b
fon fr test 386 3308b7d0e455912d4e37dd0b9e8b06e6c1d108d2af040a7f7ffbc3e838dfc927
"""
_ROWS = [row.split() for row in _TABLE.strip().split("\n")]
_FILES = {
    (code, pivot, split): WebFile(
        f"https://raw.githubusercontent.com/masakhane-io/afriqa/{_COMMIT}/{path}", "afriqa", path, checksum
    )
    for code, pivot, split, _, checksum in _ROWS
    for path in [f"data/gold_passages/{code}/gold_span_passages.afriqa.{code}.{pivot}.{split}.json"]
}
# Distinct passages over all splits and languages.
_PASSAGES = {"en": 5367, "fr": 790}
_FIELD_RULE = "title + ' ' + context"
_NAN = re.compile(rb"([:\[] ?)NaN(?=[,\]}])")


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


AFRIQA = Benchmark(
    name="afriqa",
    title="AfriQA, gold passages",
    corpus_names="afriqa-en, afriqa-fr",
    topics_names="afriqa-LANG-SPLIT",
    languages=tuple(dict.fromkeys(code for code, *_ in _ROWS)),
    license="CC BY 4.0",
    citation="Ogundepo et al. AfriQA: Cross-lingual Open-Retrieval Question Answering for African Languages. "
    "Findings of EMNLP 2023",
    source=f"github.com/masakhane-io/afriqa at {_COMMIT[:10]}",
    field_rule=_FIELD_RULE,
    corpora={
        f"afriqa-{pivot}": BenchmarkCorpus(
            RemoteRecords(
                _reader(read_passage),
                [file for (_, language, _), file in _FILES.items() if language == pivot],
                _FIELD_RULE,
                unique=True,
            ),
            pivot,
            count,
        )
        for pivot, count in _PASSAGES.items()
    },
    topics={
        f"afriqa-{code}-{split}": file_topics(
            _FILES[code, pivot, split], _reader(read_query), _reader(read_judgments), int(count)
        )
        for code, pivot, split, count, _ in _ROWS
    },
    note="questions in the named language on English passages (fon: French); those without a passage are dropped",
)

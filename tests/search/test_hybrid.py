"""Several indexes searched as one: every document has what each index gave it."""

import json
import pickle
from pathlib import Path

import pytest
from golden_set import GOLDEN

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.search import main
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.runs import read_run
from milco_pyserini.request import SearchRequest
from milco_pyserini.search import SearchTopics, fuse, search_topics

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
TEXTS = {
    "phone": "Alexander Graham Bell patented the telephone.",
    "river": "The Nile is a long river in Africa.",
    "music": "The orchestra played music by Mozart.",
}
QUERIES = ["Who patented the telephone, and played music?", "A long river"]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An index of the pivot view, without texts, and one of both views, which stores them."""
    root = tmp_path_factory.mktemp("hybrid")
    encoder = MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")
    batch, ids = encoder.encode_document(list(TEXTS.values())), list(TEXTS)
    pivot = Index.build(batch.view("pivot"), root / "pivot", "exact", ids=ids, encoder=encoder)
    documents = [Document(name, "", text, {"lang": "en"}) for name, text in TEXTS.items()]
    both = Index.build(batch, root / "both", "exact", ids=documents, encoder=encoder)
    return [pivot.path, both.path]


@pytest.mark.parametrize("method", ["rrf", "rsf"])
def test_hits_are_the_fusion_of_each_indexs_hits(indexes: list[Path], method: str) -> None:
    """As runs of the same searches are fused; each hit has its ranks and scores, and a text if any index has it."""
    with Searcher.open(indexes, device="cpu", fuse=method, weights=[2, 1]) as searcher:
        found = searcher.search_batch(QUERIES, k=2)
        apart = [Searcher([index]).search_batch(QUERIES, 100) for index in searcher.indexes]
        runs = [
            {
                text: dict(zip(hits.docids, hits.scores.tolist(), strict=True))
                for text, hits in zip(QUERIES, rankings, strict=True)
            }
            for rankings in apart
        ]
        expected = [hits for _, hits in fuse(runs, method, weights=[2, 1], k=2)]
        assert [hits.docids for hits in found] == [hits.docids for hits in expected]
        assert [hits.scores.tolist() for hits in found] == [hits.scores.tolist() for hits in expected]
        assert searcher.search(QUERIES[0], k=1, offset=1).docids == found[0].docids[1:]
        other = searcher.search(QUERIES[0], k=2, fuse="rsf", weights=[1, 2])
        assert [hit.by_index.keys() for hit in other] == [hit.by_index.keys() for hit in found[0]]
        hit = found[0][0]
        for path, rankings in zip(indexes, apart, strict=True):
            given = hit.by_index[str(path)]
            assert rankings[0][given.rank - 1].docid == hit.docid
            assert rankings[0][given.rank - 1].score == given.score
        assert hit.text == TEXTS[hit.docid]
        assert pickle.loads(pickle.dumps(hit)).by_index == hit.by_index
        topics = SearchTopics(["1", "2"], texts=QUERIES)
        rows = list(search_topics(searcher, topics, SearchRequest(2)))
        assert [(topic, hits.docids) for topic, _, hits in rows] == [
            (topic, hits.docids) for topic, hits in zip("12", found, strict=True)
        ]
    with pytest.raises(MilcoError, match="is closed"):
        searcher.search(QUERIES[0])


def test_what_one_index_cannot_do_is_refused(indexes: list[Path]) -> None:
    """Filters that an index does not store, explanations, encoded topics, and options of a single index."""
    with Searcher.open(indexes, device="cpu", fuse="rrf") as searcher:
        with pytest.raises(MilcoError, match=r"pivot stores no fields to filter by"):
            searcher.search(QUERIES[0], filters={"lang": "en"})
        with pytest.raises(MilcoError, match="Explain the score in one of them: index="):
            searcher.explain(QUERIES[0], "phone")
        with pytest.raises(MilcoError, match="give texts"):
            list(search_topics(searcher, SearchTopics(["1"], vectors=[{"m_a": 1.0}]), SearchRequest()))
    for arguments, message in (
        ({"path": indexes}, "Pass fuse='rrf'"),
        ({"path": indexes[0], "fuse": "rrf"}, "fuse requires several indexes"),
        ({"path": indexes[:1], "fuse": "rrf"}, "fuse requires several indexes"),
        ({"path": [indexes[0]] * 2, "fuse": "rrf"}, "is given twice"),
        ({"path": indexes, "fuse": "rrff"}, "Did you mean rrf"),
        ({"path": indexes, "fuse": "rrf", "weights": [1]}, "must be one for each of 2"),
        ({"path": indexes, "fuse": "rrf", "weights": [1, 0]}, "weights=0: must be above 0"),
        ({"path": indexes, "fuse": "rrf", "alpha": 0.5}, "alpha applies to a single index"),
    ):
        with pytest.raises(MilcoError, match=message):
            Searcher.open(**arguments)


def test_the_command_fuses_hits_and_runs(
    indexes: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--query prints what each index gave, --topics writes the fused run; --index and --fuse need each other.

    --hybrid refuses what --fuse refuses.
    """
    names = [*map(str, indexes)]
    common = ["--index", *names, "--fuse", "rrf", "--device", "cpu"]
    assert main([*common, "--query", QUERIES[0], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["indexes"], answer["fuse"]) == (names, "rrf")
    assert set(answer["hits"][0]["by_index"]) == set(names)
    assert main([*common, "--query", QUERIES[0]]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["rank", "score", "docid", "pivot", "both", "text"] and "1 (" in first
    assert main([*common, "--query", QUERIES[0], "--distinct", "lang"]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["docid", first.split()[2]]
    topics, run = tmp_path / "topics.tsv", tmp_path / "run.txt"
    topics.write_text("".join(f"{number}\t{text}\n" for number, text in enumerate(QUERIES)))
    assert main([*common, "--topics", str(topics), "--output", str(run)]) == 0
    assert list(read_run(run)["0"])[:1] == [answer["hits"][0]["docid"]]
    capsys.readouterr()
    for more, message in (
        (["--index", *names], "Pass --fuse rrf to search them together"),
        (["--index", names[0], "--fuse", "rrf"], "--fuse requires several indexes"),
        ([*common, "--alpha", "0.5"], "--alpha applies to a single ranking, but this search fuses several. Omit it."),
        (["--index", names[0], "--hybrid", "--alpha", "0.5"], "--hybrid and --alpha exclude each other"),
        (["--index", names[0], "--hybrid", "--min-share", "0.5"], "--hybrid and --min-share exclude each other"),
        ([*common, "--distinct", "lng"], "did you mean 'lang'"),
        (["--index", names[0], "--weights", "1"], "--weights requires several indexes"),
    ):
        assert main([*more, "--query", "x"]) == 2
        assert message in capsys.readouterr().err

"""--query-encoder: queries of another encoder search the English terms of an index, if both have the same pieces."""

import shutil
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN, TEXTS
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.main import main
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import open_store

MILCO = str(GOLDEN / "ckpt_distillation")
TOPICS = ["the old harbour", "music", "a bridge over the river"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of MILCO's vectors without and with a prefix, a SPLADE checkpoint over the same pieces, and topics."""
    root = tmp_path_factory.mktemp("root")
    torch.manual_seed(5)
    sizes = {"vocab_size": 360, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = BertForMaskedLM(BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=48))
    nn.init.normal_(model.get_output_embeddings().bias, std=0.5)
    model.save_pretrained(root / "splade")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(GOLDEN / "en_lsr" / name, root / "splade")
    texts = [" ".join(text.split()) or "blank" for text in TEXTS]
    (root / "docs.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(texts)), encoding="utf-8")
    (root / "topics.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(TOPICS)), encoding="utf-8")
    documents = ["encode", "--corpus", str(root / "docs.tsv"), "--encoder", MILCO, "--dtype", "float32"]
    assert main([*documents, "--output", str(root / "plain")]) == 0
    assert main([*documents, "--output", str(root / "prefixed"), "--english-prefix", "e_"]) == 0
    topics = ["encode", "--topics", str(root / "topics.tsv"), "--encoder", str(root / "splade"), "--dtype", "float32"]
    assert main([*topics, "--output", str(root / "queries"), "--format", "parquet"]) == 0
    for name in ("plain", "prefixed"):
        Index.build(root / name, root / f"{name}.exact", "exact")
    Index.build(root / "plain", root / "plain.lucene", "lucene")
    return root


def search(index: Path, topics: Path, run: Path, *options: object) -> dict[tuple[str, str], float]:
    """Search topics with an index; return the scores."""
    arguments = ["search", "--index", index, "--topics", topics, "--output", run, "--overwrite", *options]
    assert main(list(map(str, arguments))) == 0
    rows = [line.split() for line in run.read_text().splitlines()]
    return {(row[0], row[2]): float(row[4]) for row in rows}


def test_scores_are_dot_products_of_english_weights(root: Path, tmp_path: Path) -> None:
    """Queries of one encoder score documents of the other; texts and encoded topics give the same scores."""
    options = ["--query-encoder", root / "splade", "--dtype", "float32"]
    scores = search(root / "plain.exact", root / "topics.tsv", tmp_path / "run.txt", *options)
    documents = list(open_store(root / "plain").batches())
    queries = load_encoder(root / "splade", "cpu", "float32").encode_query(TOPICS)
    expected = queries.dot(documents[0][1].view("pivot"))
    assert expected.any() and (documents[0][1].view("source").columns >= queries.english_size).all()
    for (topic, docid), score in scores.items():
        assert score == pytest.approx(expected[int(topic[1:]), documents[0][0].index(docid)], rel=1e-5)
    assert len(scores) == (expected > 0).sum()
    encoded = search(root / "plain.exact", root / "queries", tmp_path / "run.txt", "--query-encoder", root / "splade")
    assert encoded == pytest.approx(scores)


def test_prefixes_and_scales_are_those_of_the_index(root: Path, tmp_path: Path) -> None:
    """Texts get the prefix of the index; Lucene's scores are in its impacts."""
    option = ["--query-encoder", root / "splade"]
    scores = search(root / "plain.exact", root / "queries", tmp_path / "run.txt", *option)
    texts = search(root / "prefixed.exact", root / "topics.tsv", tmp_path / "run.txt", *option, "--dtype", "float32")
    assert texts == pytest.approx(scores)
    impacts = search(root / "plain.lucene", root / "queries", tmp_path / "run.txt", *option)
    assert {place: impact / 1e4 for place, impact in impacts.items()} == pytest.approx(scores, rel=0.02, abs=0.02)


@pytest.mark.parametrize(
    ("index", "topics", "options", "expected"),
    [
        ("plain.exact", "queries", [], "Or search only English terms, if both have the same pieces: --query-encoder "),
        ("plain.exact", "queries", ["--query-encoder", "mini"], "--query-encoder mini: {root}/queries was encoded by"),
        ("plain.exact", "topics.tsv", ["--query-encoder", "mini"], " are among the 358 of the index: its queries need"),
        (
            "prefixed.exact",
            "queries",
            ["--query-encoder", "{root}/splade"],
            "again with milco encode --english-prefix 'e_'",
        ),
        (
            "plain.exact",
            "topics.tsv",
            ["--query-encoder", "{root}/splade", "--encoder", "mini"],
            "the tokenizers of mini are not",
        ),
        ("plain.exact", "topics.tsv", ["--query-encoder", "{root}/splade", "--alpha", ".5"], "only has the pivot view"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused(
    root: Path,
    index: str,
    topics: str,
    options: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line with the fix, and no run."""
    options = [option.format(root=root) for option in options]
    run = tmp_path / "run.txt"
    command = ["search", "--index", str(root / index), "--topics", str(root / topics), "--output", str(run), *options]
    assert main(command) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("milco search: error: ") and expected.format(root=root) in error
    assert not run.exists()


def test_a_searcher_takes_a_query_encoder(root: Path) -> None:
    """A path or a loaded encoder; it explains nothing, and needs vectors with English terms."""
    splade = load_encoder(root / "splade", "cpu", "float32")
    by_path = Searcher.open(root / "plain.exact", query_encoder=root / "splade", dtype="float32").search("music")
    searcher = Searcher.open(root / "plain.exact", query_encoder=splade)
    assert searcher.search("music").docids == by_path.docids
    with pytest.raises(MilcoError, match="explained by the encoder of the index: omit query_encoder"):
        searcher.explain("music", by_path[0].docid)
    loaded = Searcher.open(root / "plain.exact", MilcoEncoder.from_pretrained(MILCO), query_encoder=splade)
    assert loaded.search("music").docids == by_path.docids
    Index.build(root / "plain", root / "source.exact", "exact", views=("source",))
    with pytest.raises(MilcoError, match="only have the source view"):
        Searcher.open(root / "source.exact", query_encoder=splade).search("music")

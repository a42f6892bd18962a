"""A query table: the terms of each token alone, or means of texts with it, and queries as their maxima."""

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden_set import GOLDEN, TEXTS
from safetensors.numpy import load_file, save_file

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.main import main
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.encode.query_table import QUERY_TABLE, TOP_K, QueryTable
from milco_pyserini.encode.table_training import Units, fit_rows
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.sparse import PIVOT, SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
QUERIES = ["the old harbour", "music music", " ", "a bridge over the river"]
ENCODER = ["--encoder", CHECKPOINT, "--dtype", "float32", "--device", "cpu"]
SENTENCES = [" ".join(text.split()) for text in TEXTS if text.strip()]
# Translations of each other, as far as a test is concerned.
BITEXT = [f"{text}\t{text}" for text in SENTENCES] + [f"{text.upper()}\t{text}" for text in SENTENCES]


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of the checkpoint, its vectors of some texts, an index, and topics."""
    root = tmp_path_factory.mktemp("tables")
    texts = [" ".join(text.split()) or "blank" for text in TEXTS]
    (root / "docs.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(texts)), encoding="utf-8")
    (root / "topics.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(QUERIES)), encoding="utf-8")
    assert main(["encode", "query-table", *ENCODER, "--output", str(root / "table")]) == 0
    assert main(["encode", "--corpus", str(root / "docs.tsv"), *ENCODER, "--output", str(root / "vectors")]) == 0
    Index.build(root / "vectors", root / "index", "exact")
    return root


def test_a_query_has_the_largest_weights_of_its_tokens(root: Path, encoder: MilcoEncoder) -> None:
    """Each vector is the encoder's own, with its strongest pivot terms and all source terms."""
    table = load_encoder(root / "table")
    assert isinstance(table, QueryTable)
    for text, vector in zip(QUERIES, table.encode_query(QUERIES), strict=True):
        expected: dict[str, float] = {}
        ids = encoder.tokenizer.ids([text])[0]
        for number in {*ids} - {*encoder.tokenizer.special_ids}:
            alone = encoder.network.encode([[ids[0], number, ids[-1]]], encoder.views)
            for term, weight in PruningRule("top-k", TOP_K, "pivot")(alone).to_dicts(encoder.vocabulary)[0].items():
                expected[term] = max(expected.get(term, 0), weight)
        assert vector.to_dicts(table.vocabulary)[0] == pytest.approx(expected, rel=1e-3)
    assert len(table.encode_query(" ").columns) == 0


@pytest.fixture(scope="module")
def trained(root: Path) -> QueryTable:
    """A table that is trained with the sentences."""
    (root / "xx-en.tsv").write_text("\n".join(BITEXT), encoding="utf-8")
    train = ["encode", "query-table", *ENCODER, "--train", str(root / "xx-en.tsv")]
    assert main([*train, "--output", str(root / "trained")]) == 0
    table = load_encoder(root / "trained")
    assert isinstance(table, QueryTable)
    return table


def test_a_query_of_a_trained_table_has_the_largest_weights_of_its_rows(trained: QueryTable) -> None:
    """Pairs of adjacent tokens that are frequent have rows, too."""
    size = len(trained.tokenizer.pieces)
    rows = {number: vector.to_dicts(trained.vocabulary)[0] for number, vector in enumerate(trained.vectors)}
    assert len(trained.units.pairs)
    for text in (*QUERIES, *SENTENCES):
        ids = trained.tokenizer.tokenize([text], trained.config.query_max_length)[0].ids
        keys = [first * size + second for first, second in pairwise(ids)]
        units = {*ids} | {size + trained.units.pairs.tolist().index(key) for key in keys if key in trained.units.pairs}
        expected: dict[str, float] = {}
        for unit in units:
            for term, weight in rows[unit].items():
                expected[term] = max(expected.get(term, 0), weight)
        vector = trained.encode(text, max_length=trained.config.query_max_length)
        assert vector.to_dicts()[0] == pytest.approx(expected, rel=1e-3)


def test_training_moves_queries_toward_the_vectors_of_the_encoder(
    root: Path, trained: QueryTable, encoder: MilcoEncoder
) -> None:
    """The cosine with the vectors' strongest pivot terms is larger than without training."""
    strongest = PruningRule("top-k", TOP_K, PIVOT)(encoder.encode_query(SENTENCES, views=PIVOT))
    expected = strongest.to_scipy().toarray()
    means = []
    for table in (load_encoder(root / "table"), trained):
        found = table.encode(SENTENCES, views=PIVOT, max_length=64).to_scipy().toarray()
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        means.append(float(((found * expected).sum(axis=1) / norms).mean()))
    assert means[1] > means[0]


def test_a_row_is_the_mean_of_the_texts_with_its_token() -> None:
    """A token of all texts has no terms, one of a single text has its terms, an unknown one what it has alone."""
    columns = {f"t{number}": number for number in range(10)}
    vectors = SparseBatch.from_columns([{f"t{number}": 2.0} for number in range(10)], columns, 10)
    rows, vector_of = [[0, 1 + number] for number in range(10)] * 3, np.arange(30) % 10
    alone = SparseBatch.from_columns([{}] * 11 + [{"t0": 1.0, "t1": 3.0}], columns, 10)
    units = Units.frequent(12, rows, vector_of)
    assert len(units) == 12
    fitted = fit_rows(units, rows, vectors, vector_of, alone, 1).to_scipy(10).toarray()
    assert not fitted[0].any()
    assert (fitted[1:11].diagonal() > 0.1).all()
    assert fitted[1:11].sum() == pytest.approx(fitted[1:11].trace(), rel=1e-5)
    assert fitted[11].nonzero()[0].tolist() == [1]
    assert Units.frequent(5, [[1, 2, 1]] * 3, np.arange(3)).pairs.tolist() == [1 * 5 + 2, 2 * 5 + 1]


def test_search_with_a_table_loads_no_torch(root: Path) -> None:
    """A process that searches for a text with a table has not imported torch."""
    search = ["search", "--index", str(root / "index"), "--query", QUERIES[0], "--encoder", str(root / "table")]
    program = f"import sys; from milco_pyserini.cli.main import main; assert main({search!r}) == 0; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "milco_pyserini.encode.query_table" in run.stdout.split()
    assert not {"torch", "transformers"} & {*run.stdout.split()}


def test_a_table_takes_the_place_of_its_encoder_for_queries(
    root: Path, encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts, encoded topics and Python find the same; the scores are products with the documents' vectors."""
    table = str(root / "table")
    for topics in (root / "topics.tsv", tmp_path / "queries"):
        run = tmp_path / f"{topics.stem}.txt"
        search = ["search", "--index", str(root / "index"), "--topics", str(topics), "--output", str(run)]
        if topics.suffix:
            assert main([*search, "--encoder", table]) == 0
            encode = ["encode", "--topics", str(topics), "--encoder", table, "--format", "parquet"]
            assert main([*encode, "--output", str(tmp_path / "queries")]) == 0
        else:
            assert main(search) == 0
    texts, vectors = ((tmp_path / f"{name}.txt").read_text() for name in ("topics", "queries"))
    # Their tags differ, as their options do.
    assert [line.split()[:-1] for line in texts.splitlines()] == [line.split()[:-1] for line in vectors.splitlines()]
    hits = Searcher.open(root / "index", table).search(QUERIES[0], 3)
    first = [line.split() for line in texts.splitlines() if line.startswith("q0 ")][:3]
    assert [(hit.docid, pytest.approx(hit.score, rel=1e-4)) for hit in hits] == [
        (row[2], float(row[4])) for row in first
    ]
    documents = encoder.encode_document([line.split("\t")[1] for line in (root / "docs.tsv").read_text().splitlines()])
    assert main(["search", "--index", str(root / "index"), "--query", QUERIES[0], "--encoder", table]) == 0
    assert hits[0].docid in capsys.readouterr().out
    best = load_encoder(table).encode_query(QUERIES[0]).dot(documents).max()
    assert hits[0].score == pytest.approx(best, rel=0.02)


def test_vectors_of_a_table_and_of_its_encoder_are_not_mixed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have the same hashes; --reuse distinguishes them, in both directions."""
    encoders = {"table": str(root / "table"), "network": CHECKPOINT}
    for name, encoder in encoders.items():
        encode = ["encode", "--topics", str(root / "topics.tsv"), "--encoder", encoder, "--output"]
        assert main([*encode, str(tmp_path / name)]) == 0
        assert main([*encode, str(tmp_path / f"{name}.again"), "--reuse", str(tmp_path / name)]) == 0
    for name, other, words in (("table", "network", "without"), ("network", "table", "with")):
        encode = ["encode", "--topics", str(root / "topics.tsv"), "--encoder", encoders[name]]
        capsys.readouterr()
        assert main([*encode, "--output", str(tmp_path / "mixed"), "--reuse", str(tmp_path / other)]) == 2
        assert f"its vectors were encoded {words} query_table_top_k" in capsys.readouterr().err


def test_a_table_keeps_the_identity_of_its_encoder(root: Path, encoder: MilcoEncoder) -> None:
    """Its hashes, vocabulary, views and lengths are the encoder's; its configuration names it."""
    table = load_encoder(root / "table")
    for name in ("hashes", "views"):
        assert getattr(table, name) == getattr(encoder, name)
    assert table.network.token_limit == encoder.network.token_limit
    assert table.vocabulary.to_json() == encoder.vocabulary.to_json()
    values = read_json(root / "table" / "config.json")
    assert (values["model_type"], values["checkpoint"]) == (QUERY_TABLE, CHECKPOINT)
    assert not (root / "table.parts").exists()


def test_what_a_table_cannot_do_is_one_error(
    root: Path, encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents, explanations, a table of a table, an index of other weights, an output that exists."""
    table = str(root / "table")
    for command, words in (
        (f"encode --corpus {root}/docs.tsv --encoder {table} --output {tmp_path}/v", CHECKPOINT),
        (f"explain --index {root}/index --encoder {table} --query music --doc d0", "cannot be explained"),
        (f"encode query-table --encoder {table} --output {tmp_path}/t", "is a query table already"),
        (f"encode query-table --encoder {CHECKPOINT} --dtype float32 --top-k 5 --output {table}", "--overwrite"),
        (f"encode query-table --encoder {CHECKPOINT} --output {root}", "was not written by this command"),
    ):
        assert main(command.split()) == 2
        assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    loaded = load_encoder(table)
    with pytest.raises(MilcoError, match="encode documents with"):
        loaded.encode_document("music")
    with pytest.raises(MilcoError, match="without a model"):
        _ = loaded.model
    loaded.hashes = {"weight_hash": "other"}
    with pytest.raises(MilcoError, match="weight_hash"):
        Searcher.open(root / "index", loaded).search("music")


def test_a_table_that_is_complete_is_not_built_again(
    encoder: MilcoEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same call returns it, and removes what a run left that was killed at its end; any other call is refused."""
    built = QueryTable.build(encoder, tmp_path / "table")
    (tmp_path / "table.parts").mkdir()
    (tmp_path / "table.parts" / "plan.json").touch()
    monkeypatch.setattr(encoder.network, "encode", None)
    again = QueryTable.build(encoder, tmp_path / "table")
    assert capsys.readouterr().err.endswith(f"{tmp_path / 'table'} is up to date\n")
    assert np.array_equal(again.vectors.weights, built.vectors.weights)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    with pytest.raises(MilcoError, match=r"table was begun with top_k .*, not 5\. .*overwrite=True"):
        QueryTable.build(encoder, tmp_path / "table", top_k=5)


def test_an_interrupted_run_resumes(encoder: MilcoEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete parts are not encoded again; another plan is refused."""
    monkeypatch.setattr("milco_pyserini.encode.query_table._PART", 100)
    encode, calls = encoder.network.encode, 0

    def interrupted(rows: list[list[int]], views: tuple[str, ...]) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return encode(rows, views)

    monkeypatch.setattr(encoder.network, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        QueryTable.build(encoder, tmp_path / "table")
    assert not (tmp_path / "table").exists()
    with pytest.raises(MilcoError, match=f"top_k {TOP_K}, not 5"):
        QueryTable.build(encoder, tmp_path / "table", top_k=5)
    shutil.copytree(tmp_path / "table.parts", tmp_path / "other.parts")
    table = QueryTable.build(encoder, tmp_path / "table")
    assert calls == 1 + -(-len(encoder.tokenizer.pieces) // 100)
    monkeypatch.undo()
    whole = QueryTable.build(encoder, tmp_path / "whole")
    assert np.array_equal(table.vectors.weights, whole.vectors.weights)
    assert np.array_equal(table.vectors.columns, whole.vectors.columns)
    # The remedy that the refusal names.
    assert QueryTable.build(encoder, tmp_path / "other", top_k=5, overwrite=True).config.top_k == 5


@pytest.mark.parametrize("damage", ["truncated", "weights"])
def test_a_damaged_table_is_rejected(root: Path, tmp_path: Path, damage: str) -> None:
    """In one line with its path, whether the file cannot be read or does not fit the tokenizer."""
    shutil.copytree(root / "table", tmp_path / "table")
    file = tmp_path / "table" / "model.safetensors"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        arrays = load_file(file)
        save_file(arrays | {"weights": arrays["weights"] * np.float32(np.nan)}, file)
    with pytest.raises(MilcoError, match="again with milco encode query-table"):
        load_encoder(tmp_path / "table")

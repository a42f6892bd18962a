"""milco encode --dense: dense vectors by checkpoints of many layouts, in a store like that of sparse vectors."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
import torch
from golden_set import GOLDEN
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from milco_pyserini.cli.encode import main
from milco_pyserini.corpora import open_corpus
from milco_pyserini.defaults import POOLINGS
from milco_pyserini.encode.dense import DenseEncoder, open_dense_query_encoder, pool, pool_packed
from milco_pyserini.encode.dense_store import open_dense_store
from milco_pyserini.encode.launch import PartWorker
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.packed import PackedEncoder
from milco_pyserini.sparse import open_store

TEXTS = ["music", "", "the river Nile is the longest of Africa", "music", "two words"]
WORDS = ["old", "harbour", "river", "music", "the", "two", "words", "query:", "passage:"]
ENCODER = GOLDEN / "m_encoder"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of a tiny XLM-R, to which files may be added."""
    place = tmp_path / "checkpoint"
    place.mkdir()
    for file in ENCODER.iterdir():
        (place / file.name).symlink_to(file)
    return place


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Run:
    """encode --dense in a directory with a corpus of 25 documents and 3 topics: its exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    texts = [" ".join(WORDS[: number % 7]) for number in range(25)]
    (tmp_path / "c.jsonl").write_bytes(
        b"".join(orjson.dumps({"id": f"d{number}", "contents": text}) + b"\n" for number, text in enumerate(texts))
    )
    (tmp_path / "t.tsv").write_text("q1\tmusic\nq2\told harbour\nq3\tthe river\n")

    def encoded(*more: str, dense: bool = True) -> tuple[int, str]:
        options = {"--encoder": str(ENCODER), "--device": "cpu", "--dtype": "float32", "--part-size": "10"}
        common = [word for option, value in options.items() if option not in more for word in (option, value)]
        code = main([*(["--dense"] if dense else []), *common, *more])
        return code, capsys.readouterr().err

    return encoded


def everything(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def vectors_of(path: Path) -> dict[str, np.ndarray]:
    return {
        name: row for names, rows in open_dense_store(path).batches() for name, row in zip(names, rows, strict=True)
    }


def word_tokenizer(path: Path, before: bool) -> None:
    """WORDS as a tokenizer of transformers, with a special token after every text and, if before, one before it."""
    pieces = {piece: number for number, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(pieces, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = "<s> $A </s>" if before else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(mark, pieces[mark]) for mark in ("<s>", "</s>")]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))


def bert(path: Path) -> Path:
    """A tiny BERT with 16 positions and a pooler."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=13, max_position_embeddings=16, **sizes)).save_pretrained(path)
    word_tokenizer(path, before=True)
    return path


def causal(path: Path) -> Path:
    """A tiny decoder whose tokenizer adds only an end token, like Qwen3's embedding models."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen3Model(Qwen3Config(vocab_size=13, intermediate_size=64, head_dim=16, **sizes)).save_pretrained(path)
    word_tokenizer(path, before=False)
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true, "pooling_mode_cls_token": false}')
    return path


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "XLM-R": lambda _: ENCODER,
    "MILCO": lambda _: GOLDEN / "ckpt_alignment",
    "BERT": bert,
    "decoder": causal,
}


def test_poolings_equal_their_definitions() -> None:
    """First, last and mean of the tokens; padding is ignored."""
    states = torch.tensor([[[1.0, 0], [2, 0], [6, 0]], [[1.0, 1], [3, 3], [99, 99]]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert pool(states, mask, "cls").tolist() == [[1, 0], [1, 1]]
    assert pool(states, mask, "last").tolist() == [[6, 0], [3, 3]]
    assert pool(states, mask, "mean").tolist() == [[3, 0], [2, 2]]
    together = torch.cat([states[0], states[1]])
    for pooling in POOLINGS:
        assert pool_packed(together, [3, 2], pooling).tolist() == pool(states, mask, pooling).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_vectors_do_not_depend_on_batch_composition(layout: str, tmp_path: Path) -> None:
    """L2-normalized, in the order of the texts; a blank text is zero."""
    encoder = DenseEncoder(str(LAYOUTS[layout](tmp_path)), device="cpu", dtype="float32")
    vectors = encoder.encode_document(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (5, encoder.dimensions)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1, 1, 1], abs=1e-5)
    encoder.token_budget = 1
    assert encoder.encode_document(TEXTS) == pytest.approx(vectors, abs=1e-5)
    assert encoder.encode_rows([]).shape == (0, encoder.dimensions)


def test_one_text_is_a_batch_of_one() -> None:
    """And not its letters; a length that the encoder has no positions for is refused."""
    encoder = DenseEncoder(str(ENCODER), device="cpu", dtype="float32")
    assert np.array_equal(encoder.encode_query("music"), encoder.encode_query(["music"]))
    with pytest.raises(MilcoError, match=r"maximum length 100000: encoder .* takes"):
        encoder.encode_document(["music"], max_length=100_000)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("layout", ["XLM-R", "BERT", "decoder"])
def test_vectors_equal_transformers(layout: str, pooling: str, tmp_path: Path) -> None:
    """One text at a time through AutoModel, pooled and normalized by hand."""
    from transformers import AutoModel, AutoTokenizer

    path = LAYOUTS[layout](tmp_path)
    model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    texts = ["two words", "old harbour the river", "music " * 30]
    expected = []
    for text in texts:
        # A decoder's tokens that are left out are before its mark, too.
        ids = tokenizer(text)["input_ids"]
        ids = ids if len(ids) <= 14 else [*ids[:13], ids[-1]]
        with torch.inference_mode():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        vector = {"cls": states[0], "last": states[-1], "mean": states.mean(dim=0)}[pooling]
        expected.append((vector / vector.norm()).numpy())
    encoder = DenseEncoder(str(path), pooling, device="cpu", dtype="float32")
    assert encoder.encode_document(texts, max_length=14) == pytest.approx(np.stack(expected), abs=1e-5)


def test_vectors_equal_sentence_transformers(tmp_path: Path) -> None:
    """A model that sentence-transformers saved, with its prompts, pooling and length."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    model = library.SentenceTransformer(str(ENCODER), device="cpu")
    model.max_seq_length = 9
    model.prompts = {"query": "music ", "document": "two "}
    model.save(str(tmp_path / "saved"))
    encoder = DenseEncoder(str(tmp_path / "saved"), device="cpu", dtype="float32")
    texts = ["old harbour", "the longest river of Africa " * 3]
    for name in ("encode_query", "encode_document"):
        wanted = getattr(model, name)(texts, normalize_embeddings=True)
        assert getattr(encoder, name)(texts) == pytest.approx(wanted, abs=1e-5)


def test_pooling_and_prompts_come_from_the_checkpoint(checkpoint: Path) -> None:
    """sentence-transformers' files are read, old and new; arguments take precedence."""
    (checkpoint / "1_Pooling").mkdir()
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (checkpoint / "config_sentence_transformers.json").write_text('{"prompts": {"query": "two "}}')
    encoder = DenseEncoder(str(checkpoint), device="cpu")
    assert encoder.pooling == "cls"
    assert DenseEncoder(str(checkpoint), "mean", device="cpu").pooling == "mean"
    assert (encoder.encode_query(["words"]) == encoder.encode_document(["two words"])).all()
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    asked = DenseEncoder(str(checkpoint), device="cpu", query_prompt="")
    assert (asked.pooling, asked.query_prompt, asked.document_prompt) == ("last", "", "")


def test_out_of_memory_halves_the_batches(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """The vectors are the same; a single text without memory is an error with the fix."""
    encoder = DenseEncoder(str(ENCODER), device="cpu", dtype="float32")
    texts = ["music " * number for number in range(1, 9)]
    vectors, run, most = encoder.encode_document(texts), PackedEncoder.__call__, 3

    def cramped(network: PackedEncoder, rows: list[list[int]]) -> torch.Tensor:
        if len(rows) > most:
            raise torch.OutOfMemoryError
        return run(network, rows)

    monkeypatch.setattr(PackedEncoder, "__call__", cramped)
    assert encoder.encode_document(texts) == pytest.approx(vectors, abs=1e-5)
    assert "cpu is out of memory: continuing with" in capsys.readouterr().err
    most = 0
    with pytest.raises(MilcoError, match=r"cpu has no memory for a text of .* tokens: use a smaller `max_length`"):
        encoder.encode_document(texts)


def damaged(path: Path) -> Path:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForMaskedLM(BertConfig(vocab_size=13, num_hidden_layers=1, **sizes))
    weights = {name: tensor for name, tensor in model.state_dict().items() if "query" not in name}
    model.save_pretrained(path, state_dict=weights)
    word_tokenizer(path, before=True)
    return path


def test_an_unsupported_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """A module or a pooling that is not supported, missing weights, or no model: one line that names it."""
    (checkpoint / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(MilcoError, match=r"modules.json names a module Dense: supported are Transformer, Pooling"):
        DenseEncoder(str(checkpoint), device="cpu")
    (checkpoint / "modules.json").write_text('["Dense"]')
    with pytest.raises(MilcoError, match=r"modules.json is not a list of modules"):
        DenseEncoder(str(checkpoint), device="cpu")
    (checkpoint / "modules.json").unlink()
    (checkpoint / "1_Pooling").mkdir()
    for stderr in ('{"pooling_mode_max_tokens": true}', '{"pooling_mode": ["cls", "mean"]}', "{}"):
        (checkpoint / "1_Pooling" / "config.json").write_text(stderr)
        with pytest.raises(MilcoError, match=r"does not state one pooling of cls, mean, last: .* `pooling`"):
            DenseEncoder(str(checkpoint), device="cpu")
    with pytest.raises(MilcoError, match=r"lacks the weights encoder.layer.0.attention.self.query.bias, enc"):
        DenseEncoder(str(damaged(tmp_path / "damaged")), device="cpu")
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(MilcoError, match=r"cannot be read as a dense encoder: .*unheard-of"):
        DenseEncoder(str(tmp_path), device="cpu")
    with pytest.raises(MilcoError, match=r"maximum length 600: encoder .* takes 3 to 512 tokens"):
        DenseEncoder(str(ENCODER), device="cpu").validate_length(600)


def test_a_missing_pooler_is_not_reported(tmp_path: Path) -> None:
    """transformers advises to train it; dense vectors do not depend on it."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    BertForMaskedLM(BertConfig(vocab_size=13, num_hidden_layers=1, **sizes)).save_pretrained(tmp_path)
    word_tokenizer(tmp_path, before=True)
    logger, stderr = logging.getLogger("transformers"), io.StringIO()
    level, handler = logger.level, logging.StreamHandler(stderr)
    logger.addHandler(handler)
    try:
        DenseEncoder(str(tmp_path), device="cpu")
    finally:
        logger.removeHandler(handler)
    assert stderr.getvalue() == "" and logger.level == level


def test_a_dense_store_has_every_document_and_describes_itself(run: Run, tmp_path: Path) -> None:
    """Parts in the corpus's order, float32 vectors of norm 1, and a manifest that states what they are."""
    code, stderr = run("--corpus", "c.jsonl")
    assert code == 0 and "4 of 25 texts have zero vectors (kept)\n" in stderr
    store = open_dense_store(Path("vectors/c.dense"))
    assert (len(store), store.dimensions) == (25, 32)
    about = {"dense": True, "kind": "documents", "pooling": "mean", "query_prompt": "", "document_prompt": ""}
    assert {name: store.manifest[name] for name in about} == about
    assert [part["documents"] for part in store.manifest["parts"]] == [10, 10, 5]
    names, rows = zip(*store.batches(), strict=True)
    assert [name for part in names for name in part] == [f"d{number}" for number in range(25)]
    matrix = np.concatenate(rows)
    assert matrix.dtype == np.float32
    assert np.linalg.norm(matrix, axis=1) == pytest.approx([float(number % 7 > 0) for number in range(25)], abs=1e-5)
    expected = DenseEncoder(str(ENCODER), device="cpu", dtype="float32").encode_document(["old harbour river"])[0]
    assert vectors_of(store.path)["d3"] == pytest.approx(expected, abs=1e-6)


def test_a_worker_encodes_what_one_process_writes(run: Run) -> None:
    """Pooling and prompts reach it with the plan; that processes work is in test_encode_workers.py."""
    how = ["--corpus", "c.jsonl", "--pooling", "cls", "--document-prompt", "two "]
    assert run(*how, "--output", "one")[0] == 0
    plan = EncodePlan(str(ENCODER), dtype="float32", dense=True, pooling="cls", document_prompt="two ")
    plan = plan.resolve(plan.load_encoder(Checkpoint.open(ENCODER), "cpu"), topics=False)
    part = PartWorker(plan, "cpu").encode(0, list(open_corpus("c.jsonl"))[:10])
    Path("part.parquet").write_bytes(part.content)
    found, expected = (pq.read_table(path) for path in ("part.parquet", "one/parts/part-00000.parquet"))
    assert found["id"] == expected["id"]
    vectors = [np.array(table["vector"].to_pylist()) for table in (found, expected)]
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)


def test_dense_queries_are_encoded_as_the_manifest_states(run: Run) -> None:
    """Same pooling, query prompt and case: a store of topics has what the query encoder returns."""
    how = ["--pooling", "last", "--query-prompt", "query: ", "--document-prompt", "passage: ", "--lowercase"]
    assert run("--corpus", "c.jsonl", *how)[0] == 0
    assert run("--topics", "t.tsv", *how)[0] == 0
    documents, topics = open_dense_store(Path("vectors/c.dense")), vectors_of(Path("vectors/t.dense.topics"))
    encoder = open_dense_query_encoder(documents.manifest, device="cpu", dtype="float32")
    found = encoder.encode_batch(["MUSIC", "old harbour", "the river", " "])
    assert found[:3] == pytest.approx(np.stack([topics[name] for name in ("q1", "q2", "q3")]), abs=1e-5)
    assert not found[3].any()
    plain = DenseEncoder(str(ENCODER), "last", device="cpu", dtype="float32")
    assert found[0] == pytest.approx(plain.encode_document(["query: music"])[0], abs=1e-5)
    document = plain.encode_document(["passage: old harbour"])[0]
    assert vectors_of(documents.path)["d2"] == pytest.approx(document, abs=1e-5)


def test_another_encoder_is_refused(run: Run, tmp_path: Path) -> None:
    """Its weights are not those of the manifest: one line that names both."""
    assert run("--corpus", "c.jsonl")[0] == 0
    manifest: dict[str, Any] = open_dense_store(Path("vectors/c.dense")).manifest
    with pytest.raises(MilcoError, match=r"does not fit: the vectors were encoded by .* with weight_hash"):
        open_dense_query_encoder(manifest, str(bert(tmp_path / "other")), "cpu")


def test_passages_of_long_documents_have_their_own_vectors(run: Run) -> None:
    """ID#0, ID#1, ...; not with a prompt, which only the first of them would have."""
    split = ["--corpus", "c.jsonl", "--split-passages", "--max-length", "4"]
    assert run(*split)[0] == 0
    assert {"d6#0", "d6#1"} <= vectors_of(Path("vectors/c.dense")).keys()
    code, stderr = run(*split, "--document-prompt", "passage: ", "--output", "other")
    assert code == 2 and "--split-passages would put the prompt" in stderr


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--prune", "top-k:9"], "--prune is for sparse vectors, not for --dense"),
        (["--format", "parquet"], "--format is for sparse vectors, not for --dense"),
        (["--max-length", "600"], "has positions for 514 tokens"),
    ],
)
def test_options_of_sparse_vectors_are_refused_with_dense(run: Run, more: list[str], expected: str) -> None:
    """By name, and before anything is written."""
    code, stderr = run("--corpus", "c.jsonl", *more)
    assert code == 2 and stderr.count("error:") == 1 and expected in stderr
    assert not Path("vectors").exists()


def test_options_of_dense_vectors_need_dense(run: Run) -> None:
    """And --text is only for sparse vectors."""
    for option, value in (("--pooling", "cls"), ("--query-prompt", "a"), ("--document-prompt", "a")):
        code, stderr = run("--corpus", "c.jsonl", option, value, dense=False)
        assert code == 2 and f"error: {option} is for --dense\n" in stderr
    code, stderr = run("--text", "music")
    assert code == 2 and "--text is for sparse vectors, not for --dense" in stderr


def test_sparse_and_dense_stores_are_not_mixed_up(run: Run) -> None:
    """Neither replaces the other, even with --overwrite, nor is opened as the other."""
    assert run("--corpus", "c.jsonl", "--output", "dense")[0] == 0
    milco = ["--corpus", "c.jsonl", "--encoder", str(GOLDEN / "ckpt_alignment"), "--overwrite"]
    assert run(*milco, "--output", "terms", dense=False)[0] == 0
    code, stderr = run(*milco, "--output", "dense", dense=False)
    assert code == 2 and "dense holds dense vectors of documents, not sparse vectors of documents" in stderr
    code, stderr = run(*milco, "--output", "terms")
    assert code == 2 and "terms holds sparse vectors of documents, not dense vectors of documents" in stderr
    with pytest.raises(MilcoError, match=r"^dense holds dense vectors, .*`engine=flat`"):
        open_store(Path("dense"))
    with pytest.raises(MilcoError, match=r"^terms holds sparse vectors, dense ones are needed .*`engine=lucene`"):
        open_dense_store(Path("terms"))

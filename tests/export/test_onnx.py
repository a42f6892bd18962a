"""Promises of the ONNX graph of an encoder: our vectors, in onnxruntime, Java, Anserini's own encoder and fastembed."""

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from golden_set import GOLDEN, TEXTS, dense, encoder, expected_rows

from milco_pyserini.cli.main import main
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import onnx
from milco_pyserini.export.onnx import OnnxManifest, export_encoder
from milco_pyserini.io.manifest import read_manifest
from milco_pyserini.model.forward import pad_rows

MISSING = [module for module in ("onnx", "onnxscript") if find_spec(module) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the extra onnx is not installed: {MISSING}")

# The golden set's own tolerance is 2e-5.
CLOSE = {"atol": 1e-4, "rtol": 0}
LIMITS = {"pivot_top_k": 20, "source_top_k": 6, "query_pivot_top_k": 5, "query_source_top_k": 3}
ENCODERS: dict[str, Callable[[], MilcoEncoder]] = {
    "alignment": lambda: encoder("alignment"),
    "distillation": lambda: encoder("distillation"),
    "limited": lambda: MilcoEncoder.from_pretrained(
        *(GOLDEN / "ckpt_distillation", "cpu", "float32"), source_pool="max", source_drop_special=True, **LIMITS
    ),
    "splade": lambda: load_encoder(GOLDEN / "en_lsr", "cpu", "float32"),
}
FILLED = [text for text in TEXTS if text]
SCRIPT = re.search(
    r"```python\n(import json, numpy.*?)```", Path("docs/onnx.md").read_text(encoding="utf-8"), re.DOTALL
)
JAVA = """
import json, sys
from pathlib import Path
from milco_pyserini import jvm

jvm.start()
from jnius import autoclass

home, directory, texts = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
autoclass("java.lang.System").setProperty("user.home", str(home))
"""
OWN_ENCODER = (
    JAVA
    + """
encoder = autoclass("io.anserini.encoder.sparse.SpladePlusPlusEnsembleDistilEncoder")()
for text in texts:
    entries = encoder.encode(text).entrySet().toArray()
    print(json.dumps({entry.getKey(): entry.getValue() for entry in entries}))
"""
)
OWN_LIBRARIES = (
    JAVA
    + """
Paths, LongBuffer = autoclass("java.nio.file.Paths"), autoclass("java.nio.LongBuffer")
OnnxTensor = autoclass("ai.onnxruntime.OnnxTensor")
tokenizer = autoclass("ai.djl.huggingface.tokenizers.HuggingFaceTokenizer").newInstance(
    Paths.get(str(directory / "tokenizer.json"))
)
environment = autoclass("ai.onnxruntime.OrtEnvironment").getEnvironment()
session = environment.createSession(str(directory / "model.onnx"))
for text in texts:
    ids = list(tokenizer.encode(text).getIds())
    inputs = autoclass("java.util.HashMap")()
    for name, values in (("input_ids", ids), ("attention_mask", [1] * len(ids))):
        inputs.put(name, OnnxTensor.createTensor(environment, LongBuffer.wrap(values), [1, len(ids)]))
    found = session.run(inputs)
    columns, weights = (list(found.get(name).get().getValue()) for name in ("output_idx", "output_weights"))
    print(json.dumps([columns, weights]))
"""
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[MilcoEncoder, Path]]:
    """Return an encoder and the directory of its graph, exported once."""

    @functools.cache
    def export(name: str) -> tuple[MilcoEncoder, Path]:
        loaded, directory = ENCODERS[name](), tmp_path_factory.mktemp("onnx") / name
        if name == "alignment":
            assert main(command_line(directory)) == 0
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(onnx, "_ONE_FILE", 0 if name == "limited" else 2**30)
                export_encoder(loaded, directory)
        return loaded, directory

    return export


def command_line(directory: Path) -> list[str]:
    """Return the arguments that export the alignment checkpoint."""
    return ["export", "onnx", "--encoder", str(GOLDEN / "ckpt_alignment"), "--output", str(directory)]


def run(loaded: MilcoEncoder, directory: Path, rows: list[list[int]], *outputs: str) -> list[Any]:
    """Run the graph on token ids, padded."""
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    ids, mask = pad_rows(rows, loaded.config.encoder.pad_token_id, 0, torch.device("cpu"))
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return session.run(list(outputs), {node.name: values[node.name] for node in session.get_inputs()})


def token_rows(loaded: MilcoEncoder, texts: list[str], length: int) -> list[list[int]]:
    """Return the ids of texts."""
    return [tokens.ids for tokens in loaded.tokenizer.tokenize(texts, length)]


@pytest.mark.golden
@pytest.mark.parametrize("checkpoint", ["alignment", "distillation"])
def test_vectors_equal_the_authors(checkpoint: str, exported: Callable) -> None:
    """A padded batch of texts of all lengths, the empty one as <s> </s>: the same terms, weights within 1e-4."""
    loaded, directory = exported(checkpoint)
    for length in (512, 64):
        rows = [row or [0, 2] for row in token_rows(loaded, TEXTS, length)]
        (actual,) = run(loaded, directory, rows, "passage")
        authors = expected_rows(f"{checkpoint}.len{length}")[:, : actual.shape[1]]
        np.testing.assert_array_equal(actual > 1e-5, authors > 1e-5)
        np.testing.assert_allclose(actual, authors, **CLOSE)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_queries_and_passages_equal_ours(name: str, exported: Callable) -> None:
    """Each has the terms that the configuration keeps of it, with the weights of our own vectors."""
    loaded, directory = exported(name)
    for output, encode, length in (
        ("query", loaded.encode_query, loaded.config.query_max_length),
        ("passage", loaded.encode_document, loaded.config.passage_max_length),
    ):
        (actual,) = run(loaded, directory, token_rows(loaded, FILLED, length), output)
        expected = dense(encode(FILLED), actual.shape[1])
        np.testing.assert_array_equal(actual > 0, expected > 0)
        np.testing.assert_allclose(actual, expected, **CLOSE)


def test_the_entries_of_a_query_are_those_of_its_row(exported: Callable) -> None:
    """output_idx and output_weights have the terms with a weight, ascending, of one query or of a batch."""
    loaded, directory = exported("limited")
    rows = token_rows(loaded, FILLED[:3], 64)
    for batch in (rows[:1], rows):
        columns, weights, query = run(loaded, directory, batch, "output_idx", "output_weights", "query")
        row, column = query.nonzero()
        assert columns.dtype == np.int64 and columns.tolist() == column.tolist()
        np.testing.assert_array_equal(weights, query[row, column])
    assert len(columns) <= 3 * (LIMITS["query_pivot_top_k"] + LIMITS["query_source_top_k"])


def test_the_script_of_the_docs_runs_without_torch(exported: Callable, tmp_path: Path) -> None:
    """It prints the terms and weights of encode_query()."""
    loaded, directory = exported("distillation")
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "mini.onnx").symlink_to(directory)
    assert SCRIPT is not None
    blocked = "import sys\nfor name in ('torch', 'transformers', 'milco_pyserini'): sys.modules[name] = None\n"
    program = [sys.executable, "-c", blocked + SCRIPT[1]]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    (expected,) = loaded.encode_query("Wer erfand das Telefon?").to_dicts()
    shown = eval(ended.stdout)
    assert shown == pytest.approx({term: expected[term] for term in expected}, abs=0.006)


def test_int8_is_smaller_and_near(exported: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrices have 8 bits, and vectors point almost the same way."""
    loaded, exact = exported("distillation")
    monkeypatch.setattr(onnx, "_ONE_FILE", 0)
    manifest = export_encoder(loaded, tmp_path / "int8", "int8")
    assert manifest.dtype == "int8"
    graphs = [sum(file.stat().st_size for file in place.glob("model.*")) for place in (tmp_path / "int8", exact)]
    assert graphs[0] < graphs[1]
    rows = token_rows(loaded, FILLED, 64)
    near, far = (run(loaded, place, rows, "passage")[0] for place in (tmp_path / "int8", exact))
    cosines = (near * far).sum(1) / np.linalg.norm(near, axis=1) / np.linalg.norm(far, axis=1)
    assert not np.array_equal(near, far)
    assert cosines.min() > 0.99


def test_many_weights_are_in_a_file_next_to_the_graph(exported: Callable) -> None:
    """As a protobuf file has at most 2 GB."""
    _, directory = exported("limited")
    assert (directory / "model.onnx.data").stat().st_size > 100_000
    assert "model.onnx.data" in {file.file for file in read_manifest(directory, OnnxManifest).files}


def test_the_command_writes_once_and_verifies(exported: Callable, capsys: pytest.CaptureFixture) -> None:
    """The directory is complete, verifies, is kept by the same command, and another dtype needs --overwrite."""
    loaded, directory = exported("alignment")
    assert main(["verify", str(directory)]) == 0
    # The exporter notes the lines of code that each node is from.
    assert str(Path(onnx.__file__).parent).encode() not in (directory / "model.onnx").read_bytes()
    terms = (directory / "terms.txt").read_text(encoding="utf-8").split("\n")
    assert terms == [*loaded.vocabulary.terms[: loaded.vocabulary.english_size], ""]
    capsys.readouterr()
    assert main(command_line(directory)) == 0
    assert "is up to date" in capsys.readouterr().err
    assert main([*command_line(directory), "--dtype", "int8"]) == 2
    assert "was begun with --dtype float32, not int8" in capsys.readouterr().err


def test_an_encoder_without_a_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """In one line, before anything is written."""
    assert main(["export", "onnx", "--encoder", "bm25", "--output", str(tmp_path / "x")]) == 2
    assert "--encoder bm25: has no graph: MILCO checkpoints, BGE-M3" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_graph_that_differs_is_not_written(
    exported: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are compared before the directory exists."""
    loaded, _ = exported("distillation")
    _, other = exported("limited")
    copy = functools.partial(shutil.copytree, other, dirs_exist_ok=True)
    monkeypatch.setattr(onnx, "_write_graph", lambda encoder, dtype, directory: copy(directory))
    with pytest.raises(MilcoError, match="gives other weights than the encoder, by"):
        export_encoder(loaded, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def in_java(program: str, home: Path, directory: Path, texts: list[str]) -> list[Any]:
    """Run a program with Java's libraries of Anserini's jar; return the JSON value of each line."""
    pytest.importorskip("jnius")
    arguments = [sys.executable, "-c", program, str(home), str(directory), json.dumps(texts)]
    ended = subprocess.run(arguments, capture_output=True, encoding="utf-8", check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith(("{", "["))]


@pytest.mark.integration
def test_anserini_s_own_encoder_reads_a_masked_language_model(exported: Callable, tmp_path: Path) -> None:
    """Its tokenizer and its reader of outputs give round(weight x 256 / 5); it skips the ids 0, 101 and 102."""
    loaded, directory = exported("splade")
    cache_directory = tmp_path / ".cache" / "pyserini" / "encoders"
    cache_directory.mkdir(parents=True)
    (cache_directory / "splade-pp-ed-optimized.onnx").symlink_to(directory / "model.onnx")
    (cache_directory / "splade-pp-ed-vocab.txt").symlink_to(directory / "terms.txt")
    texts = ["the old harbour", "music, a book and a river"]
    skipped = {loaded.vocabulary.terms[column] for column in (0, 101, 102)}
    for text, found in zip(texts, in_java(OWN_ENCODER, tmp_path, directory, texts), strict=True):
        (weights,) = loaded.encode_query(text).to_dicts()
        expected = {term: weight * 256 / 5 for term, weight in weights.items() if term not in skipped}
        assert found and found.keys() == expected.keys()
        assert found == pytest.approx(expected, abs=0.501)


@pytest.mark.integration
def test_java_runs_milco_with_the_libraries_of_anserini_s_jar(exported: Callable, tmp_path: Path) -> None:
    """Its tokenizer reads tokenizer.json, and its onnxruntime the graph: our terms and weights."""
    loaded, directory = exported("limited")
    texts = FILLED[:4]
    for text, (columns, weights) in zip(texts, in_java(OWN_LIBRARIES, tmp_path, directory, texts), strict=True):
        row, expected = loaded.encode_query(text).row(0)
        assert columns == row.tolist()
        np.testing.assert_allclose(weights, expected, **CLOSE)


def test_fastembed_reads_it_as_a_custom_model(exported: Callable) -> None:
    """TextEmbedding.add_custom_model() takes the dense output; queries and passages are two models."""
    pytest.importorskip("fastembed", reason="the extra onnx is not installed: fastembed is missing")
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    loaded, directory = exported("distillation")
    width = len(loaded.vocabulary)
    TextEmbedding.add_custom_model(
        "milco/golden",
        PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(hf="milco/golden"),
        dim=width,
        model_file="model.onnx",
        output_name="passage",
    )
    model = TextEmbedding("milco/golden", specific_model_path=str(directory))
    np.testing.assert_allclose(list(model.embed(FILLED)), dense(loaded.encode_document(FILLED), width), **CLOSE)


def test_the_manifest_names_the_encoder(exported: Callable) -> None:
    """By name and hashes, as a vector store's does."""
    loaded, directory = exported("splade")
    manifest = read_manifest(directory, OnnxManifest)
    assert manifest.encoder == loaded.name
    assert manifest.weight_hash == loaded.hashes["weight_hash"]

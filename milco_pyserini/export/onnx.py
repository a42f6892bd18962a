"""Write an encoder as an ONNX graph, which onnxruntime runs in Python, Java and other languages without torch."""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini import __version__
from milco_pyserini.console import log
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError, require_package
from milco_pyserini.export.directory import FORMAT_VERSION, finished_export, is_export, write_manifest
from milco_pyserini.io.files import atomic_directory, write_json
from milco_pyserini.io.records import FilesRecord
from milco_pyserini.model.configuration import term_limit
from milco_pyserini.model.forward import pad_rows
from milco_pyserini.model.modeling import SparseEncoderModel
from milco_pyserini.model.pooling import VOCABULARY_CHUNK, log_saturation
from milco_pyserini.sparse import SOURCE

GRAPH, WEIGHTS, TERMS = "model.onnx", "model.onnx.data", "terms.txt"
# Anserini has onnxruntime 1.17: it reads operators of opset 18, and files before version 10.
_OPSET, _IR_VERSION = 18, 9
# Bytes of weights within the graph's file: a protobuf has at most 2 GB.
_ONE_FILE = 2**30
# Weights of a matrix with one scale in int8.
_BLOCK = 32
# The largest difference from our vectors in float32.
_TOLERANCE = 1e-4
_CHECKED = (
    "Who invented the telephone?",
    "Wer erfand das Telefon?",
    "من الذي اخترع الهاتف؟",
    "電話を発明したのは誰ですか。",
)


class OnnxManifest(FilesRecord, frozen=True, kw_only=True):
    """An exported encoder, by its name and hashes, and its files. dtype: of the weights, float32 or int8."""

    format_version: int
    target: str
    encoder: str
    weight_hash: str
    tokenizer_hash: str
    dtype: str
    milco_pyserini: str


class EncoderGraph(nn.Module):
    """A network with its selection of terms: token ids to the weights of all terms, as queries and as passages.

    Args:
        model: float32, on the CPU.
        source_size: columns of the source view, the pieces of the tokenizer; 0 without that view.
        dropped: token ids that are not source terms.
    """

    kept: Tensor

    def __init__(self, model: SparseEncoderModel, source_size: int, dropped: list[int]) -> None:
        super().__init__()
        self.model = model
        self.source_size = source_size
        kept = torch.ones(model.config.encoder.vocab_size)
        kept[dropped] = 0
        self.register_buffer("kept", kept)
        # Constants of the graph: slices of one matrix would be computed in every run, and not be quantized.
        self.decoder = nn.ParameterList(model.decoder.weight.detach().split(VOCABULARY_CHUNK))
        self.bias = nn.ParameterList(model.decoder.bias.detach().split(VOCABULARY_CHUNK))
        self.views = (["pivot"] if len(model.decoder.weight) else []) + ([SOURCE] if source_size else [])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the outputs of the graph.

        Args:
            input_ids, attention_mask: int64 [B, S], padded on the right.
            token_type_ids: int64 [B, S], not used.

        Returns:
            Terms int64 [n] and weights float32 [n] of the queries' entries, row by row; and float32 [B, V], the weights
            of all terms of each text as a query, and as a passage.
        """
        model, head, config, mask = self.model, self.model.echo, self.model.config, attention_mask.bool()
        hidden = model.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        projected = model.connector(hidden)
        passages, queries = [], []
        for view in self.views:
            if head is not None and view == SOURCE:
                echo = head(input_ids, hidden, projected, mask) * self.kept[input_ids]
                reduce = "amax" if config.source_pool == "max" else "sum"
                weights = echo.new_zeros(echo.shape[0], self.source_size).scatter_reduce(1, input_ids, echo, reduce)
                weights = torch.relu(weights)
            else:
                # A padded position becomes a copy of <s>, which the maximum already includes.
                states = torch.where(mask.unsqueeze(-1), projected, projected[:, :1])
                chunks = zip(self.decoder, self.bias, strict=True)
                weights = log_saturation(torch.cat([functional.linear(states, *part).amax(1) for part in chunks], 1))
            passages.append(_strongest(weights, term_limit(config, view)))
            queries.append(_strongest(passages[-1], term_limit(config, view, is_query=True)))
        query, passage = torch.cat(queries, 1), torch.cat(passages, 1)
        row, term = query.nonzero().unbind(1)
        return term, query[row, term], query, passage


def export_encoder(
    encoder: MilcoEncoder, output: Path, dtype: str = "float32", overwrite: bool = False
) -> OnnxManifest:
    """Write the graph of an encoder, its tokenizer and its terms to a directory, which exists only when it is complete.

    Args:
        encoder: of MILCO, BGE-M3 or a masked language model, float32, on the CPU.
        output: the directory. If it holds the same export already, nothing is written.
        dtype: float32, or int8 for weights of 8 bits.

    Raises:
        MilcoError: output exists, a package is missing, the encoder is of another kind, or the graph gives other
            vectors than the encoder.
    """
    for package in ("onnx", "onnxscript"):
        require_package(package, "onnx", "milco export onnx")
    if not isinstance(encoder.model, SparseEncoderModel):
        raise MilcoError(f"encoder {encoder.name} has no graph: MILCO, BGE-M3 and masked language models have one")
    determining: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "target": "onnx",
        "encoder": encoder.name,
        **encoder.hashes,
        "dtype": dtype,
        "milco_pyserini": __version__,
    }
    if (finished := finished_export(output, OnnxManifest, determining, overwrite)) is not None:
        return finished
    with atomic_directory(output, overwrite, is_export) as directory:
        _write_graph(encoder, dtype, directory)
        difference = _difference(encoder, directory / GRAPH)
        if dtype == "float32" and difference > _TOLERANCE:
            raise MilcoError(f"the graph of {encoder.name} gives other weights than the encoder, by {difference:g}")
        _write_tokenizer(encoder, directory)
        manifest = write_manifest(directory, OnnxManifest, **determining)
    size = sum(file.bytes for file in manifest.files) / 1e6
    log(f"Exported {encoder.name} into {output}: {size:,.0f} MB, weights within {difference:.1g} of the encoder's")
    return manifest


def _write_graph(encoder: MilcoEncoder, dtype: str, directory: Path) -> None:
    """Write the graph with its weights, in a file next to it if there are too many."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    model, dropped = encoder.model, encoder.tokenizer.special_ids if encoder.config.source_drop_special else []
    graph = EncoderGraph(model, len(encoder.vocabulary.source) if model.echo is not None else 0, dropped).eval()
    # Anserini passes the types of tokens, too.
    inputs = ["input_ids", "attention_mask"] + ([] if encoder.vocabulary.source else ["token_type_ids"])
    # Inputs that are one tensor would become one input.
    examples = tuple(torch.ones(2, 4, dtype=torch.int64) for _ in inputs)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with torch.inference_mode(False), torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            graph,
            examples,
            dynamo=True,
            verbose=False,
            input_names=inputs,
            output_names=["output_idx", "output_weights", "query", "passage"],
            dynamic_shapes=(axes,) * len(inputs),
            opset_version=_OPSET,
        )
        program.model.ir_version = _IR_VERSION
        # Metadata of the exporter: paths of this machine.
        ClearMetadataAndDocStringPass()(program.model)
        if dtype == "int8":
            _quantize(program.model.graph)
        size = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
        onnx_ir.save(program.model, directory / GRAPH, external_data=WEIGHTS if size > _ONE_FILE else None)


def _quantize(graph: Any) -> None:
    """Replace the matrices of a graph by integers of 8 bits and scales, which onnxruntime multiplies when it loads it.

    Products stay float32. With one scale for all weights of an output, as in onnxruntime's dynamic quantization,
    milco-mini loses a tenth of its nDCG@10 on the sample: its connector has weights of very different sizes.
    """
    import onnx_ir

    for matrix in [value for value in graph.initializers.values() if len(value.const_value.shape) == 2]:
        values = matrix.const_value.numpy()
        if values.dtype != np.float32:
            continue
        # Blocks of each row of a table, or of the weights of each output of a product.
        axis = 1 if any(node.op_type == "Gather" for node in matrix.consumers()) else 0
        size = math.gcd(values.shape[axis], _BLOCK)
        blocks = values.reshape(*values.shape[:axis], -1, size, *values.shape[axis + 1 :])
        scales = np.maximum(np.abs(blocks).max(axis=axis + 1, keepdims=True) / 127, np.finfo(np.float32).tiny)
        shape = np.array(values.shape, np.int64)
        arrays = {"int8": np.rint(blocks / scales).astype(np.int8), "scales": scales, "shape": shape}
        parts = [
            onnx_ir.val(f"{matrix.name}.{name}", const_value=onnx_ir.tensor(array, name=f"{matrix.name}.{name}"))
            for name, array in arrays.items()
        ]
        cast = onnx_ir.node("Cast", parts[:1], {"to": int(onnx_ir.DataType.FLOAT)})
        product = onnx_ir.node("Mul", [cast.outputs[0], parts[1]])
        joined = onnx_ir.node("Reshape", [product.outputs[0], parts[2]])
        graph.insert_before(graph[0], [cast, product, joined])
        for node, place in list(matrix.uses()):
            node.replace_input_with(place, joined.outputs[0])
        del graph.initializers[matrix.name]
        for part in parts:
            graph.register_initializer(part)


def _write_tokenizer(encoder: MilcoEncoder, directory: Path) -> None:
    """Write the terms, one per line in the order of their columns, the tokenizer, and the lengths of texts."""
    config, tokenizer = encoder.config, encoder.tokenizer.tokenizer
    padding = config.encoder.pad_token_id
    columns = None if SOURCE in encoder.views else encoder.vocabulary.english_size
    terms = "".join(f"{term}\n" for term in encoder.vocabulary.terms[:columns])
    (directory / TERMS).write_text(terms, encoding="utf-8", newline="\n")
    tokenizer.save(str(directory / "tokenizer.json"))
    piece = encoder.tokenizer.pieces[padding]
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.passage_max_length}
    write_json(directory / "tokenizer_config.json", {**values, "pad_token": piece})
    lengths = {"query_max_length": config.query_max_length, "passage_max_length": config.passage_max_length}
    lowercase = getattr(config, "lowercase_capitals", False)
    write_json(directory / "config.json", {"pad_token_id": padding, **lengths, "lowercase_capitals": lowercase})


def _difference(encoder: MilcoEncoder, graph: Path) -> float:
    """Return the largest difference of weights from the encoder's, strongest first, in some texts of two lengths.

    Two terms of nearly equal weights may change places.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph))
    tokens = encoder.tokenizer.tokenize(_CHECKED, encoder.config.query_max_length)
    rows = pad_rows([row.ids for row in tokens], encoder.config.encoder.pad_token_id, 0, torch.device("cpu"))
    names = [node.name for node in session.get_inputs()]
    outputs = session.run(["query", "passage"], dict(zip(names, (*rows, np.zeros_like(rows[0])), strict=False)))
    both = encoder.encode_query(_CHECKED), encoder.encode_document(_CHECKED)
    pairs = [(actual, batch.to_scipy(actual.shape[1]).toarray()) for actual, batch in zip(outputs, both, strict=True)]
    return max(float(np.abs(np.sort(actual) - np.sort(expected)).max()) for actual, expected in pairs)


def _strongest(weights: Tensor, limit: int | None) -> Tensor:
    """Return weights, float32 [B, V], with only the strongest of each row; the first of equal ones."""
    if limit is None or limit >= weights.shape[1]:
        return weights
    values, columns = weights.topk(limit, dim=1)
    return torch.zeros_like(weights).scatter(1, columns, values)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's logs from stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

"""Distill a few layers from the query vectors of an encoder: the teacher's vectors, the training, the checkpoint."""

import copy
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.query_network import fingerprint
from milco_pyserini.io.files import atomic_directory, atomic_file, is_json_with, write_json
from milco_pyserini.model.checkpoint import QUERY_NETWORK, Checkpoint
from milco_pyserini.model.configuration import term_limit
from milco_pyserini.model.packed import PackedForward, native_dtype
from milco_pyserini.model.pooling import log_saturation
from milco_pyserini.model.query_forward import floats, open_tensors
from milco_pyserini.sparse import PIVOT, SparseBatch

from .export import quantize, quantize_rows

# Tokens of a passage; texts that the teacher encodes at a time, and that a step pads together.
_PASSAGE_LENGTH, _PART, _GROUP = 128, 256, 16
# Passages of a step, and columns that neither they nor the texts have.
_DRAWN, _OTHERS = 128, 500
# Weights of the losses of states, of scores, and of the scale of weights.
_STATES, _SCORES, _SCALE = 1.0, 0.5, 0.02
_WARM_UP, _LEAST_RATE = 100, 0.02
_LOG_EVERY, _SAVE_EVERY = 50, 100
_FILE = "training.pt"
# Names of tensors begin with these.
LAYERS, CONNECTOR = "encoder.encoder.layer.", "connector."
_CARD = """---
library_name: milco_pyserini
pipeline_tag: feature-extraction
tags: [sparse-retrieval, multilingual, cross-lingual, milco]
license: cc-by-sa-4.0
---

# Query encoder of {documents}

{layers} layers that were trained to give the query vectors of {documents}, whose embeddings, decoder, weights of tokens
and tokenizers it reads: `python -m recipes.milco_mini.query`. It runs without torch.

```
milco search --index indexes/NAME.lucene --query-encoder PATH --query "Wer erfand das Telefon?"
```
"""


class TeacherVectors:
    """The states of texts that the decoder of the teacher reads, and their pivot terms, computed once.

    Args:
        teacher: an encoder with a connector.
        texts: queries and passages by kind.
        directory: of its files.
    """

    def __init__(self, teacher: MilcoEncoder, texts: dict[str, list[str]], directory: Path) -> None:
        rows = teacher.tokenizer.tokenize(texts["queries"], teacher.config.query_max_length)
        # Texts that are blank to the tokenizer have no vector to learn.
        self.rows = sorted((row.ids for row in rows if row.ids), key=len)
        self.starts = np.concatenate([[0], np.cumsum([len(row) for row in self.rows])])
        self._states, self._queries = directory / "states.npy", directory / "queries.npz"
        passages = directory / "passages.npz"
        if not passages.exists():
            log(f"Teacher: {len(texts['passages']):,} passages")
            found = teacher.encode(texts["passages"], max_length=_PASSAGE_LENGTH, views=PIVOT, batch_size=32)
            found.save(passages)
        if not self._queries.exists():
            self._encode(teacher)
        self.passages, self.queries = SparseBatch.load(passages), SparseBatch.load(self._queries)
        self.states = np.load(self._states, mmap_mode="r")

    def _encode(self, teacher: MilcoEncoder) -> None:
        """Write states and terms of all queries. An interrupted run begins again."""
        forward = PackedForward(teacher.model, native_dtype())
        vocabulary = teacher.config.english_vocab_size
        limit = term_limit(teacher.config, PIVOT, is_query=True) or vocabulary
        shape = int(self.starts[-1]), teacher.config.english_hidden_size
        states = np.lib.format.open_memmap(self._states, "w+", np.float16, shape)
        parts = []
        log(f"Teacher: {len(self.rows):,} queries of {shape[0]:,} tokens")
        for first in range(0, len(self.rows), _PART):
            part = self.rows[first : first + _PART]
            start, stop = self.starts[first], self.starts[first + len(part)]
            with torch.inference_mode():
                hidden = forward.encoder(part)
                states[start:stop] = teacher.model.connector(hidden[: stop - start]).half().numpy()
                weights, columns = log_saturation(forward.head(hidden, part)[0]).topk(limit)
            row_numbers, places = (weights > 0).nonzero(as_tuple=True)
            parts.append(
                SparseBatch.from_maxima(
                    row_numbers.numpy(),
                    columns[row_numbers, places].numpy(),
                    weights[row_numbers, places].numpy(),
                    len(part),
                    vocabulary,
                )
            )
            if first // _PART % 20 == 0:
                log(f"Teacher: {first:,} queries")
        states.flush()
        SparseBatch.concatenate(parts, vocabulary).save(self._queries)


class Student(nn.Module):
    """Layers and connector that are trained, on the teacher's embeddings: token ids to what the decoder reads."""

    embeddings: Any

    def __init__(self, teacher: Any, layers: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(teacher.encoder.encoder.layer[number]) for number in layers)
        self.connector = copy.deepcopy(teacher.connector)
        self.requires_grad_(True)
        # Not submodules: they are the teacher's.
        object.__setattr__(self, "embeddings", teacher.encoder.embeddings.requires_grad_(False))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return states [B, S, D_e] for ids and a mask, int64 [B, S]."""
        states = self.embeddings(input_ids=ids)
        hidden = torch.zeros_like(mask, dtype=states.dtype).masked_fill(mask == 0, torch.finfo(states.dtype).min)
        for layer in self.layers:
            result = layer(states, hidden[:, None, None])
            states = result if isinstance(result, Tensor) else result[0]
        return self.connector(states)


class QueryTraining:
    """A training of a Student, which resumes from its file.

    Args:
        teacher: the encoder of documents.
        texts: queries and passages by kind.
        options: of the recipe.
    """

    def __init__(self, teacher: MilcoEncoder, texts: dict[str, list[str]], options: Any) -> None:
        self.options, self.file = options, options.work / _FILE
        self.teacher = TeacherVectors(teacher, texts, options.work)
        model = teacher.model.requires_grad_(False)
        self.student = Student(model, options.layers).train()
        if options.start is not None:
            tensors = open_tensors(Checkpoint.open(options.start).weight_files[0])
            for part, prefix in ((self.student.layers, LAYERS), (self.student.connector, CONNECTOR)):
                part.load_state_dict(
                    {name: torch.from_numpy(floats(tensors, prefix + name)) for name in part.state_dict()}
                )
        self.decoder, self.padding = model.decoder, teacher.config.encoder.pad_token_id
        self.optimizer = torch.optim.AdamW(self.student.parameters(), options.rate, (0.9, 0.98), weight_decay=0.01)
        self.done = 0
        if self.file.exists():
            saved = torch.load(self.file, weights_only=True)
            self.student.load_state_dict(saved["student"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.done = saved["done"]
            log(f"Resuming after step {self.done:,}")
        # Groups of texts of about the same length, which a step pads together.
        self.groups = np.array_split(np.arange(len(self.teacher.rows)), len(self.teacher.rows) // _GROUP or 1)

    def train(self) -> None:
        """Train to the last step."""
        steps, started, sums = self.options.steps, time.monotonic(), np.zeros(4)
        for step in range(self.done + 1, steps + 1):
            rate = max(_LEAST_RATE, 0.5 + 0.5 * math.cos(math.pi * step / steps)) * min(1, step / _WARM_UP)
            for group in self.optimizer.param_groups:
                group["lr"] = self.options.rate * rate
            loss, figures = self.loss(step)
            loss.backward()
            nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.done, sums = step, sums + figures
            if step % _LOG_EVERY == 0:
                cosine, states, scores, tokens = sums / _LOG_EVERY
                log(
                    f"{step}/{steps} cosine {cosine:.4f} states {states:.3f} scores {scores:.3f} "
                    f"tokens {tokens:.0f} {(time.monotonic() - started) / _LOG_EVERY:.2f} s/step"
                )
                started, sums = time.monotonic(), np.zeros(4)
            if step % _SAVE_EVERY == 0 or step == steps:
                self.save()

    def loss(self, step: int) -> tuple[Tensor, tuple[float, ...]]:
        """Return the loss of a step, and its figures: cosine, parts of the loss, tokens."""
        rng = np.random.default_rng((self.options.seed, step))
        teacher = self.teacher
        count = max(1, self.options.batch // _GROUP)
        groups = [self.groups[n] for n in rng.choice(len(self.groups), min(count, len(self.groups)), replace=False)]
        numbers = np.concatenate(groups)
        passages = teacher.passages.take(rng.choice(len(teacher.passages), min(_DRAWN, len(teacher.passages)), False))
        queries = teacher.queries.take(numbers)
        others = rng.choice(len(self.decoder.bias), min(_OTHERS, len(self.decoder.bias)), replace=False)
        columns = np.unique(np.concatenate([queries.columns, passages.columns, others]))
        goal, answers = dense(queries, columns), dense(passages, columns)
        weight, bias = (tensor[torch.from_numpy(columns)] for tensor in (self.decoder.weight, self.decoder.bias))
        found, errors, tokens = [], [], 0
        with torch.autocast("cpu", torch.bfloat16, enabled=native_dtype() == torch.bfloat16):
            for group in groups:
                ids, mask = padded([teacher.rows[n] for n in group], self.padding)
                states, is_real = self.student(ids, mask), mask.bool()
                logits = functional.linear(states, weight, bias).masked_fill(~is_real[..., None], -1e4)
                found.append(log_saturation(logits.amax(dim=1).float()))
                own = teacher.states[teacher.starts[group[0]] : teacher.starts[group[-1] + 1]]
                wanted = torch.from_numpy(own.astype(np.float32))
                # Both have the variance that the connector's LayerNorm gives them.
                error = (states[is_real].float() - wanted).square().sum(dim=1) / wanted.square().sum(dim=1)
                errors.append(error.sum())
                tokens += len(wanted)
        vectors = torch.cat(found)
        cosine = functional.cosine_similarity(vectors, goal).mean()
        scale = (vectors - goal).square().sum(dim=1).mean()
        # Scores for passages and for the texts of the batch, as far as they differ from a query's mean.
        against = torch.cat([answers, goal])
        scores, expected = (centered(one @ against.T) for one in (vectors, goal))
        ranking = (scores - expected).square().mean() / expected.square().mean()
        states_error = torch.stack(errors).sum() / tokens
        loss = (1 - cosine) + _SCALE * scale + _SCORES * ranking + _STATES * states_error
        return loss, (cosine.item(), states_error.item(), ranking.item(), float(tokens))

    def save(self) -> None:
        """Write what resumes the training."""
        state = {"student": self.student.state_dict(), "optimizer": self.optimizer.state_dict(), "done": self.done}
        with atomic_file(self.file) as handle:
            torch.save(state, handle)


def centered(scores: Tensor) -> Tensor:
    """Return scores [Q, P] without the mean of each query."""
    return scores - scores.mean(dim=1, keepdim=True)


def dense(vectors: SparseBatch, columns: NDArray[np.int64]) -> Tensor:
    """Return vectors over some columns, ascending, that include all of theirs: float32 [B, C]."""
    matrix = torch.zeros(len(vectors), len(columns))
    places = np.searchsorted(columns, vectors.columns)
    matrix[torch.from_numpy(vectors.row_numbers()), torch.from_numpy(places)] = torch.from_numpy(vectors.weights)
    return matrix


def padded(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Return ids and mask of token ids, int64 [B, S]."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long()


def write_checkpoint(student: Student, teacher: MilcoEncoder, documents: str, output: Path) -> None:
    """Write the checkpoint of a query network, replacing an existing one.

    Args:
        teacher: the encoder of documents, as it is stored at documents: the name of its checkpoint.
    """
    shared = open_tensors(Checkpoint.open(documents).weight_files[0])
    layers = {LAYERS + name: tensor for name, tensor in student.layers.state_dict().items()}
    connector = {CONNECTOR + name: tensor for name, tensor in student.connector.state_dict().items()}
    stored = quantize(layers | connector)
    for name in ("connector.projector.weight", "connector.dense.weight"):
        stored[name], stored[f"{name}_scale"] = quantize_rows(connector[name])
    config = {
        "model_type": QUERY_NETWORK,
        "documents": documents,
        "weight_hash": teacher.hashes["weight_hash"],
        "fingerprint": fingerprint(shared),
        "layers": len(student.layers),
    }
    with atomic_directory(output, True, lambda path: is_json_with(path / "config.json", "model_type")) as directory:
        save_file(stored, str(directory / "model.safetensors"), metadata={"format": "pt"})
        write_json(directory / "config.json", config)
        # safetensors writes files that only the owner can read.
        shutil.copymode(directory / "config.json", directory / "model.safetensors")
        (directory / "README.md").write_text(_CARD.format(**config), encoding="utf-8")

#
# Pyserini: Reproducible IR research with sparse and dense representations
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
# http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#

"""MILCO (ICLR 2026): text in any language to English word pieces, and to pieces of its own with the prefix m_."""

import json
import re
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from pyserini.encode import DocumentEncoder, QueryEncoder
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import AutoConfig, AutoModel

SCALE = 100
# The authors' names of tensors, and those of checkpoints that milco_pyserini saved.
RENAMED = (
    (r"^(module\.|milco\.|model\.)+", ""),
    (r"^m_model\.", "encoder."),
    (r"^projector\.", "connector.projector."),
    (r"^mlm_head\.(predictions\.transform\.)?dense\.", "connector.dense."),
    (r"^mlm_head\.(predictions\.transform\.LayerNorm|layer_norm)\.", "connector.layer_norm."),
    (r"^mlm_head\.(predictions\.)?decoder\.", "decoder."),
    (r"^mlm_head\.(predictions\.)?bias$", "decoder.bias"),
    (r"^scale$", "echo.scale"),
)
UNUSED = re.compile(r"(^|\.)(en_lsr|pooler)\.|\.position_ids$")
# Access to this model is restricted; its vocabulary is that of BERT.
VOCABULARIES = {"naver/splade-v3": "bert-base-uncased"}
# Characters at which Lucene would split a term, and those of the escapes that replace them.
SPLITS = re.compile("[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000\ue000\ue001]")


class MilcoEncoder:
    def __init__(self, model_name, device="cpu"):
        path = Path(model_name)
        self.directory = path if path.is_dir() else Path(snapshot_download(model_name))
        self.config = json.loads((self.directory / "config.json").read_text(encoding="utf-8"))
        self.device = device
        self.tokenizer = self._tokenizer(self.directory, "multilingual_encoder_checkpoint")
        english = self._tokenizer(self.directory / "english", "lsr_encoder_checkpoint")
        self.terms = [self._term(english.id_to_token(i)) for i in range(english.get_vocab_size())]
        self.source_terms = [
            self._term("m_" + self.tokenizer.id_to_token(i)) for i in range(self.tokenizer.get_vocab_size())
        ]
        self.special = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        self.weights = self._weights()
        encoder = {
            name.removeprefix("encoder."): tensor
            for name, tensor in self.weights.items()
            if name.startswith("encoder.")
        }
        self.encoder = AutoModel.from_config(self._encoder_config(encoder), add_pooling_layer=False)
        self.encoder.load_state_dict(encoder)
        self.encoder.to(device).eval()
        self.weights = {name: tensor.to(device) for name, tensor in self.weights.items() if name not in encoder}

    @staticmethod
    def _term(piece):
        return SPLITS.sub(lambda match: f"\ue001{ord(match[0]):06x}", piece)

    def _file(self, directory, field, name):
        sub_model = self.config.get(field, "")
        places = [directory, self.directory / sub_model, self.directory.parent / sub_model]
        for place in places if sub_model else places[:1]:
            if (place / name).is_file():
                return str(place / name)
        return hf_hub_download(VOCABULARIES.get(sub_model, sub_model), name)

    def _tokenizer(self, directory, field):
        tokenizer = Tokenizer.from_file(self._file(directory, field, "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def _encoder_config(self, tensors):
        fields = self.config.get("encoder")
        if fields is None:
            # The directory itself has the config.json of the whole model.
            path = self._file(self.directory / "encoder", "multilingual_encoder_checkpoint", "config.json")
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
        fields = dict(fields, vocab_size=len(tensors["embeddings.word_embeddings.weight"]))
        return AutoConfig.for_model(fields.pop("model_type", "xlm-roberta"), **fields)

    def _weights(self):
        raw = {}
        for path in sorted(self.directory.glob("*.safetensors")) or sorted(self.directory.glob("pytorch_model*.bin")):
            if path.suffix == ".bin":
                raw.update(torch.load(path, map_location="cpu", weights_only=True))
            else:
                from safetensors.torch import load_file

                raw.update(load_file(path))
        weights = {}
        for name, tensor in raw.items():
            if UNUSED.search(name) or name.endswith("_scale"):
                continue
            scale = raw.get(name + "_scale")
            for pattern, replacement in RENAMED:
                name = re.sub(pattern, replacement, name)
            weights[name] = tensor.float() if scale is None else self._dequantize(tensor, scale)
        return weights

    @staticmethod
    def _dequantize(values, scale):
        # Bytes hold two values of four bits, plus 8; a row has one scale, or one for each of its blocks.
        if values.dtype == torch.uint8:
            values = torch.stack([values & 15, values >> 4], dim=-1).flatten(1).float() - 8
        blocks = values.float().reshape(
            len(values),
            -1 if scale.ndim == 1 else scale.shape[1],
            1 if scale.ndim == 1 else values.shape[1] // scale.shape[1],
        )
        return (blocks * scale.float().reshape(len(values), -1, 1)).reshape(values.shape)

    def _ids(self, text, max_length):
        words = text.split()
        if not words:
            return []
        # Words in capitals hardly ever have the pieces of the same words in small letters; acronyms do.
        is_upper = text == text.upper() and text != text.lower()
        if self.config.get("lowercase_capitals") and is_upper and (len(words) >= 3 or max(map(len, words)) >= 8):
            text = text.lower()
        ids = self.tokenizer.encode(text).ids
        return ids if len(ids) <= max_length else ids[: max_length - 1] + ids[-1:]

    @torch.inference_mode()
    def _encode(self, texts, max_length, is_query):
        rows = [self._ids(text, max_length) for text in texts]
        vectors = [{} for _ in texts]
        filled = [number for number, ids in enumerate(rows) if len(ids) > 2]
        if not filled:
            return vectors
        longest = max(len(rows[number]) for number in filled)
        ids = torch.ones(len(filled), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, number in enumerate(filled):
            ids[row, : len(rows[number])] = torch.tensor(rows[number])
            mask[row, : len(rows[number])] = 1
        states = self.encoder(input_ids=ids.to(self.device), attention_mask=mask.to(self.device)).last_hidden_state
        for row, number in enumerate(filled):
            vectors[number] = self._vector(rows[number], states[row, : len(rows[number])], is_query)
        return vectors

    def _vector(self, ids, hidden, is_query):
        def layer(states, name):
            return functional.linear(states, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

        projected = functional.gelu(layer(functional.gelu(layer(hidden, "connector.projector")), "connector.dense"))
        norm = self.weights["connector.layer_norm.weight"], self.weights["connector.layer_norm.bias"]
        projected = functional.layer_norm(projected, projected.shape[-1:], *norm, eps=1e-12)
        pivot = torch.log1p(torch.relu(layer(projected, "decoder").amax(dim=0)))
        vector = self._strongest(pivot.cpu(), self.terms, "pivot", is_query)
        if "echo.weight" in self.weights:
            weights = torch.zeros(len(self.source_terms))
            for token, weight in zip(ids, self._echo(ids, hidden, projected).tolist(), strict=True):
                if not (self.config.get("source_drop_special") and token in self.special):
                    is_max = self.config.get("source_pool", "sum") == "max"
                    weights[token] = max(weights[token].item(), weight) if is_max else weights[token] + weight
            vector.update(self._strongest(weights, self.source_terms, "source", is_query))
        return vector

    def _echo(self, ids, hidden, projected):
        variant = self.config.get("echo_variant", "linear")
        weight, bias, scale = (self.weights.get(f"echo.{name}", torch.ones(1)) for name in ("weight", "bias", "scale"))
        if variant == "token":
            return torch.relu(weight[0, ids] + bias) * scale
        weights = torch.relu((projected if variant == "paper" else hidden) @ weight[0] + bias)
        return torch.log1p(weights) if variant == "paper" else weights * scale

    def _strongest(self, weights, terms, view, is_query):
        limits = [self.config.get(f"{view}_top_k"), is_query and self.config.get(f"query_{view}_top_k")]
        columns = torch.argsort(weights, descending=True, stable=True)[: min(filter(None, limits), default=None)]
        impacts = torch.round(weights[columns] * SCALE).long().tolist()
        return {terms[column]: impact for column, impact in zip(columns.tolist(), impacts, strict=True) if impact > 0}


class MilcoDocumentEncoder(DocumentEncoder, MilcoEncoder):
    def __init__(self, model_name, tokenizer_name=None, device="cuda:0"):
        MilcoEncoder.__init__(self, model_name, device)

    def encode(self, texts, titles=None, max_length=512, add_sep=False, **kwargs):
        if titles is not None:
            texts = [f"{title} {text}" if title else text for title, text in zip(titles, texts, strict=True)]
        return self._encode(texts, max_length, is_query=False)


class MilcoQueryEncoder(QueryEncoder, MilcoEncoder):
    def __init__(self, model_name_or_path, tokenizer_name=None, device="cpu"):
        MilcoEncoder.__init__(self, model_name_or_path, device)

    def encode(self, text, max_length=None, **kwargs):
        return self._encode([text], max_length or self.config.get("query_max_length", 64), is_query=True)[0]

"""English targets of a SPLADE-type teacher: a masked language model, its logits pooled over the tokens of a text."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from milco_pyserini.encode.splade import load_masked_language_model, take_off_decoder
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.model.loading import find_model, loading
from milco_pyserini.model.pooling import max_logits
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.teachers import LEXICAL

# What a padded position says: nothing, or a logit of 0 as in the authors' code, which hides negative maxima.
PADDINGS = ("-inf", "zero")

_EXAMPLE = "naver/splade-v3"
# Logits that stand in memory at once where the decoder cannot be taken off: 256 MB in float32.
_BLOCK_LOGITS = 1 << 26


class MaskedLanguageModelTeacher(nn.Module):
    """A frozen masked language model as a teacher: its highest logit of every piece over a text's tokens.

    model: any AutoModelForMaskedLM. tokenizer: its own. padding: one of PADDINGS. max_length: tokens of a text that
    are read. Special tokens take part, as in SPLADE. Always in eval mode, without gradients.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, padding: str = "-inf", max_length: int = 256
    ) -> None:
        super().__init__()
        if padding not in PADDINGS:
            raise unknown_name("padding", padding, PADDINGS)
        self.tokenizer = tokenizer
        self.padding = padding
        self.max_length = min(max_length, tokenizer.model_max_length)
        self.model = model.requires_grad_(False).eval()
        rows = model.get_output_embeddings().weight.shape[0]
        # A decoder may be wider than its vocabulary, for the sake of the hardware.
        self.vocabulary: list[str] = tokenizer.convert_ids_to_tokens(range(min(rows, len(tokenizer))))
        self.decoder = take_off_decoder(model)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, padding: str = "-inf", max_length: int = 256
    ) -> "MaskedLanguageModelTeacher":
        """A teacher from a local directory or, by name, from the hub's cache or the hub, in float32.

        Raises MilcoError as open_masked_language_model() does.
        """
        return cls(*open_masked_language_model(name_or_path), padding, max_length)

    def train(self, mode: bool = True) -> "MaskedLanguageModelTeacher":
        """Stay in eval mode, whatever the module around this one does."""
        return super().train(False)

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Tokens of B English sides, padded to the longest: input_ids and attention_mask, int64 [B, S]."""
        return self._tokenize([pair.english for pair in pairs])

    def _tokenize(self, texts: list[str]) -> dict[str, Tensor]:
        # Type ids are 0 for a single text, and not every model takes them.
        options = {"padding": True, "truncation": True, "max_length": self.max_length, "return_token_type_ids": False}
        return dict(self.tokenizer(texts, return_tensors="pt", **options))

    @torch.no_grad()
    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Float32 [B, V_e]: logits before LogSat, the highest over the tokens, negative ones kept."""
        inputs = {name: tensor.to(self.model.device) for name, tensor in prepared.items()}
        mask = inputs["attention_mask"].bool()
        if self.decoder is None:
            highest = self._pool_whole_logits(inputs)
        else:
            # Without its decoder the model gives the states that the decoder would take: no [B, S, V_e] is built.
            highest = max_logits(self.model(**inputs).logits, mask, self.decoder.weight, self.decoder.bias)
        highest = highest[:, : len(self.vocabulary)]
        if self.padding == "zero":
            padded = ~mask.all(dim=1, keepdim=True)
            highest = torch.where(padded, highest.clamp(min=0), highest)
        return highest

    def _pool_whole_logits(self, inputs: dict[str, Tensor]) -> Tensor:
        tokens = inputs["input_ids"].shape[1]
        texts = max(1, _BLOCK_LOGITS // (tokens * len(self.vocabulary)))
        blocks = zip(*(tensor.split(texts) for tensor in inputs.values()), strict=True)
        return torch.cat([self._pool_block(dict(zip(inputs, block, strict=True))) for block in blocks])

    def _pool_block(self, inputs: dict[str, Tensor]) -> Tensor:
        masked = ~inputs["attention_mask"].bool().unsqueeze(-1)
        return self.model(**inputs).logits.float().masked_fill(masked, -torch.inf).amax(dim=1)


def open_masked_language_model(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A whole masked language model, float32, and its tokenizer: a local directory, the hub's cache, or the hub.

    Raises MilcoError if there is none, if it cannot be had, or if it lacks a masked language model's head.
    """
    directory = find_model(str(name_or_path), "teacher", _EXAMPLE, LEXICAL)
    if not (directory / "config.json").is_file():
        raise MilcoError(f"teacher {directory} holds no config.json: it is no checkpoint")
    model = load_masked_language_model(directory, "teacher")
    with loading(directory, "a tokenizer"):
        return model, AutoTokenizer.from_pretrained(directory, trust_remote_code=False)

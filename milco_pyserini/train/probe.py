"""Sentence pairs that are not trained on, for the alarms: what do foreign texts say in English terms?

Contrastive training has no teacher of terms. A term of a sentence is grounded if its translation holds that piece.
"""

import itertools
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.errors import MilcoError
from milco_pyserini.model import MilcoModel
from milco_pyserini.train.alarms import CollapseMonitor
from milco_pyserini.train.batches import Texts
from milco_pyserini.train.data.bitext import BitextPair, BitextSource

_PER_SOURCE = 32


class Probe:
    """The first sentence pairs of every source, encoded again at every log entry."""

    def __init__(self, sources: Sequence[BitextSource], texts: Texts, english: Tokenizer, max_length: int) -> None:
        """texts, max_length: how they become tokens. english: the tokenizer whose pieces are the pivot's columns.

        Raises MilcoError if a source holds no pairs, or a line of it is none.
        """
        self.batches = []
        for source in sources:
            pairs = list(itertools.islice(source.pairs(), _PER_SOURCE))
            if not pairs:
                raise MilcoError(f"--probe: {source.name} holds no pairs")
            inputs = texts([pair.text for pair in pairs], max_length)
            self.batches.append((inputs, _pieces(pairs, english), [pair.language for pair in pairs]))

    @torch.no_grad()
    def update(self, model: MilcoModel, monitor: CollapseMonitor) -> None:
        """Let the monitor see the pairs' foreign sides as kind "probe"."""
        device = model.decoder.weight.device
        for inputs, grounded, languages in self.batches:
            output = model(**{name: tensor.to(device) for name, tensor in inputs.items()})
            monitor.update("probe", languages, output.pivot, grounded.to(device), repeated=True)


def _pieces(pairs: Sequence[BitextPair], english: Tokenizer) -> Tensor:
    """Bool [B, V_e]: the pieces of each pair's English side."""
    held = torch.zeros(len(pairs), english.get_vocab_size(), dtype=torch.bool)
    for row, encoding in enumerate(english.encode_batch([pair.english for pair in pairs], add_special_tokens=False)):
        held[row, encoding.ids] = True
    return held

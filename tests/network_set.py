"""A small model with a weight per token, and a query network of one of its layers."""

from pathlib import Path
from typing import Any

import numpy as np
from golden_set import encoder as golden_encoder

from milco_pyserini import MilcoEncoder
from recipes.milco_mini.echo import set_echo
from recipes.milco_mini.query_training import Student, write_checkpoint


def write_model(directory: Path, **fields: Any) -> MilcoEncoder:
    """Write the golden set's network with another LexEcho head; return its encoder. fields: of its configuration."""
    golden_encoder("distillation").save_pretrained(directory)
    encoder = MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32")
    weights = np.random.default_rng(1).uniform(0.2, 2, len(encoder.tokenizer.pieces)).astype(np.float32)
    set_echo(encoder.model, weights, 0.1)
    for name, value in fields.items():
        setattr(encoder.model.config, name, value)
    encoder.save_pretrained(directory)
    return MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32")


def write_network(encoder: MilcoEncoder, directory: Path, layer: int = 1) -> Path:
    """Write a query network of one layer of an encoder; return its directory."""
    write_checkpoint(Student(encoder.model, (layer,)), encoder, encoder.name, directory)
    return directory

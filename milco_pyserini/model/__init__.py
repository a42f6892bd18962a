"""The network: configuration, modeling, pooling, checkpoints, tokenization, fast forward passes."""

from milco_pyserini.model.checkpoint import find_checkpoint
from milco_pyserini.model.configuration import MilcoConfig
from milco_pyserini.model.modeling import MilcoModel, MilcoOutput, SparseEncoderModel

__all__ = ["MilcoConfig", "MilcoModel", "MilcoOutput", "SparseEncoderModel", "find_checkpoint"]

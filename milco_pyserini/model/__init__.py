"""The network and nothing else: configuration, modeling, pooling, checkpoints."""

from milco_pyserini.model.checkpoint import find_checkpoint
from milco_pyserini.model.configuration import MilcoConfig
from milco_pyserini.model.modeling import MilcoModel, MilcoOutput

__all__ = ["MilcoConfig", "MilcoModel", "MilcoOutput", "find_checkpoint"]

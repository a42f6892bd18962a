"""The network: configuration, modeling, pooling, checkpoints, tokenization, fast forward passes."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy
from milco_pyserini.model.finding import find_checkpoint

if TYPE_CHECKING:
    from milco_pyserini.model.modeling import MilcoConfig as MilcoConfig
    from milco_pyserini.model.modeling import MilcoModel as MilcoModel
    from milco_pyserini.model.modeling import MilcoOutput as MilcoOutput
    from milco_pyserini.model.modeling import SparseEncoderModel as SparseEncoderModel

_LAZY = {
    "MilcoConfig": "milco_pyserini.model.modeling",
    "MilcoModel": "milco_pyserini.model.modeling",
    "MilcoOutput": "milco_pyserini.model.modeling",
    "SparseEncoderModel": "milco_pyserini.model.modeling",
}

__all__ = ["MilcoConfig", "MilcoModel", "MilcoOutput", "SparseEncoderModel", "find_checkpoint"]
__getattr__, __dir__ = lazy(__name__, _LAZY)

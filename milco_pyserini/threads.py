"""Settings of how torch's threads wait. Commands apply them; a program that uses the library decides for itself.

    from milco_pyserini import threads

    threads.apply()                                            # before torch is imported
    threads.apply(threads.SETTINGS | {"GOMP_SPINCOUNT": "0"})  # or with another value

They are environment variables, which native libraries read once, when they are loaded. They therefore also apply to the
OpenMP of Faiss and scikit-learn, and to processes that this one starts.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["SETTINGS", "apply"]

# By default waiting threads spin, which makes encoding several times slower on cores that other processes use, too.
# Spinning for a tenth of a millisecond costs little, and saves waking threads up for a query's small products. oneDNN
# caches 1,024 kernels, one per shape of a batch, and memory grows with them; 256 are as fast.
SETTINGS: Mapping[str, str] = MappingProxyType(
    {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "5000", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256"}
)


def apply(settings: Mapping[str, str] = SETTINGS) -> None:
    """Set the environment variables; values that the environment has already are kept."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)

"""The options by which a command searches several indexes as one."""

from collections.abc import Iterator
from typing import Any

from milco_pyserini.options import changed_options, option


def index_option() -> Any:
    """Return the option --index A B."""
    return option(
        (), metavar="DIR", help="index (default: the only one in indexes/); several of a collection with --fuse"
    )


def fusion_conflicts(options: Any, *of_one_index: str) -> Iterator[str]:
    """Yield messages about options that do not go together with one or several indexes.

    Args:
        options: with the fields index and request.
        of_one_index: names of the fields that are of one encoder or engine.
    """
    fuse = options.request.fuse
    if len(options.index) > 1 and fuse is None:
        yield f"--index {' '.join(map(str, options.index))}: to search several indexes together, give --fuse rrf"
    elif fuse is not None and len(options.index) < 2:
        yield f"--fuse {fuse} is for several indexes: give --index A B, or omit it"
    elif fuse is not None:
        for name in changed_options(options, *of_one_index):
            yield f"{name} is for one index, --fuse searches several"
    elif options.request.weights:
        yield "--weights is for --fuse"

"""What is measured: the paper's model, its configurations, and the baselines of its tables, each under a short name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.reproduce.records import ANOTHER_TOKENIZER

SPARSE, DENSE, BM25, FUSION = "sparse", "dense", "bm25", "fusion"
MILCO = "milco"
FUSED = "milco+bm25"
_FIRST = "1: MILCO (SAP, SCT KD, LexEcho)"


@dataclass(frozen=True)
class System:
    """One row of the tables.

    kind: how it retrieves. checkpoint: the key of its encoder in --checkpoints. lowercase: whether the paper's
    evaluation lower-cases texts for it. long: tokens of a long document's vector, where documents are not cut into
    passages. labels: its name in the published tables. parts: the systems whose runs it fuses.
    """

    name: str
    title: str
    kind: str
    checkpoint: str | None = None
    lowercase: bool = False
    long: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    unlike: str = ""
    parts: tuple[str, ...] = ()


def _configuration(number: str, what: str, **labels: str) -> System:
    title = f"{number}: {what}"
    return System(number, title, SPARSE, number, True, labels={"miracl": title} | labels)


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System(
            MILCO,
            "MILCO",
            SPARSE,
            MILCO,
            True,
            labels={
                **dict.fromkeys(("miracl", "mldr", "mteb_v2", "neuclir"), _FIRST),
                **dict.fromkeys(("mkqa", "beir"), "MILCO"),
                "limit": f"{_FIRST} 280,524",
            },
        ),
        # The published figures are BGE-M3's, of BM25 on the pieces of its tokenizer; with an analyzer it finds more.
        System(
            "bm25",
            "BM25",
            BM25,
            labels={**dict.fromkeys(("miracl", "mldr", "mkqa"), "BM25"), "limit": "BM25 default"},
            unlike=ANOTHER_TOKENIZER,
        ),
        System(
            "bm25-pieces",
            "BM25 on BGE-M3's pieces",
            BM25,
            "m3",
            labels=dict.fromkeys(("miracl", "mldr", "mkqa"), "BM25"),
        ),
        System(FUSED, "MILCO + BM25 (RRF)", FUSION, parts=(MILCO, "bm25")),
        System(
            "m3-sparse",
            "M3-Sparse",
            SPARSE,
            "m3",
            long=8192,
            labels={"miracl": "M3-Sparse", "mldr": "M3-Sparse", "mkqa": "M3-S"},
        ),
        System(
            "m3-dense",
            "M3-Dense",
            DENSE,
            "m3",
            long=8192,
            labels={"miracl": "M3-Dense", "mldr": "M3-Dense", "mkqa": "M3-D", "mteb_v2": "bge-m3"},
        ),
        System(
            "qwen3",
            "Qwen3-Embed-0.6B",
            DENSE,
            "qwen3",
            long=32_768,
            labels={
                **dict.fromkeys(("miracl", "mldr"), "Qwen3-Embed - 0.6B"),
                "mkqa": "Q0.6",
                "mteb_v2": "Qwen3-Embed-0.6B",
                "neuclir": "Qwen3-Embed 0.6B",
                "beir": "Qwen3-0.6B",
            },
        ),
        System("splade", "SPLADE v3", SPARSE, "splade", labels={"beir": "Splade-V3"}),
        _configuration("2", "MILCO (SAP, SCT KD, MLM en)", mldr="2: MILCO (SAP, SCT KD, MLM en)"),
        _configuration("3", "MILCO (SAP, SCT, LexEcho)"),
        _configuration("4", "MILCO (SAP, MLM en)"),
        _configuration("5", "MILCO (SCT KD, MLM en)"),
        _configuration("6", "noMILCO (SCT KD, MLM m)"),
        System(
            "milco-dense",
            "MILCO-dense (distill)",
            DENSE,
            "milco-dense",
            True,
            labels={"miracl": "MILCO-dense (distill)"},
        ),
        System(
            "milco-dense-aligned",
            "MILCO-dense (align + distill)",
            DENSE,
            "milco-dense-aligned",
            True,
            labels={"miracl": "MILCO-dense (align + distill)"},
        ),
    )
}

# Those that were published. The others are trained by whoever wants their rows, and given as --checkpoints NAME=PATH.
PUBLIC = {
    MILCO: DEFAULT_ENCODER,
    "m3": "BAAI/bge-m3",
    "splade": "naver/splade-v3",
    "qwen3": "Qwen/Qwen3-Embedding-0.6B",
}
CHECKPOINTS = tuple(dict.fromkeys(system.checkpoint for system in SYSTEMS.values() if system.checkpoint))


def find_system(name: str) -> System:
    """The system of that name. Raises MilcoError, with the valid names, if there is none."""
    if name not in SYSTEMS:
        raise unknown_name("system", name, SYSTEMS)
    return SYSTEMS[name]


def read_checkpoints(encoder: str, given: Iterable[str]) -> dict[str, str]:
    """Key -> checkpoint: those that were published, encoder for MILCO's, and those given as NAME=PATH.

    Raises MilcoError for what is not written so, or names no checkpoint of the tables.
    """
    found = PUBLIC | {MILCO: encoder}
    for text in given:
        name, _, place = text.partition("=")
        if not (name and place):
            raise MilcoError(f"--checkpoints {text!r}: written NAME=PATH, such as 2=checkpoints/pivot-only")
        if name == MILCO:
            raise MilcoError(f"--checkpoints {text!r}: MILCO's own is given as --encoder")
        if name not in CHECKPOINTS:
            raise unknown_name("checkpoint", name, [key for key in CHECKPOINTS if key != MILCO])
        found[name] = place
    return found

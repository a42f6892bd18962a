"""The tables by the names that a person gives, the cheap ones first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.reproduce import analyses, mteb_tasks, sample, tables
from milco_pyserini.reproduce.cells import Table
from milco_pyserini.reproduce.roads import Roads
from milco_pyserini.reproduce.systems import FUSED, MILCO, System, find_system

Build = Callable[[Roads, Sequence[System], Sequence[str]], list[Table]]

_BASELINE = (MILCO, "bm25")


@dataclass(frozen=True)
class Group:
    """What one name stands for. columns: those that --lang chooses from; systems: those measured if none is named.

    milco_alone: whether it is an analysis of MILCO, in which other systems have no row.
    """

    name: str
    about: str
    columns: tuple[str, ...]
    build: Build
    systems: tuple[str, ...] = _BASELINE
    milco_alone: bool = False


def _groups() -> list[Group]:
    miracl = tuple(tables.MIRACL)
    return [
        Group("sample", "the embedded sample, offline", tuple(sample.LANGUAGES), sample.sample, (*_BASELINE, FUSED)),
        Group("miracl", "MIRACL, all passages", miracl, tables.miracl),
        Group("miracl-hn", "MIRACL, MTEB's hard negatives", miracl, tables.miracl_hn),
        Group("mldr", "MLDR, long documents", tuple(tables.MLDR), tables.mldr),
        Group("mkqa", "MKQA on English Wikipedia", tuple(tables.MKQA), tables.mkqa),
        Group("mteb-v2", "six tasks of MTEB v2", tuple(mteb_tasks.TASKS), mteb_tasks.mteb),
        Group("neuclir", "NeuCLIR's multilingual task", tuple(tables.NEUCLIR), tables.neuclir),
        Group("beir", "BEIR", tuple(tables.BEIR), tables.beir),
        Group("limit", "LIMIT, recall at three depths", tuple(tables.LIMIT), tables.limit),
        Group("pruning-top-k", "pruning to k terms", miracl, analyses.pruning_top_k, (MILCO,), True),
        Group("pruning-mass", "pruning by percentile", miracl, analyses.pruning_mass, (MILCO,), True),
        Group("alpha", "the sweep between the views", miracl, analyses.alpha, (MILCO,), True),
        Group("latency", "Seismic latency on English MIRACL", ("en",), analyses.latency, (MILCO,)),
        Group("lengths", "text length against sparsity", miracl, analyses.lengths, (MILCO,), True),
        Group("coverage", "alignment coverage", miracl, analyses.coverage, (MILCO,), True),
    ]


# In the paper's order, which is the page's.
GROUPS: dict[str, Group] = {group.name: group for group in _groups()}
# What --all measures, the small collections first; the sample is no table of the paper.
BY_COST = (
    *("limit", "miracl-hn", "alpha", "pruning-top-k", "pruning-mass", "coverage", "lengths"),
    *("mteb-v2", "mldr", "mkqa", "neuclir", "beir", "miracl", "latency"),
)


def find_group(name: str) -> Group:
    """The tables of that name. Raises MilcoError, with the valid names, if there are none."""
    if name not in GROUPS:
        raise unknown_name("table", name, GROUPS)
    return GROUPS[name]


def chosen_tables(group: Group, roads: Roads, systems: Sequence[str], columns: Sequence[str]) -> list[Table]:
    """The tables of a group for systems and columns; none named, its own.

    Raises MilcoError for a name that is unknown there, and for an analysis of MILCO without MILCO.
    """
    if group.milco_alone and systems and MILCO not in systems:
        raise MilcoError(f"--systems {' '.join(systems)}: {group.name} is an analysis of {MILCO} alone")
    for column in columns:
        if column not in group.columns:
            raise unknown_name(f"column of {group.name} (--lang)", column, group.columns)
    # In the group's order, whatever the order in which they were named.
    wanted = tuple(column for column in group.columns if not columns or column in columns)
    return group.build(roads, [find_system(name) for name in dict.fromkeys(systems or group.systems)], wanted)


def all_tables(roads: Roads, systems: Sequence[str], columns: Sequence[str]) -> list[Table]:
    """The tables of all groups but the sample's that have one of the systems and one of the columns; none named, any.

    Raises MilcoError for a name that no group knows.
    """
    groups = [GROUPS[name] for name in BY_COST if not GROUPS[name].milco_alone or not systems or MILCO in systems]
    for column in columns:
        if all(column not in group.columns for group in groups):
            known = dict.fromkeys(known for group in groups for known in group.columns)
            raise unknown_name("column (--lang)", column, known)
    found: list[Table] = []
    for group in groups:
        mine = [column for column in columns if column in group.columns]
        if mine or not columns:
            found += chosen_tables(group, roads, systems, mine)
    return found

"""A measure's name to what is measured: ir_measures' spelling (nDCG@10) or trec_eval's (ndcg_cut.10).

Only measures that trec_eval defines are offered, and Judged@k, so that every figure can be checked with it.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from milco_pyserini.errors import MilcoError, nearest


class Cutoff(Enum):
    """What may stand behind the @ of a measure."""

    NONE = "takes no cutoff"
    OPTIONAL = "takes a rank"
    REQUIRED = "needs a rank"
    RECALL = "needs a recall level from 0 to 1"


@dataclass(frozen=True)
class Kind:
    """One family of measures. example: a full name, shown in errors. parameters: what its brackets take."""

    meaning: str
    example: str
    cutoff: Cutoff
    parameters: tuple[str, ...] = ()


_ALL = ("judged_only", "rel")

KINDS = {
    "AP": Kind("average precision", "AP@1000", Cutoff.OPTIONAL, _ALL),
    "Bpref": Kind("preference of relevant to judged non-relevant documents", "Bpref", Cutoff.NONE, ("rel",)),
    "IPrec": Kind("precision interpolated at a recall level", "IPrec@0.1", Cutoff.RECALL, _ALL),
    "Judged": Kind("share of the results that are judged", "Judged@10", Cutoff.OPTIONAL),
    "P": Kind("precision", "P@10", Cutoff.REQUIRED, _ALL),
    "R": Kind("recall", "R@100", Cutoff.REQUIRED, _ALL),
    "RR": Kind("reciprocal rank of the first relevant document", "RR@10", Cutoff.OPTIONAL, ("rel",)),
    "Rprec": Kind("precision at the number of relevant documents", "Rprec", Cutoff.NONE, _ALL),
    "SetP": Kind("precision of all results", "SetP", Cutoff.NONE, _ALL),
    "SetR": Kind("recall of all results", "SetR", Cutoff.NONE, ("rel",)),
    "Success": Kind("whether a relevant document is found", "Success@5", Cutoff.REQUIRED, _ALL),
    "nDCG": Kind("normalised discounted cumulative gain, linear gains", "nDCG@10", Cutoff.OPTIONAL, ("judged_only",)),
}

# trec_eval's names and others in use, in lower case; the names above are understood in any case too.
_ALIASES = {
    "iprec_at_recall": "IPrec",
    "map": "AP",
    "map_cut": "AP",
    "mrr": "RR",
    "ndcg_cut": "nDCG",
    "precision": "P",
    "recall": "R",
    "recip_rank": "RR",
    "set_p": "SetP",
    "set_recall": "SetR",
}
_SPELLINGS = {name.lower(): name for name in KINDS} | _ALIASES

MAXIMUM_RANK = 1_000_000

_FORM = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?:\((.*)\))?(?:[@._]([0-9.,]+))?")
_PARAMETER = re.compile(r"\s*(\w+)\s*=\s*([1-9][0-9]{0,5}|True|False)\s*")


@dataclass(frozen=True)
class Measure:
    """One measure: its family in KINDS, its cutoff (a rank or a recall level) and its brackets, sorted."""

    kind: str
    cutoff: int | float | None = None
    parameters: tuple[tuple[str, int | bool], ...] = ()

    def __str__(self) -> str:
        inside = ",".join(f"{name}={value}" for name, value in self.parameters)
        behind = "" if self.cutoff is None else f"@{self.cutoff}"
        return f"{self.kind}{f'({inside})' if inside else ''}{behind}"


def parse_measures(texts: Iterable[str]) -> list[Measure]:
    """The measures that texts name, each once, in their order; "recall.10,100" names two.

    Raises MilcoError for a name that is not offered, with the nearest match.
    """
    return list(dict.fromkeys(measure for text in texts for measure in _parse(text)))


def _parse(text: str) -> list[Measure]:
    form = _FORM.fullmatch(text)
    name, inside, behind = form.groups() if form else (re.split(r"[@(.]", text)[0], None, None)
    kind = _SPELLINGS.get(name.lower())
    if kind is None:
        near = nearest(name, _SPELLINGS, cutoff=0.5)
        guess = f"did you mean {_SPELLINGS[near] + text[len(name) :]!r}? " if near else ""
        valid = ", ".join(kind.example for kind in KINDS.values())
        raise MilcoError(
            f"unknown measure {text!r}: {guess}valid are {valid}, and trec_eval's names (ndcg_cut.10, map)"
        )
    if form is None:
        raise MilcoError(f"measure {text!r} is not spelled like {KINDS[kind].example}")
    parameters = _parameters(text, kind, inside)
    return [Measure(kind, cutoff, parameters) for cutoff in _cutoffs(text, kind, behind)]


def _parameters(text: str, kind: str, inside: str | None) -> tuple[tuple[str, int | bool], ...]:
    found: dict[str, int | bool] = {}
    for part in inside.split(",") if inside else ():
        match = _PARAMETER.fullmatch(part)
        if match is None:
            raise MilcoError(f"measure {text!r}: {part!r} is not of the form rel=2 or judged_only=True")
        name, value = match[1], ast.literal_eval(match[2])
        if name not in KINDS[kind].parameters:
            valid = ", ".join(KINDS[kind].parameters) or "nothing"
            raise MilcoError(f"measure {text!r}: {kind} takes {valid} in its brackets, not {name!r}")
        if isinstance(value, bool) != (name == "judged_only"):
            raise MilcoError(f"measure {text!r}: rel takes a grade such as 2, judged_only takes True or False")
        found[name] = value
    defaults = {"rel": 1, "judged_only": False}
    return tuple(sorted((name, value) for name, value in found.items() if value != defaults[name]))


def _cutoffs(text: str, kind: str, behind: str | None) -> list[int | float | None]:
    wanted = KINDS[kind].cutoff
    example = KINDS[kind].example
    if behind is None:
        if wanted in (Cutoff.REQUIRED, Cutoff.RECALL):
            raise MilcoError(f"measure {text!r}: {kind} {wanted.value}, such as {example}")
        return [None]
    if wanted is Cutoff.NONE:
        raise MilcoError(f"measure {text!r}: {kind} {wanted.value}")
    return [_cutoff(text, kind, part) for part in behind.split(",")]


def _cutoff(text: str, kind: str, part: str) -> int | float:
    if KINDS[kind].cutoff is Cutoff.RECALL:
        # trec_eval computes any level but names it with two digits, so that .125 would be shown as .12.
        if re.fullmatch(r"0?\.[0-9][0-9]?0*|1(\.0*)?|0(\.0*)?", part):
            return float(part)
        raise MilcoError(f"measure {text!r}: {kind} takes a recall level from 0 to 1 in hundredths, not {part!r}")
    if re.fullmatch(r"[1-9][0-9]{0,6}", part) and int(part) <= MAXIMUM_RANK:
        return int(part)
    raise MilcoError(f"measure {text!r}: a cutoff is a rank from 1 to {MAXIMUM_RANK:,}, not {part!r}")

"""Parse names of measures: those of ir_measures (nDCG@10) and of trec_eval (ndcg_cut.10).

Offered are measures that trec_eval computes, so that every value can be checked with it, and Judged@k.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from milco_pyserini.errors import MilcoError, nearest, shown
from milco_pyserini.eval.report import ReportTable

if TYPE_CHECKING:
    import ir_measures

# ir_measures' name -> an example with all that the measure requires.
EXAMPLES = {
    example.partition("@")[0]: example
    for example in "nDCG@10 R@100 RR@10 AP@1000 P@10 Success@5 Rprec Bpref IPrec@0.1 SetP SetR Judged@10".split()
}
# trec_eval's names that are not ir_measures' too, as ndcg and P are.
_TREC_NAMES = (
    *("ndcg_cut", "map", "map_cut", "recip_rank", "recall", "P", "success", "Rprec", "bpref", "iprec_at_recall"),
    *("set_P", "set_recall"),
)
MAXIMUM_RANK = 1_000_000
_PARAMETERS = {
    "cutoff": (f"a rank from 1 to {MAXIMUM_RANK:,}", lambda value: type(value) is int and 1 <= value <= MAXIMUM_RANK),
    # trec_eval names a level with two digits: .125 would be reported as .12.
    "recall": ("a recall level from 0 to 1 in hundredths", lambda value: 0 <= value <= 1 and round(value, 2) == value),
    "rel": ("a grade from 1", lambda value: type(value) is int and 1 <= value <= MAXIMUM_RANK),
    "judged_only": ("True or False", lambda value: type(value) is bool),
}
_NATIVE = re.compile(r"([A-Za-z]+)(\([\w\s=,]*\))?(@[0-9.]+)?", re.ASCII)
_TREC = re.compile(r"([A-Za-z_]+?)[._]?([0-9][0-9.,]*)?")


def parse_measures(names: Iterable[str]) -> "list[ir_measures.Measure]":
    """Return the measures with these names, each once; "recall.10,100" names two.

    Raises:
        MilcoError: a name is not of an offered measure, with the nearest one, its cutoff or parameters are invalid, or
            there are no names.
        TypeError: names is a str.

    Example:
        >>> [str(measure) for measure in parse_measures(["ndcg@10", "recall.10,100", "P(rel=2)@5"])]
        ['nDCG@10', 'R@10', 'R@100', 'P(rel=2)@5']
    """
    if isinstance(names, str):
        raise TypeError(f"measures expects a list of names, got the str {names!r}")
    parsed = list(dict.fromkeys(measure for name in names for measure in _parse(name)))
    if not parsed:
        raise MilcoError("no measures were given, such as nDCG@10")
    return parsed


def measures_table() -> ReportTable:
    """Tabulate the offered measures with ir_measures' full names and citations."""
    import ir_measures

    rows = []
    for name, example in EXAMPLES.items():
        measure = getattr(ir_measures, name)
        dblp = re.search(r"cite\.dblp:: (\S+)", measure.__doc__ or "")
        link = re.search(r":link: (\S+)", measure.__doc__ or "")
        source = f"https://dblp.org/rec/{dblp[1]}" if dblp else link[1] if link else "-"
        rows.append((example, measure.PRETTY_NAME, source))
    return ReportTable(("measure", "name", "source"), (), rows)


def _parse(name: str) -> "list[ir_measures.Measure]":
    import ir_measures

    registry = ir_measures.measures.registry
    spellings = {key.lower(): key for key, measure in registry.items() if measure.NAME in EXAMPLES}
    native, trec = _NATIVE.fullmatch(name), _TREC.fullmatch(name)
    head = re.split(r"[@(.]", name)[0]
    try:
        if native and native[1].lower() in spellings:
            measures = [ir_measures.parse_measure(spellings[native[1].lower()] + name[native.end(1) :])]
        elif trec and trec[1] in _TREC_NAMES:
            measures = ir_measures.parse_trec_measure(name)
        elif head.lower() in spellings:
            raise ValueError
        else:
            near = nearest(head, [*spellings.values(), *_TREC_NAMES, *EXAMPLES], cutoff=0.5)
            guess = f"did you mean {near + name[len(head) :]!r}? " if near else ""
            raise MilcoError(
                f"unknown measure {shown(name)}: {guess}valid are {', '.join(EXAMPLES.values())}, and "
                "trec_eval's names (ndcg_cut.10, map)"
            )
    except ValueError:
        example = EXAMPLES[registry[spellings[head.lower()]].NAME] if head.lower() in spellings else "nDCG@10"
        raise MilcoError(f"measure {shown(name)} is not written like {example} or P(rel=2)@10") from None
    return [_validated(name, measure) for measure in measures]


def _validated(name: str, measure: "ir_measures.Measure") -> "ir_measures.Measure":
    """Return the measure with its parameters in alphabetical order, so that equal measures are equal."""
    supported = measure.SUPPORTED_PARAMS
    example = EXAMPLES[str(measure.NAME)]
    params = {}
    for parameter, value in sorted(measure.params.items()):
        if parameter == "cutoff" and parameter not in supported:
            raise MilcoError(f"measure {shown(name)}: {measure.NAME} takes no cutoff")
        if parameter not in supported or parameter not in _PARAMETERS:
            valid = [parameter for parameter in ("rel", "judged_only") if parameter in supported]
            raise MilcoError(
                f"measure {shown(name)}: {measure.NAME} takes {', '.join(valid) or 'no parameter'}, not {parameter!r}"
            )
        rule, is_valid = _PARAMETERS[parameter]
        if not is_valid(value):
            raise MilcoError(f"measure {shown(name)}: {parameter} expects {rule}, got {value}")
        params[parameter] = float(value) if parameter == "recall" else value
    for parameter, info in supported.items():
        if info.required and parameter not in params:
            raise MilcoError(f"measure {shown(name)}: {measure.NAME} requires a {parameter}, such as {example}")
    if "cutoff" in params and params.get("judged_only") and measure.NAME == "RR":
        raise MilcoError(f"measure {shown(name)}: trec_eval has no RR of judged documents with a cutoff")
    return type(measure)(**params)

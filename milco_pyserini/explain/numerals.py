"""Numbers of a score as a person reads them."""

from milco_pyserini.explain.parts import Explanation


def numeral(value: float, explanation: Explanation) -> str:
    """A number of this explanation's engine: whole where the engine counts in whole numbers, else with four digits."""
    return f"{round(value):,}" if explanation.unit != 1 else f"{value:,.4f}"


def share(part: float, whole: float) -> float:
    """part / whole, 0 where there is no whole."""
    return part / whole if whole else 0.0

"""Numbers of a score as a person reads them."""

from milco_pyserini.explain.parts import Explanation, Hit


def numeral(value: float, explanation: Explanation | Hit) -> str:
    """A number of this explanation's engine: whole where the engine counts in whole numbers, else with four digits.

    What is not 0 is never shown as 0.
    """
    if explanation.unit != 1:
        return f"{round(value):,}"
    return f"{value:,.4f}" if value == 0 or abs(value) >= 0.00005 else f"{value:.0e}"


def mixture(alpha: float) -> str:
    """What alpha made of the query."""
    return f"alpha {alpha:g}: in the query, {alpha:g} of the pivot view and {1 - alpha:g} of the source view"


def share(part: float, whole: float) -> float:
    """part / whole, 0 where there is no whole."""
    return part / whole if whole else 0.0

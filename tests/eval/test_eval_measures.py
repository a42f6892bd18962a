"""Names of measures, right and wrong."""

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.evaluation import evaluate
from milco_pyserini.eval.measures import KINDS, MAXIMUM_RANK, Cutoff, parse_measures


def names(*texts: str) -> list[str]:
    return [str(measure) for measure in parse_measures(texts)]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("nDCG@10", "nDCG@10"),
        ("ndcg@10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg", "nDCG"),
        ("recall.1000", "R@1000"),
        ("Recall@5", "R@5"),
        ("map", "AP"),
        ("map_cut.100", "AP@100"),
        ("recip_rank", "RR"),
        ("MRR@10", "RR@10"),
        ("P.10", "P@10"),
        ("P_10", "P@10"),
        ("success.5", "Success@5"),
        ("judged.10", "Judged@10"),
        ("iprec_at_recall.0.10", "IPrec@0.1"),
        ("iprec_at_recall_1.00", "IPrec@1.0"),
        ("set_P", "SetP"),
        ("bpref", "Bpref"),
        ("P(rel=2)@5", "P(rel=2)@5"),
        ("AP( judged_only=True , rel=2 )", "AP(judged_only=True,rel=2)"),
        ("AP(rel=1)", "AP"),
    ],
)
def test_ir_measures_and_trec_evals_spellings_name_the_same_measure(spelling: str, name: str) -> None:
    """Whatever the spelling, the table's head is ir_measures' name."""
    assert names(spelling) == [name]


def test_a_list_of_cutoffs_names_several_measures_and_each_is_kept_once() -> None:
    """As trec_eval's -m recall.10,100; a second mention adds no second column."""
    assert names("recall.10,100", "R@100", "map", "AP") == ["R@10", "R@100", "AP"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@20", "unknown measure 'ndgc@20': did you mean 'nDCG@20'?"),
        ("F1", "unknown measure"),
        ("", "unknown measure ''"),
        ("gm_map", "unknown measure 'gm_map'"),
        ("R", "R needs a rank, such as R@100"),
        ("P@0", "from 1 to 1,000,000, not '0'"),
        ("P@-1", "not spelled like P@10"),
        ("P@1.5", "not '1.5'"),
        ("P@10,", "not ''"),
        (f"P@{MAXIMUM_RANK + 1}", "from 1 to 1,000,000"),
        ("P@" + "9" * 5000, "from 1 to 1,000,000"),
        ("Rprec@10", "Rprec takes no cutoff"),
        ("IPrec", "IPrec needs a recall level"),
        ("IPrec@2", "from 0 to 1 in hundredths, not '2'"),
        ("IPrec@0.125", "in hundredths"),
        ("nDCG(rel=2)@10", "nDCG takes judged_only in its brackets, not 'rel'"),
        ("Judged(rel=2)@10", "Judged takes nothing"),
        ("AP(rel=True)", "rel takes a grade"),
        ("AP(rel=__import__('os'))", "not of the form"),
        ("AP(2)", "not of the form"),
        ("AP(rel=02)", "not of the form"),
        ("P@٣", "not spelled like P@10"),
    ],
)
def test_a_wrong_measure_is_refused_with_what_is_right(text: str, message: str) -> None:
    """The message names the value and the fix."""
    with pytest.raises(MilcoError) as error:
        parse_measures([text])
    assert message in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_offered_can_be_computed(kind: str) -> None:
    """Each family's example, each of its brackets, and the largest cutoff."""
    plain = KINDS[kind].example.split("@")[0]
    behind = KINDS[kind].example.removeprefix(plain)
    values = {"rel": 2, "judged_only": True}
    wanted = [KINDS[kind].example, *(f"{plain}({p}={values[p]}){behind}" for p in KINDS[kind].parameters)]
    if KINDS[kind].cutoff is Cutoff.OPTIONAL:
        wanted.append(plain)
    if KINDS[kind].cutoff in (Cutoff.REQUIRED, Cutoff.OPTIONAL):
        wanted.append(f"{plain}@{MAXIMUM_RANK}")
    evaluation = evaluate({"1": {"a": 2.0, "b": 1.0}}, {"1": {"a": 2, "c": 0}}, wanted)
    assert all(0 <= value <= 1 for value in evaluation.mean.values())
    assert len(evaluation.mean) == len(wanted)

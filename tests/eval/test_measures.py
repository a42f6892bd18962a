"""Names of measures, valid and invalid."""

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate, parse_measures, render
from milco_pyserini.eval.measures import EXAMPLES, MAXIMUM_RANK, measures_table


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
        ("iprec_at_recall.0.10", "IPrec@0.1"),
        ("iprec_at_recall_1.00", "IPrec@1.0"),
        ("IPrec@1", "IPrec@1.0"),
        ("set_P", "SetP"),
        ("bpref", "Bpref"),
        ("P(rel=2)@5", "P(rel=2)@5"),
        ("AP( rel=2 , judged_only=True )", "AP(judged_only=True,rel=2)"),
        ("AP(rel=1)", "AP"),
    ],
)
def test_ir_measures_and_trec_eval_names_are_the_same_measure(spelling: str, name: str) -> None:
    """Tables have ir_measures' name."""
    assert names(spelling) == [name]


def test_a_name_with_several_cutoffs_is_several_measures_and_none_is_repeated() -> None:
    """As trec_eval's -m recall.10,100."""
    assert names("recall.10,100", "R@100", "map", "AP") == ["R@10", "R@100", "AP"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@20", "unknown measure 'ndgc@20': did you mean 'nDCG@20'?"),
        ("recip_rnk", "did you mean 'recip_rank'?"),
        ("F1", "unknown measure"),
        ("", "unknown measure ''"),
        ("gm_map", "unknown measure 'gm_map'"),
        ("official", "unknown measure 'official'"),
        ("R", "R requires a cutoff, such as R@100"),
        ("P@0", "cutoff expects a rank from 1 to 1,000,000, got 0"),
        ("P@-1", "not written like P@10"),
        ("P@1.5", "got 1.5"),
        ("P@10,", "not written like P@10"),
        (f"P@{MAXIMUM_RANK + 1}", "from 1 to 1,000,000"),
        ("P@" + "9" * 5000, "not written like P@10"),
        ("Rprec@10", "Rprec takes no cutoff"),
        ("IPrec", "IPrec requires a recall, such as IPrec@0.1"),
        ("IPrec@2", "from 0 to 1 in hundredths, got 2"),
        ("IPrec@0.125", "in hundredths"),
        ("nDCG(rel=2)@10", "nDCG takes judged_only, not 'rel'"),
        ("Judged(rel=2)@10", "Judged takes no parameter"),
        ("SetRelP", "not 'relative'"),
        ("AP(rel=True)", "rel expects a grade"),
        ("RR(judged_only=True)@10", "no RR of judged documents with a cutoff"),
        ("AP(rel=__import__('os'))", "not written like"),
        ("AP(2)", "not written like"),
        ("AP(rel=02)", "not written like"),
        ("P@٣", "not written like P@10"),
    ],
)
def test_an_invalid_measure_is_an_error_with_the_fix(text: str, message: str) -> None:
    """The nearest name, or the rule of the cutoff or parameter."""
    with pytest.raises(MilcoError) as error:
        parse_measures([text])
    assert message in str(error.value)


def test_one_measure_is_a_list_of_one() -> None:
    """A str would be read as a list of letters."""
    with pytest.raises(TypeError, match="'nDCG@10'"):
        parse_measures("nDCG@10")
    with pytest.raises(MilcoError, match="no measures were given"):
        parse_measures([])


@pytest.mark.parametrize("example", EXAMPLES.values())
def test_every_offered_measure_can_be_computed(example: str) -> None:
    """With each parameter that is accepted, without an optional cutoff, and with the largest one."""
    name, at, _ = example.partition("@")
    wanted = [example]
    for variant in (name, f"{name}@{MAXIMUM_RANK}", f"{name}(rel=2){at}1", f"{name}(judged_only=True){at}1"):
        try:
            wanted += [str(measure) for measure in parse_measures([variant])]
        except MilcoError:
            continue
    evaluation = evaluate({"1": {"a": 2.0, "b": 1.0}}, {"1": {"a": 2, "c": 0}}, wanted)
    assert all(0 <= value <= 1 for value in evaluation.mean.values())
    assert list(evaluation.mean) == list(dict.fromkeys(wanted))


def test_the_list_of_measures_has_names_and_sources() -> None:
    """From ir_measures."""
    text = render(measures_table())
    assert "nDCG@10" in text and "https://dblp.org/rec/journals/tois/JarvelinK02" in text

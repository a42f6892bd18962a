"""Equality with trec_eval."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.evaluation import evaluate, ranking
from milco_pyserini.eval.fairness import OWN_LANGUAGE, PEER
from milco_pyserini.eval.systems import evaluate_systems
from milco_pyserini.io.runs import decreasing_scores

# The same measure in our spelling and in trec_eval's.
PAIRS = {
    "nDCG": "ndcg",
    "nDCG@3": "ndcg_cut_3",
    "nDCG@10": "ndcg_cut_10",
    "R@2": "recall_2",
    "R@100": "recall_100",
    "AP": "map",
    "AP@4": "map_cut_4",
    "RR": "recip_rank",
    "P@1": "P_1",
    "P@10": "P_10",
    "Success@2": "success_2",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "IPrec@0.1": "iprec_at_recall_0.10",
    "SetP": "set_P",
    "SetR": "set_recall",
}
DOCUMENTS = ["1", "10", "2", "Z", "a", "aa", "é", "陌", "ﬀ", "𝒳", "x-1", "x_1"]
# Ties as they are, ties that only 32 bits make, and neighbours that 32 bits keep apart.
SCORES = [0.0, -0.0, -1.5, 2.5, 2.5000002, 7, 35000.001, 35000.002, 35000.01, 16777216, 16777217, 1e-46, 1e30]

RANKED = st.dictionaries(st.sampled_from(DOCUMENTS), st.sampled_from(SCORES) | st.floats(-1e6, 1e6), min_size=1)
JUDGED = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 3), min_size=1)
# trec_eval gives up, and pytrec_eval hangs, on a query whose grades are all negative.
EVALUABLE = JUDGED.filter(lambda grades: max(grades.values()) >= 0)
QUERIES = st.sampled_from(["1", "10", "2", "ü", "q"])
RUNS = st.dictionaries(QUERIES, RANKED, min_size=1)
QRELS = st.dictionaries(QUERIES, EVALUABLE, min_size=1)


def as_trec_eval_averages(per_query: dict, queries: list, measure: str) -> float:
    """trec_eval -c: added up in query order, over all judged queries."""
    total = 0.0
    for query in sorted(queries):
        total += per_query.get(query, {}).get(measure, 0.0)
    return total / len(queries)


@settings(deadline=None)
@given(run=RUNS, qrels=QRELS)
def test_every_measure_agrees_with_trec_eval_to_the_last_bit(run: dict, qrels: dict) -> None:
    """Per query and on average, whatever the ties, the missing queries and the grades."""
    if not run.keys() & qrels.keys():
        return
    ours = evaluate(run, qrels, PAIRS)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(PAIRS.values())).evaluate(run)
    for mine, name in PAIRS.items():
        assert ours.per_query[mine] == {q: theirs.get(q, {}).get(name, 0.0) for q in sorted(qrels)}
        assert ours.mean[mine] == as_trec_eval_averages(theirs, list(qrels), name)


@settings(deadline=None)
@given(run=RUNS, qrels=QRELS)
def test_graded_relevance_and_judged_only_agree_with_trec_eval(run: dict, qrels: dict) -> None:
    """rel=2 is trec_eval's -l 2, judged_only=True its -J; both in one call."""
    if not run.keys() & qrels.keys():
        return
    ours = evaluate(run, qrels, ["AP(rel=2)", "nDCG@3", "P(rel=2,judged_only=True)@3", "R(rel=2)@4", "AP"])
    cases = {
        "AP(rel=2)": ("map", 2, 0),
        "nDCG@3": ("ndcg_cut_3", 1, 0),
        "P(judged_only=True,rel=2)@3": ("P_3", 2, 1),
        "R(rel=2)@4": ("recall_4", 2, 0),
        "AP": ("map", 1, 0),
    }
    assert list(ours.mean) == list(cases)
    for mine, (name, level, only) in cases.items():
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {name}, relevance_level=level, judged_docs_only_flag=only)
        theirs = evaluator.evaluate(run)
        assert ours.per_query[mine] == {q: theirs.get(q, {}).get(name, 0.0) for q in sorted(qrels)}


@settings(deadline=None)
@given(run=RUNS, qrels=QRELS)
def test_measures_beyond_trec_eval_use_its_order_too(run: dict, qrels: dict) -> None:
    """RR@k and Judged@k, which other programs compute, follow the same order of ties."""
    if not run.keys() & qrels.keys():
        return
    ours = evaluate(run, qrels, ["RR@2", "Judged@2"])
    for query, grades in qrels.items():
        first = ranking(run.get(query, {}))[:2]
        relevant = [place for place, document in enumerate(first, 1) if grades.get(document, 0) > 0]
        judged = sum(document in grades for document in first)
        assert ours.per_query["RR@2"][query] == (1 / relevant[0] if relevant else 0)
        assert ours.per_query["Judged@2"][query] == (judged / len(first) if first else 0)


def test_a_query_with_only_negative_grades_counts_zero() -> None:
    """For Judged@k its documents are judged."""
    evaluation = evaluate({"1": {"a": 1.0, "b": 0.5}}, {"1": {"a": -1}, "2": {"a": -2}}, [*PAIRS, "Judged@2"])
    assert evaluation.per_query.pop("Judged@2") == {"1": 0.5, "2": 0}
    assert {value for values in evaluation.per_query.values() for value in values.values()} == {0}


@settings(deadline=None)
@given(scores=RANKED)
def test_the_order_is_score_in_32_bits_then_docid_bytes_both_descending(scores: dict) -> None:
    """The readable reference of trec_eval's sort."""
    reference = sorted(scores, key=lambda d: (np.float32(scores[d]), d.encode()), reverse=True)
    assert ranking(scores) == reference


def test_queries_without_results_count_zero_and_queries_without_qrels_are_ignored() -> None:
    """Three judged queries, one answered, one more answered but not judged."""
    evaluation = evaluate({"1": {"a": 1.0}, "x": {"a": 1.0}, "3": {}}, {q: {"a": 1} for q in "123"}, ["P@1"])
    assert evaluation.mean == {"P@1": 1 / 3}
    assert evaluation.unanswered == ("2", "3")
    assert evaluation.unjudged == 1
    assert evaluation.queries == ("1", "2", "3")


def test_a_query_listed_in_another_order_is_counted() -> None:
    """A tie in ascending order of docid is not trec_eval's order; strictly decreasing scores are."""
    qrels = {"1": {"a": 1}, "2": {"a": 1}}
    assert evaluate({"1": {"a": 5.0, "b": 5.0}, "2": {"a": 5.0, "b": 4.0}}, qrels).reordered == 1


@settings(deadline=None)
@given(scores=st.lists(st.sampled_from([*SCORES, 1e-45, 3.5e5]) | st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_a_run_that_search_wrote_is_evaluated_in_the_order_of_its_ranks(scores: list[float]) -> None:
    """Search breaks ties by ascending docid, and prints scores that keep this order in trec_eval."""
    printed = decreasing_scores(np.array(sorted(scores, reverse=True)))
    documents = sorted(DOCUMENTS)[: len(scores)]
    assert ranking(dict(zip(documents, map(float, printed), strict=True))) == documents


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ({"1": {"a": 1.0}}, {"2": {"a": 1}}, "the run has 1 query, such as '1', the qrels have 1, such as '2'"),
        ({}, {"2": {"a": 1}}, "the run has no queries"),
        ({"1": {"a": 1.0}}, {"1": {}}, "the qrels have no queries"),
        ({"1": {"a": 1.0}}, {"1": {"a": 10**9}}, "query '1' has a grade of 1000000000: grades are from"),
        ({"1": {"a": 1.0}}, {"1": {"a": 1.0}}, "query '1', document 'a': the grade 1.0 is not an integer"),
        ({"1": {"b": 1.0, "a": float("nan")}}, {"1": {"a": 1}}, "document 'a' has the score nan: scores are finite"),
        ({"1": {"a": 1e300}}, {"1": {"a": 1}}, "document 'a' has the score 1e.300"),
    ],
)
def test_a_run_and_qrels_that_cannot_be_evaluated_are_an_error(run: dict, qrels: dict, message: str) -> None:
    """No common query is an error, not a value of 0; so is a huge grade, which would take all memory."""
    with pytest.raises(MilcoError, match=message):
        evaluate(run, qrels)


def test_excluded_documents_leave_a_ranking() -> None:
    """Their grade is -100, by which ir_datasets marks what BRIGHT excludes; a lower grade is not relevant."""
    qrels = {"1": {"self": -100, "a": 1, "b": -1}, "2": {"self": -100}}
    run = {"1": {"self": 3.0, "a": 2.0, "b": 1.0}, "2": {"self": 1.0}}
    assert evaluate(run, qrels, ["P@1"]).per_query == {"P@1": {"1": 1}}
    assert evaluate({"1": {"self": 3.0, "b": 1.0}, "3": {"a": 1.0}}, qrels, ["P@1"]).mean == {"P@1": 0}


def test_systems_are_compared_by_the_measures_that_all_datasets_have(tmp_path: Path) -> None:
    """A program evaluates systems as the command does: fairness, of the queries whose language is known, included."""
    for name, query in (("known", "sw-q"), ("unknown", "q")):
        (tmp_path / f"{name}.qrels").write_text(f"{query} 0 sw-1 1\n{query} 0 sw-2 1\n{query} 0 de-1 1\n")
        (tmp_path / f"{name}.txt").write_text(f"{query} Q0 sw-1 1 2 r\n{query} Q0 de-1 2 1 r\n")
    datasets = {name: str(tmp_path / f"{name}.qrels") for name in ("known", "unknown")}
    runs = [tmp_path / f"{name}.txt" for name in datasets]
    results = evaluate_systems({"system": runs}, datasets, ["R@100"], fairness=True)
    assert {name: [*evaluation.mean] for name, evaluation in results["system"].items()} == {
        name: ["R@100", PEER] for name in datasets
    }
    first = evaluate_systems({"system": runs[:1]}, {"known": datasets["known"]}, ["R@100"], fairness=True)
    assert first["system"]["known"].mean[OWN_LANGUAGE] == 0.5

"""Evaluate the runs of several systems on several datasets by the same measures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from milco_pyserini.console import counted, log, warn
from milco_pyserini.corpora import open_qrels
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.evaluation import Evaluation, evaluate, mean_of_seeds
from milco_pyserini.eval.fairness import (
    OWN_LANGUAGE,
    PEER,
    compares_languages,
    document_languages,
    evaluate_fairness,
    query_languages,
)
from milco_pyserini.io.runs import read_run, read_run_record, read_trained_on


def evaluate_systems(
    systems: Mapping[str, Sequence[Path]],
    datasets: Mapping[str, str],
    measures: Sequence[str],
    fairness: bool = False,
    corpora: Sequence[str] = (),
    costs: Callable[[Path], Mapping[str, float]] | None = None,
) -> dict[str, dict[str, Evaluation]]:
    """Return system -> dataset -> evaluation, and log a summary and the caveats of each run.

    Args:
        systems: system -> paths of its runs, one for each dataset; of several seeds, all runs of the next one follow.
            They count by their means.
        datasets: dataset -> name (miracl-ar-dev) or path of its qrels.
        fairness: add PEER@100 and OwnLanguage@10.
        corpora: names or paths of corpora by which documents have a language, see document_languages().
        costs: returns figures of a run besides the measures, such as search_costs().

    Raises:
        MilcoError: as evaluate(), with the run and its qrels, or as document_languages().
    """
    results: dict[str, dict[str, Evaluation]] = {system: {} for system in systems}
    judgments = [open_qrels(name) for name in datasets.values()]
    spoken = [query_languages(qrels) for qrels in judgments] if fairness else []
    for place, ((dataset, name), qrels) in enumerate(zip(datasets.items(), judgments, strict=True)):
        languages: dict[str, str] = {}
        with_peer = False
        if fairness:
            paths = [path for runs in systems.values() for path in runs[place :: len(datasets)]]
            # Runs are read twice, and the corpora once, so that one run is in memory at a time.
            languages = document_languages(map(read_run, paths), qrels, corpora)
            with_peer = compares_languages(qrels, languages)
            if not with_peer:
                log(
                    f"{PEER} is left out, it cannot tell rankings of {name} apart: it compares several relevant "
                    "documents of a query in two or more languages, and no query has these"
                )
            if unknown := [query for query, grades in qrels.items() if grades and query not in spoken[place]]:
                number = counted(len(unknown), "query", "queries") if spoken[place] else "all queries"
                log(
                    f"{OWN_LANGUAGE} leaves out {number} of {name}: the id of {shown(unknown[0])} begins with no known "
                    "language, as that of ar-07 does"
                )
        for system, runs in systems.items():
            seeds = []
            for path in runs[place :: len(datasets)]:
                run = read_run(path)
                try:
                    evaluation = replace(evaluate(run, qrels, measures), options=read_run_record(path).options)
                except MilcoError as error:
                    raise MilcoError(f"{path} against {name}: " + error.message, error.hint) from None
                log(f"{path} against {name}: {_summary(evaluation, with_peer)}")
                if benchmark := read_trained_on(path):
                    warn(f"the encoder of {path} was trained on data of {benchmark}: figures are not of unseen data")
                if not any(run[query].keys() & grades.keys() for query, grades in qrels.items() if query in run):
                    query = next(query for query in run if query in qrels)
                    docids = [shown(next(iter(by_query[query]))) for by_query in (run, qrels)]
                    log(f"No document of {path} is judged: it has docids such as {docids[0]}, {name} {docids[1]}")
                if fairness:
                    for measure, values in evaluate_fairness(run, qrels, languages, spoken[place]).items():
                        if with_peer or measure != PEER:
                            evaluation.per_query[measure] = values
                            evaluation.mean[measure] = sum(values.values()) / len(values)
                seeds.append(replace(evaluation, costs=costs(path)) if costs else evaluation)
            results[system][dataset] = mean_of_seeds(seeds) if len(seeds) > 1 else seeds[0]
    # Systems are compared by the same measures on all datasets.
    common = set.intersection(*({*one.mean} for evaluations in results.values() for one in evaluations.values()))
    for evaluations in results.values():
        for dataset, one in evaluations.items():
            kept = {name: one.per_query[name] for name in one.mean if name in common}
            evaluations[dataset] = replace(one, mean={name: one.mean[name] for name in kept}, per_query=kept)
    return results


def _summary(evaluation: Evaluation, with_peer: bool) -> str:
    """Return which queries were evaluated, in one line."""
    parts = [counted(len(evaluation.queries), "judged query", "judged queries")]
    if evaluation.unanswered:
        parts.append(
            f"{len(evaluation.unanswered):,} without results (counted as 0{', by PEER as 1' if with_peer else ''})"
        )
    if evaluation.unjudged:
        parts.append(f"{evaluation.unjudged:,} more without qrels (ignored)")
    if evaluation.reordered:
        parts.append(
            f"{evaluation.reordered:,} ranked in another order than trec_eval's, which counts (by score, then docid, "
            "both descending)"
        )
    return ", ".join(parts)

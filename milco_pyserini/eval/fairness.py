"""Language fairness: does a ranking over documents of several languages prefer some of them?

PEER (Yang, Jänich, Mayfield, Lawrie: Language Fairness in Multilingual Information Retrieval, SIGIR 2024) is the
p-value of a Kruskal-Wallis test that relevant documents of all languages are ranked alike: 1 is fair, 0 is not. The
share of hits in each language shows which ones a ranking prefers.

In a parallel pool, where every language has a relevant document, LPR and Lang-nDCG tell whether a ranking finds the one
that the user can read (MLAIRE: Jang, Hong, Moon, Lim, 2026, arXiv:2605.07249), and MRC whether queries that are
translations of each other get the same ranking (arXiv:2509.06195).

PEER's test here is the standard one, of the relevant documents' ranks among themselves. The authors' package
peer_measure takes their ranks in the complete ranking, places those that were not retrieved by the number of relevant
documents, and takes a weight for each grade: its values differ where other documents are between the relevant ones.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from milco_pyserini.corpora.catalog import corpus_language, languages_of_ids, open_corpus
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.evaluation import Evaluation, QrelsMapping, Run, ranking

# Ranks that PEER compares, and hits whose languages are counted.
DEPTH = 100
HITS = 10
PEER = f"PEER@{DEPTH}"
OWN_LANGUAGE = f"OwnLanguage@{HITS}"
LPR = "LPR"
LANG_NDCG = f"Lang-nDCG@{HITS}"
MRC = f"MRC@{DEPTH}"
FAIRNESS_MEASURES = (PEER, OWN_LANGUAGE, LPR, LANG_NDCG, MRC)


def peer(docids: Sequence[str], grades: Mapping[str, int], languages: Mapping[str, str], depth: int = DEPTH) -> float:
    """Return the Probability of Equal Expected Rank of one query, from 0 (unfair) to 1 (fair).

    Relevant documents of one grade are compared between languages by their ranks; those below the depth, or not
    retrieved, share the last place. The p-values of the grades are averaged. A grade whose documents are of one
    language, or share one place, counts 1, and so does a query without relevant documents.

    Args:
        docids: the ranking, best first.
        grades: docid -> grade; 1 or more is relevant.
        languages: docid -> language, of all relevant documents.

    Example:
        >>> languages = {name: name[:2] for name in ("de1", "de2", "de3", "sw1", "sw2", "sw3")}
        >>> grades = dict.fromkeys(languages, 1)
        >>> round(peer(["de1", "sw1", "sw2", "de2", "de3", "sw3"], grades, languages), 2)
        0.83
        >>> round(peer(["de1", "de2", "de3", "sw1", "sw2", "sw3"], grades, languages), 2)
        0.05
    """
    from scipy.stats import kruskal

    ranks = {docid: rank for rank, docid in enumerate(docids[:depth])}
    p_values = []
    for grade in {grade for grade in grades.values() if grade > 0}:
        places: dict[str, list[int]] = {}
        for docid in (docid for docid, other in grades.items() if other == grade):
            places.setdefault(languages[docid], []).append(ranks.get(docid, depth))
        differ = len({place for group in places.values() for place in group}) > 1
        p_values.append(float(kruskal(*places.values()).pvalue) if differ and len(places) > 1 else 1.0)
    return sum(p_values) / len(p_values) if p_values else 1.0


def language_ndcg(docids: Sequence[str], grades: Mapping[str, int], own: Iterable[str], depth: int = HITS) -> float:
    """Return nDCG with no gain for documents that are not in the query's language. own: docids, at least one relevant.

    >>> round(language_ndcg(["de1", "sw1"], {"de1": 1, "sw1": 1}, ["sw1"]), 4)
    0.6309
    """
    gains = {docid: grades[docid] for docid in own}

    def dcg(values: Iterable[int]) -> float:
        return sum(gain / math.log2(rank + 2) for rank, gain in zip(range(depth), values, strict=False))

    return dcg(gains.get(docid, 0) for docid in docids) / dcg(sorted(gains.values(), reverse=True))


def rank_correlations(rankings: Sequence[Sequence[str]], depth: int = DEPTH) -> list[float]:
    """Return for each ranking the mean of Spearman's correlations with the others, from -1 to 1.

    Documents that any of them has above the depth are compared; a ranking that lacks one has it in the last place.

    >>> rank_correlations([["a", "b", "c"], ["a", "b", "c"], ["c", "b", "a"]])
    [0.0, 0.0, -1.0]
    """
    from scipy.stats import rankdata

    documents = list(dict.fromkeys(docid for docids in rankings for docid in docids[:depth]))
    places = [{docid: rank for rank, docid in enumerate(docids[:depth])} for docids in rankings]
    ranks = rankdata([[place.get(docid, depth) for docid in documents] for place in places], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A ranking without documents is correlated with none.
        correlations = np.nan_to_num(np.corrcoef(ranks)) if len(documents) > 1 else np.zeros((len(places),) * 2)
    np.fill_diagonal(correlations, 0)
    return (correlations.sum(axis=1) / (len(rankings) - 1)).round(12).tolist()


@dataclass(frozen=True)
class LanguageFairness:
    """Language fairness of a run.

    Args:
        per_query: measure -> query id -> value, for the judged queries that a measure is for: PEER@100, all;
            OwnLanguage@10, the share of the ten best hits in the language of the query, those whose language is known;
            LPR (1 if the first relevant document is in the language of the query) and Lang-nDCG@10, those with relevant
            documents in their language and in others; MRC@100, those that have translations: queries whose ids differ
            in the language only.
        hits: query language, or "" if it is not known -> document language -> number of the ten best hits.
    """

    per_query: Mapping[str, dict[str, float]]
    hits: Mapping[str, Counter[str]]

    def added_to(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation of the same run with these measures."""
        mean = {measure: sum(values.values()) / len(values) for measure, values in self.per_query.items()}
        return replace(evaluation, mean=evaluation.mean | mean, per_query=evaluation.per_query | dict(self.per_query))


def evaluate_fairness(
    run: Run, qrels: QrelsMapping, languages: Mapping[str, str], spoken: Mapping[str, str] | None = None
) -> LanguageFairness:
    """Measure the language fairness of a run for all judged queries; measures that are for none of them are absent.

    Args:
        run: query id -> docid -> score.
        qrels: query id -> docid -> grade.
        languages: docid -> language of every judged document and every one of the ten best hits, see
            document_languages().
        spoken: query id -> language, or {} for PEER only; None for query_languages() of these qrels.
    """
    if spoken is None:
        spoken = query_languages(qrels)
    measures: dict[str, dict[str, float]] = {measure: {} for measure in FAIRNESS_MEASURES}
    hits: dict[str, Counter[str]] = {}
    translations: dict[str, list[str]] = {}
    rankings = {query: ranking(run.get(query, {})) for query in sorted(qrels) if qrels[query]}
    for query, docids in rankings.items():
        language, grades = spoken.get(query, ""), qrels[query]
        measures[PEER][query] = peer(docids, grades, languages)
        counts = Counter(languages[docid] for docid in docids[:HITS])
        if counts:
            hits.setdefault(language, Counter()).update(counts)
        if not language:
            continue
        measures[OWN_LANGUAGE][query] = counts[language] / max(counts.total(), 1)
        relevant = [docid for docid, grade in grades.items() if grade > 0]
        own = [docid for docid in relevant if languages[docid] == language]
        if 0 < len(own) < len(relevant):
            first = next((docid for docid in docids if grades.get(docid, 0) > 0), None)
            measures[LPR][query] = float(first in own)
            measures[LANG_NDCG][query] = language_ndcg(docids, grades, own)
        translations.setdefault(query.removeprefix(language), []).append(query)
    for queries in translations.values():
        if len(queries) > 1:
            values = rank_correlations([rankings[query] for query in queries])
            measures[MRC].update(zip(queries, values, strict=True))
    return LanguageFairness({measure: values for measure, values in measures.items() if values}, hits)


def query_languages(qrels: QrelsMapping) -> dict[str, str]:
    """Return the language of each judged query whose id begins with one."""
    queries = [query for query, grades in qrels.items() if grades]
    return {query: code for query, code in zip(queries, languages_of_ids(queries), strict=True) if code}


def compares_languages(qrels: QrelsMapping, languages: Mapping[str, str]) -> bool:
    """Return whether PEER depends on the ranking: it compares several relevant documents of several languages.

    languages: docid -> language, of all relevant documents.
    """
    for grades in qrels.values():
        for grade in {grade for grade in grades.values() if grade > 0}:
            sizes = Counter(languages[docid] for docid, other in grades.items() if other == grade)
            if len(sizes) > 1 and max(sizes.values()) > 1:
                return True
    return False


def document_languages(runs: Iterable[Run], qrels: QrelsMapping, corpora: Sequence[str]) -> dict[str, str]:
    """Return the language of every document that evaluate_fairness() needs.

    It is the document's field `lang` or the language of its corpus; without corpora, what docids such as ar-07 begin
    with.

    Args:
        corpora: names or paths, such as neuclir-fa, neuclir-ru and neuclir-zh.

    Raises:
        MilcoError: a corpus cannot be read, or the language of a document is not known.
    """
    needed = {docid for grades in qrels.values() for docid, grade in grades.items() if grade > 0}
    needed |= {docid for run in runs for scores in run.values() for docid in ranking(scores)[:HITS]}
    languages: dict[str, str] = {}
    if not corpora:
        names = sorted(needed)
        languages = {name: code for name, code in zip(names, languages_of_ids(names), strict=True) if code}
    for corpus in corpora:
        language = corpus_language(corpus)
        for document in open_corpus(corpus):
            if document.id in needed and (code := document.fields.get("lang") or language):
                languages[document.id] = str(code)
    if missing := min(needed - languages.keys(), default=None):
        where = (
            f"{', '.join(corpora)} does not have it with a field lang" if corpora else "its id does not begin with one"
        )
        raise MilcoError(
            f"the language of document {shown(missing)} is not known: {where}",
            "Pass `corpora` with the corpora of its languages, or one whose documents have a field lang.",
        )
    return languages

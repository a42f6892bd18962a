"""Language fairness: does a ranking over documents of several languages prefer some of them?

PEER (Yang, Jänich, Mayfield, Lawrie: Language Fairness in Multilingual Information Retrieval, SIGIR 2024) is the
p-value of a Kruskal-Wallis test that relevant documents of all languages are ranked alike: 1 is fair, 0 is not. The
share of hits in each language shows which ones a ranking prefers.

PEER's test here is the standard one, of the relevant documents' ranks among themselves. The authors' package
peer_measure takes their ranks in the complete ranking, places those that were not retrieved by the number of relevant
documents, and takes a weight for each grade: its values differ where other documents are between the relevant ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from milco_pyserini.corpora.catalog import corpus_language, languages_of_ids, open_corpus
from milco_pyserini.errors import Message, MilcoError, shown
from milco_pyserini.eval.evaluation import QrelsMapping, Run, ranking

# Ranks that PEER compares, and hits whose languages are counted.
DEPTH = 100
HITS = 10
PEER = f"PEER@{DEPTH}"
OWN_LANGUAGE = f"OwnLanguage@{HITS}"
FAIRNESS_MEASURES = (PEER, OWN_LANGUAGE)


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


def evaluate_fairness(
    run: Run, qrels: QrelsMapping, languages: Mapping[str, str], spoken: Mapping[str, str] | None = None
) -> dict[str, dict[str, float]]:
    """Return measure -> query id -> value: PEER@100 of judged queries, OwnLanguage@10 if their language is known.

    OwnLanguage@10 is the share of the ten best hits that are in the language of the query.

    Args:
        run: query id -> docid -> score.
        qrels: query id -> docid -> grade.
        languages: docid -> language of every judged document and every one of the ten best hits, see
            document_languages().
        spoken: query id -> language, or {} for PEER only; None for query_languages() of these qrels.
    """
    if spoken is None:
        spoken = query_languages(qrels)
    measures: dict[str, dict[str, float]] = {PEER: {}, OWN_LANGUAGE: {}}
    for query in sorted(query for query in qrels if qrels[query]):
        language, docids = spoken.get(query, ""), ranking(run.get(query, {}))
        measures[PEER][query] = peer(docids, qrels[query], languages)
        if language:
            found = [languages[docid] for docid in docids[:HITS]]
            measures[OWN_LANGUAGE][query] = found.count(language) / max(len(found), 1)
    return {measure: values for measure, values in measures.items() if values}


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
        fix = Message("Pass {corpora} with the corpora of its languages, or one whose documents have a field lang.")
        raise MilcoError(f"the language of document {shown(missing)} is not known: {where}", fix)
    return languages

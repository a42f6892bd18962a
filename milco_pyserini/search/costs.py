"""The cost of a search, as papers on learned sparse retrieval report it: mean terms, and FLOPs."""

from collections import Counter
from math import nan
from operator import mul
from pathlib import Path

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.runs import read_run_record

COSTS = ("QueryTerms", "PassageTerms", "FLOPs")


def search_costs(path: Path) -> dict[str, float]:
    """Return COSTS of a run, from the index and the topics that its record names; {} if they are not known.

    Texts are encoded again. FLOPs is the sum over terms of P(term in a query) x P(term in a passage), the mean number
    of products in a score (Formal et al., SPLADE, 2021); NaN if the engine does not count the passages of a term.
    """
    from milco_pyserini.index.weights import TermImpacts
    from milco_pyserini.request import SearchRequest
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import read_topics

    record = read_run_record(path)
    try:
        if len(record.indexes) != 1 or record.topics is None:
            raise MilcoError("it has no record of a search of one index")
        searched, named = record.indexes[0], record.topics
        encoder, alpha, other = (record.options.get(name) for name in ("encoder", "alpha", "query_encoder"))
        with Searcher.open(searched.name, encoder, alpha=alpha, query_encoder=other) as searcher:
            index, engine = searcher.index, searcher.engine_searcher
            topics = read_topics(named.name, index, searcher.indexes[0].options)
            if (searched.generation, named.digest) != (index.generation, topics.record().digest):
                raise MilcoError(f"{searched.name} or {named.name} has changed since the search")
            queries = topics.vectors or [query for (query,) in searcher.encode(topics.texts or [], SearchRequest())]
            numbers = map(TermImpacts(engine, index).query, queries)
            terms = Counter(term for query in numbers for term, number in query.items() if number)
            singles, best = [{term: 1 / index.manifest.query_scale} for term in terms], SearchRequest(1)
            # An engine that does not count is asked once.
            counts = any(hits.total is not None for hits in engine.rank(singles[:1], best))
            totals = [hits.total or 0 for hits in engine.rank(singles, best)] if counts else [nan] * len(terms)
    except MilcoError as error:
        log(f"{path}: {', '.join(COSTS)} are not known: {error.message}")
        return {}
    passages = index.manifest.documents + index.manifest.empty_documents
    products = sum(map(mul, terms.values(), totals))
    values = terms.total() / len(queries), index.manifest.postings / passages, products / len(queries) / passages
    return dict(zip(COSTS, values, strict=True))

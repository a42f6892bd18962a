\set ON_ERROR_STOP on
\encoding UTF8
create temp table milco_queries (id text, vector sparsevec({{ columns }}));
\copy milco_queries from 'queries.copy'
select milco_queries.id, hits.docid, hits.score from milco_queries cross join lateral (
    select docid, -(documents.vector <#> milco_queries.vector) as score from "{{ collection }}" as documents
    order by documents.vector <#> milco_queries.vector limit {{ hits }}
) hits where hits.score > 0 order by milco_queries.id, hits.score desc;

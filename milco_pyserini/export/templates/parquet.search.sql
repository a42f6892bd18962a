-- The {{ hits }} best documents of every query, ties by docid.
with scored as (
    select q.id as query, d.id as docid, sum(q.impact::bigint * d.impact) as score
    from 'queries.parquet' q join 'documents.parquet' d using (term) group by all
)
select * from scored qualify row_number() over (partition by query order by score desc, docid) <= {{ hits }}
order by query, score desc, docid;

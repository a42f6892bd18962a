-- The {{ hits }} best documents of every query, ties by docid: standard SQL, on tables named documents and queries.
with scored as (
    select q.id as query, d.id as docid, sum(cast(q.impact as bigint) * d.impact) as score
    from queries q join documents d using (term) group by q.id, d.id
), ranked as (
    select *, row_number() over (partition by query order by score desc, docid) as rank from scored
)
select query, docid, score, rank from ranked where rank <= {{ hits }} order by query, rank;

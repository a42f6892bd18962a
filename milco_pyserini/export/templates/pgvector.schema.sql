create extension if not exists vector;
create table "{{ collection }}" (docid text primary key, vector sparsevec({{ columns }}) not null{% if stored %}, document jsonb not null{% endif %});
comment on table "{{ collection }}" is 'milco {{ fingerprint }}';

create extension if not exists vector;
create table "{{ collection }}" (docid text primary key, vector sparsevec({{ columns }}) not null);
comment on table "{{ collection }}" is 'milco {{ fingerprint }}';

\set ON_ERROR_STOP on
\encoding UTF8
begin;
create temp table milco_incoming (like "{{ collection }}") on commit drop;
create temp table milco_deleted (docid text) on commit drop;
\copy milco_incoming from 'documents.copy'
\copy milco_deleted from 'deleted.copy'
insert into "{{ collection }}" select * from milco_incoming on conflict (docid) do update set vector = excluded.vector{% if stored %}, document = excluded.document{% endif %};
delete from "{{ collection }}" using milco_deleted where "{{ collection }}".docid = milco_deleted.docid;
comment on table "{{ collection }}" is 'milco {{ fingerprint }}';
commit;
analyze "{{ collection }}";

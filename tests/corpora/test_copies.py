"""Benchmarks read from tiny copies of their publishers' files, in the true format and layout."""

import gzip
import json
import re
import socket
import subprocess
import sys
import tarfile
import zipfile
from math import nan
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from milco_pyserini.corpora import Document, Query, open_answers, open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS
from milco_pyserini.errors import MilcoError, Unreachable


def written(path: Path, text: str) -> Path:
    """Write a file and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def json_lines(path: Path, *rows: dict) -> Path:
    """Write JSON lines, gzip if the name ends in .gz."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix != ".gz":
        return written(path, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def table(path: Path, *rows: dict) -> None:
    """A Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)


def card(directory: Path, tables: dict[str, dict[str, str]]) -> None:
    """Write a repository's README.md that lists the files of its tables."""
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in splits.items()]}
        for name, splits in tables.items()
    ]
    written(directory / "README.md", f"---\n{yaml.safe_dump({'configs': configs})}---\n# A data set\n")


def read(corpus: str, topics: str, copy: Path, topics_copy: Path | None = None) -> tuple:
    """Return the documents, queries and qrels of two names, from a copy."""
    topics = f"{topics}@{topics_copy or copy}"
    return list(open_corpus(f"{corpus}@{copy}")), list(open_topics(topics)), open_qrels(topics)


def hard_negatives(copy: Path) -> None:
    """Write MTEB's layout: a table of each kind for each language, in numbered parts."""
    kinds = ("corpus", "queries", "qrels")
    card(copy, {f"{code}-{kind}": {"dev": f"{code}-{kind}/dev-*"} for code in ("sw", "yo") for kind in kinds})
    table(copy / "sw-corpus/dev-00000-of-00002.parquet", {"_id": "1#0", "title": "Mto", "text": "maji"})
    table(copy / "sw-corpus/dev-00001-of-00002.parquet", {"_id": "2#0", "title": None, "text": "jua"})
    queries = [{"_id": "7", "text": "Mto ni nini?"}, {"_id": "8", "text": "?"}]
    table(copy / "sw-queries/dev-00000-of-00001.parquet", *queries)
    table(copy / "sw-qrels/dev-00000-of-00001.parquet", {"query-id": "7", "corpus-id": "1#0", "score": 1})


def test_mteb_tables_are_found_by_the_card(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Documents of all parts in order; a null title counts as absent; queries without judgments are dropped."""
    hard_negatives(tmp_path)
    documents, queries, qrels = read("miracl-hn-sw", "miracl-hn-sw-dev", tmp_path)
    assert documents == [Document("1#0", "Mto", "maji"), Document("2#0", "", "jua")]
    assert queries == [Query("7", "Mto ni nini?")]
    assert qrels == {"7": {"1#0": 1}}
    corpus = open_corpus(f"miracl-hn-sw@{tmp_path}")
    assert corpus.field_rule == "title + ' ' + text"
    assert corpus.check().records == 2
    assert "read 2 records, 131,924 were published: is the copy complete?" in capsys.readouterr().err


def test_tables_whose_splits_are_tasks_need_no_scores(tmp_path: Path) -> None:
    """HAKARI's tasks are the splits of tables; a judgment without a score is of a relevant document."""
    copy = tmp_path / "NanoMLDR"
    kinds = ("corpus", "queries", "qrels", "bm25")
    card(copy, {kind: {code: f"{kind}/{code}-00000-of-00001.parquet" for code in ("ar", "de")} for kind in kinds})
    for code, text in (("ar", "النيل"), ("de", "Der Nil")):
        table(copy / f"corpus/{code}-00000-of-00001.parquet", {"_id": "d1", "text": text}, {"_id": "d2", "text": "x"})
        table(copy / f"queries/{code}-00000-of-00001.parquet", {"_id": "q", "text": f"{text}?"})
        table(copy / f"qrels/{code}-00000-of-00001.parquet", {"query-id": "q", "corpus-id": "d1"})
    documents, queries, qrels = read("hakari-mldr-de", "hakari-mldr-de", tmp_path)
    assert documents == [Document("d1", "", "Der Nil"), Document("d2", "", "x")]
    assert (queries, qrels) == ([Query("q", "Der Nil?")], {"q": {"d1": 1}})


def test_browsecomp_plus_has_one_corpus_and_two_sets_of_qrels(tmp_path: Path) -> None:
    """In MTEB's layout, with a subset for each."""
    subsets = ("gold_only", "gold_and_evidence")
    kinds = ("corpus", "queries", "qrels")
    card(tmp_path, {f"{name}-{kind}": {"test": f"{name}-{kind}/test-*"} for name in subsets for kind in kinds})
    for name in subsets:
        table(tmp_path / f"{name}-corpus/test-0.parquet", {"id": "7", "text": "a page"}, {"id": "8", "text": "another"})
        table(tmp_path / f"{name}-queries/test-0.parquet", {"id": "1", "text": "Which person?"})
        judgments = [{"query-id": "1", "corpus-id": docid, "score": 1} for docid in ("7", "8")]
        table(tmp_path / f"{name}-qrels/test-0.parquet", *judgments[: 1 + (name != "gold_only")])
    documents, queries, qrels = read("browsecomp-plus", "browsecomp-plus-gold", tmp_path)
    assert [document.id for document in documents] == ["7", "8"]
    assert (queries, qrels) == ([Query("1", "Which person?")], {"1": {"7": 1}})
    assert open_qrels(f"browsecomp-plus-evidence@{tmp_path}") == {"1": {"7": 1, "8": 1}}


def test_incomplete_mteb_tables_are_refused(tmp_path: Path) -> None:
    """A missing part, a table that the card lacks, a card without tables, a damaged file, a file as the copy."""
    hard_negatives(tmp_path)
    (tmp_path / "sw-corpus/dev-00000-of-00002.parquet").unlink()
    for language, message in (
        ("sw", "holds 1 of 2 files of sw-corpus/dev-"),
        ("yo", "holds no yo-corpus/dev-"),
        ("te", r"README\.md lists no table te-corpus"),
    ):
        with pytest.raises(MilcoError, match=message):
            list(open_corpus(f"miracl-hn-{language}@{tmp_path}"))
    written(tmp_path / "sw-qrels/dev-00000-of-00001.parquet", "PAR1 and no more")
    with pytest.raises(MilcoError, match="is not a complete Parquet file"):
        open_qrels(f"miracl-hn-sw-dev@{tmp_path}")
    written(tmp_path / "README.md", "# Nothing\n")
    with pytest.raises(MilcoError, match="lists no table"):
        open_qrels(f"miracl-hn-sw-dev@{tmp_path}")
    with pytest.raises(MilcoError, match="mteb/MIRACLRetrievalHardNegatives"):
        open_qrels(f"miracl-hn-sw-dev@{written(tmp_path / 'file', '')}")


def test_without_a_card_tables_are_found_by_file_name(tmp_path: Path) -> None:
    """In directories of parts, JSON lines or gzip; otherwise the error lists the expected names."""
    hard_negatives(tmp_path)
    expected = read("miracl-hn-sw", "miracl-hn-sw-dev", tmp_path)
    (tmp_path / "README.md").unlink()
    assert read("miracl-hn-sw", "miracl-hn-sw-dev", tmp_path) == expected
    limit = tmp_path / "LIMIT"
    json_lines(limit / "corpus.jsonl.gz", {"_id": "Ada", "title": "", "text": "Ada likes tea."})
    with pytest.raises(MilcoError) as caught:
        open_qrels(f"limit-test@{limit}")
    assert str(caught.value) == (
        f"{limit} holds neither README.md, which lists the files, nor qrels.jsonl or qrels/test-*: a copy must have "
        "the layout of orionweller/LIMIT on the Hugging Face hub"
    )
    json_lines(limit / "queries.jsonl", {"_id": "q", "text": "Who likes tea?"}, {"_id": "r", "text": "Who?"})
    json_lines(limit / "qrels.jsonl", {"query-id": "q", "corpus-id": "Ada", "score": 1})
    documents, queries, qrels = read("limit", "limit-test", limit)
    assert documents == [Document("Ada", "", "Ada likes tea.")]
    assert (queries, qrels) == ([Query("q", "Who likes tea?")], {"q": {"Ada": 1}})


def test_a_conversation_is_one_query(tmp_path: Path) -> None:
    """StatCan's queries are turns with roles; the only split of texts is read whatever its name, not of judgments."""
    tmp_path /= "StatcanDialogueDatasetRetrieval"
    tmp_path.mkdir()
    kinds = {"corpus": "test", "queries": "test", "qrels": "dev"}
    card(tmp_path, {f"french-{kind}": {split: f"french-{kind}/{split}-*"} for kind, split in kinds.items()})
    table(tmp_path / "french-corpus/test-0.parquet", {"_id": "10-1", "title": "Prix", "text": "tableau"})
    turns = [{"content": "Bonjour", "role": "user"}, {"content": "Oui ?", "role": "assistant"}]
    table(tmp_path / "french-queries/test-0.parquet", {"_id": "q", "text": turns})
    table(tmp_path / "french-qrels/dev-0.parquet", {"query-id": "q", "corpus-id": "10-1", "score": 1})
    for copy in (tmp_path, tmp_path.parent):
        documents, queries, qrels = read("mteb-statcan-fr", "mteb-statcan-fr-dev", copy)
        assert documents == [Document("10-1", "Prix", "tableau")]
        assert queries == [Query("q", "user: Bonjour; assistant: Oui ?")]
        assert qrels == {"q": {"10-1": 1}}
    with pytest.raises(MilcoError, match=r"french-qrels .* test"):
        read("mteb-statcan-fr", "mteb-statcan-fr-test", tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("corpus", "[1]", "corpus.jsonl:1: not a JSON object"),
        ("corpus", '{"_id": "a", "title": ["a"], "text": "x"}', "corpus.jsonl:1: 'title' is a list"),
        ("queries", '{"_id": "q", "text": [{"content": "x"}]}', "queries.jsonl:1: no field 'role'"),
        ("qrels", '{"query-id": "q", "corpus-id": "d", "score": 0.9}', "qrels.jsonl:1: the score 0.9 is"),
        ("qrels", '{"query-id": "q", "corpus-id": "d", "score": "1"}', "the score '1' is not an integer"),
        ("qrels", '{"query-id": "q", "corpus-id": "a", "score": 0}', "qrels.jsonl:2: query q and document a have two"),
    ],
)
def test_rows_that_cannot_be_right_are_refused(name: str, line: str, why: str, tmp_path: Path) -> None:
    """In files without a card, with the place."""
    files = {
        "corpus": {"_id": "a", "text": "x"},
        "queries": {"_id": "q", "text": "x"},
        "qrels": {"query-id": "q", "corpus-id": "a", "score": 1},
    }
    for kind, row in files.items():
        json_lines(tmp_path / f"{kind}.jsonl", row)
    with (tmp_path / f"{name}.jsonl").open("a+") as handle:
        before = "" if ":1:" in why else json.dumps(files[name]) + "\n"
        handle.truncate(0)
        handle.write(f"{before}{line}\n")
    with pytest.raises(MilcoError, match=re.escape(why)):
        read("limit", "limit-test", tmp_path)


def test_mldr_qrels_are_the_passages_of_each_query(tmp_path: Path) -> None:
    """The directory of one language is accepted as a copy, too."""
    folder = tmp_path / "mldr-v1.0-ar"
    json_lines(folder / "corpus.jsonl.gz", {"docid": "doc-ar-1", "text": "نص طويل"}, {"docid": "doc-ar-2", "text": "ب"})
    passages = {"positive_passages": [{"docid": "doc-ar-1", "text": "نص طويل"}], "negative_passages": []}
    json_lines(folder / "test.jsonl.gz", {"query_id": "q-ar-1", "query": "ما هذا؟", **passages})
    negative = {"positive_passages": [{"docid": "doc-ar-2"}], "negative_passages": [{"docid": "doc-ar-1"}]}
    json_lines(folder / "train.jsonl.gz", {"query_id": "q-ar-9", "query": "؟", **negative})
    expected = (
        [Document("doc-ar-1", "", "نص طويل"), Document("doc-ar-2", "", "ب")],
        [Query("q-ar-1", "ما هذا؟")],
        {"q-ar-1": {"doc-ar-1": 1}},
    )
    assert read("mldr-ar", "mldr-ar-test", tmp_path) == expected
    assert read("mldr-ar", "mldr-ar-test", folder) == expected
    assert open_qrels(f"mldr-ar-train@{tmp_path}") == {"q-ar-9": {"doc-ar-2": 1, "doc-ar-1": 0}}
    with pytest.raises(MilcoError, match=r"mldr-v1\.0-de/corpus\.jsonl\.gz"):
        list(open_corpus(f"mldr-de@{folder}"))
    json_lines(folder / "dev.jsonl.gz", {"query_id": "q", "query": "؟"})
    with pytest.raises(MilcoError, match=r"dev\.jsonl\.gz:1: .*'negative_passages'"):
        open_qrels(f"mldr-ar-dev@{tmp_path}")


def test_ciral_is_read_from_its_two_repositories(tmp_path: Path) -> None:
    """Passages from one copy, topics and qrels from another."""
    passages, topics = tmp_path / "ciral-corpus", tmp_path / "ciral"
    passage = {"docid": "1#0", "title": "Labari", "text": "ruwa", "url": "https://x"}
    json_lines(passages / "passages-v1.0/hausa_passages.jsonl", passage)
    written(topics / "ciral-hausa/topics/topics.ciral-v1.0-ha-test-a.tsv", "3\tWhere is the river?\n")
    written(topics / "ciral-hausa/qrels/qrels.ciral-v1.0-ha-test-a.tsv", "3 Q0 1#0 1\n")
    assert read("ciral-ha", "ciral-ha-test-a", passages, topics) == (
        [Document("1#0", "Labari", "ruwa", {"url": "https://x"})],
        [Query("3", "Where is the river?")],
        {"3": {"1#0": 1}},
    )
    written(topics / "ciral-hausa/qrels/qrels.ciral-v1.0-ha-test-a-pools.tsv", "3 Q0 1#0 1\n3 Q0 9#0 0\n")
    assert list(open_topics(f"ciral-ha-test-a-pools@{topics}")) == [Query("3", "Where is the river?")]
    assert open_qrels(f"ciral-ha-test-a-pools@{topics}") == {"3": {"1#0": 1, "9#0": 0}}


def test_belebele_ids_are_the_same_in_all_languages(tmp_path: Path) -> None:
    """Two questions on one passage: the passage occurs once, and topics of one language fit documents of another."""
    for language, word in (("swh_Latn", "maji"), ("eng_Latn", "water")):
        rows = [
            {"link": "https://a/b", "question_number": number, "flores_passage": word, "question": f"{word} {number}?"}
            for number in (1, 2)
        ]
        json_lines(tmp_path / f"data/{language}.jsonl", *rows)
    documents, queries, qrels = read("belebele-swh_Latn", "belebele-eng_Latn-test", tmp_path)
    assert documents == [Document("https://a/b", "", "maji")]
    assert queries == [Query("https://a/b#1", "water 1?"), Query("https://a/b#2", "water 2?")]
    assert qrels == {"https://a/b#1": {"https://a/b": 1}, "https://a/b#2": {"https://a/b": 1}}


def squad(*paragraphs: tuple[str, list[tuple[str, str]]]) -> str:
    """A file in SQuAD's format: texts, each with its questions (id, text)."""
    answers = [{"answer_start": 0, "text": "x"}]
    entries = [
        {
            "context": text,
            "qas": [{"id": identity, "question": asked, "answers": answers} for identity, asked in asking],
        }
        for text, asking in paragraphs
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": entries}]}, ensure_ascii=False, indent=1)


def test_xquad_ids_are_the_same_in_all_languages(tmp_path: Path) -> None:
    """A passage is named after its first question; a single file is accepted as a copy."""
    written(tmp_path / "xquad.de.json", squad(("Wasser", [("b", "Was?"), ("a", "Wo?")]), ("Sonne", [("c", "Wie?")])))
    written(tmp_path / "xquad.vi.json", squad(("nước", [("b", "gì?"), ("a", "đâu?")]), ("mặt trời", [("c", "sao?")])))
    documents, queries, qrels = read("xquad-de", "xquad-vi-validation", tmp_path, tmp_path / "xquad.vi.json")
    assert documents == [Document("a", "", "Wasser"), Document("c", "", "Sonne")]
    assert queries == [Query("b", "gì?"), Query("a", "đâu?"), Query("c", "sao?")]
    assert qrels == {"b": {"a": 1}, "a": {"a": 1}, "c": {"c": 1}}
    with pytest.raises(MilcoError, match=r"xquad\.ar\.json:1: "):
        list(open_corpus(f"xquad-ar@{written(tmp_path / 'xquad.ar.json', '{}')}"))


@pytest.mark.parametrize("layout", ["archive", "folder of the archive", "unpacked", "unpacked, inside"])
def test_mlqa_is_read_from_its_archive_or_unpacked(tmp_path: Path, layout: str) -> None:
    """A repeated text is one passage, with the same id in all files of its language."""
    member = "MLQA_V1/test/test-context-zh-question-{}.json"
    arabic = squad(("水", [("1", "ما؟")]), ("日", [("2", "أين؟")]), ("水", [("3", "من؟")]))
    chinese = squad(("日", [("2", "哪里?")]), ("水", [("1", "什么?"), ("3", "谁?"), ("0", "几?")]))
    copy = tmp_path
    if layout.startswith("unpacked"):
        written(tmp_path / member.format("ar"), arabic)
        written(tmp_path / member.format("zh"), chinese)
        copy = tmp_path if layout == "unpacked" else tmp_path / "MLQA_V1"
    else:
        with zipfile.ZipFile(tmp_path / "MLQA_V1.zip", "w") as archive:
            archive.writestr(member.format("ar"), arabic)
            archive.writestr(member.format("zh"), chinese)
        copy = tmp_path / "MLQA_V1.zip" if layout == "archive" else tmp_path
    documents, queries, qrels = read("mlqa-zh-ar-test", "mlqa-zh-ar-test", copy)
    assert [document.text for document in documents] == ["水", "日"]
    assert queries == [Query("1", "ما؟"), Query("3", "من؟"), Query("2", "أين؟")]
    water, sun = (document.id for document in documents)
    assert qrels == {"1": {water: 1}, "3": {water: 1}, "2": {sun: 1}}
    assert {document.id for document in open_corpus(f"mlqa-zh-zh-test@{copy}")} == {water, sun}


def test_an_incomplete_zip_archive_is_refused(tmp_path: Path) -> None:
    """One without the file, and a truncated one."""
    archive = tmp_path / "MLQA_V1.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("README", "other")
    with pytest.raises(MilcoError, match=r"MLQA_V1/dev/dev-context-de-question-de\.json"):
        list(open_corpus(f"mlqa-de-de-dev@{tmp_path}"))
    archive.write_bytes(archive.read_bytes()[:30])
    with pytest.raises(MilcoError, match=r"MLQA_V1\.zip is not a complete zip file"):
        list(open_corpus(f"mlqa-de-de-dev@{tmp_path}"))


def test_afriqa_documents_are_the_distinct_gold_passages(tmp_path: Path) -> None:
    """A passage of two languages occurs once, relevant to both; null and NaN, which is not JSON, count as absent."""
    row = {"id": "0", "context": "The Nile. ", "title": "Nile", "question_lang": "?", "question_translated": "?"}
    lost = {**row, "id": "9", "context": None, "question_lang": nan, "answer_pivot": {"text": [nan]}}
    for split in ("train", "dev", "test"):
        path = tmp_path / f"data/gold_passages/fon/gold_span_passages.afriqa.fon.fr.{split}.json"
        own = [{**row, "id": "1", "context": "La mer", "title": None, "question_lang": "Mɛ?"}]
        json_lines(path, row, lost, *(own if split == "test" else []))
    documents, queries, qrels = read("afriqa-fr", "afriqa-fon-test", tmp_path)
    assert [(document.title, document.text) for document in documents] == [("Nile", "The Nile."), ("", "La mer")]
    assert queries == [Query("0", "?"), Query("1", "Mɛ?")]
    nile, sea = (document.id for document in documents)
    assert qrels == {"0": {nile: 1}, "1": {sea: 1}}
    assert open_qrels(f"afriqa-fon-dev@{tmp_path}") == {"0": {nile: 1}}


def test_neuclir_bench_splits_topics_by_year(tmp_path: Path) -> None:
    """Only judged topics; 2024 has the short name, too."""
    written(tmp_path / "data/news.eng.tsv", "1\tFloods in 2022\n200\tTrade\n300\tSolar power growth\n301\tNot judged\n")
    written(tmp_path / "data/qrels.mlir.gains.txt", "200 zho d1 3\n300 fas d2 1\n300 rus d3 0\n")
    written(tmp_path / "data/qrels.zho.gains.txt", "1 zho d4 1\n300 zho d5 3\n")
    assert list(open_topics(f"neuclir-multi-2024@{tmp_path}")) == [Query("300", "Solar power growth")]
    assert open_qrels(f"neuclir-multi-2024@{tmp_path}") == {"300": {"d2": 1, "d3": 0}}
    assert list(open_topics(f"neuclir-bench-multi-2023@{tmp_path}")) == [Query("200", "Trade")]
    assert list(open_topics(f"neuclir-bench-zho-2022@{tmp_path}")) == [Query("1", "Floods in 2022")]
    assert open_qrels(f"neuclir-zh-2024@{tmp_path}") == open_qrels(f"neuclir-zho-2024@{tmp_path}") == {"300": {"d5": 3}}
    with pytest.raises(MilcoError, match=r"qrels\.zho\.gains\.txt"):
        open_qrels(f"neuclir-bench-zho-2023@{tmp_path}")


def test_neuclir_2023_is_read_from_nists_files(tmp_path: Path) -> None:
    """English titles; the qrels of each language are a file of one tar archive."""
    others = [{"lang": "zho", "topic_title": "洪水"}, {"lang": "eng", "topic_title": "Trade"}]
    json_lines(tmp_path / "neuclir-2023-topics.0605.jsonl", {"topic_id": "200", "topics": others})
    with tarfile.open(tmp_path / "neuclir-2023-qrels.final.tar.gz", "w:gz") as archive:
        for name, line in (("qrels.final.gains", "200 0 f 1\n"), ("qrels.final.gains.zho", "200 0 z 3\n")):
            archive.add(written(tmp_path / "packed" / name, line), name)
    assert list(open_topics(f"neuclir-multi-2023@{tmp_path}")) == [Query("200", "Trade")]
    assert open_qrels(f"neuclir-multi-2023@{tmp_path}") == {"200": {"f": 1}}
    assert open_qrels(f"neuclir-zh-2023@{tmp_path}") == {"200": {"z": 3}}
    assert list(open_topics(f"neuclir-zh-2023@{tmp_path}")) == [Query("200", "Trade")]


def test_a_truncated_tar_archive_is_refused(tmp_path: Path) -> None:
    """The error names the archive; so does the one for a file that the archive lacks."""
    path = tmp_path / "neuclir-2023-qrels.final.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(written(tmp_path / "packed", "200 0 f 1\n" * 1000), "qrels.final.gains")
    with pytest.raises(MilcoError, match=r"qrels\.final\.gains\.zho"):
        open_qrels(f"neuclir-zh-2023@{tmp_path}")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(MilcoError, match=r"final\.tar\.gz is not"):
        open_qrels(f"neuclir-zh-2023@{tmp_path}")


def test_mkqa_has_answers_in_place_of_qrels(tmp_path: Path) -> None:
    """Its questions are in the archive of BGE M3-Embedding, a file per language."""
    with zipfile.ZipFile(tmp_path / "MKQA_test-data.zip", "w") as archive:
        archive.writestr("zh_tw.jsonl", json.dumps({"id": "1", "question": "誰?", "answers": ["x"]}) + "\n")
    assert list(open_topics(f"mkqa-zh-tw-test@{tmp_path}")) == [Query("1", "誰?")]
    assert open_answers(f"mkqa-zh-tw-test@{tmp_path}") == {"1": ["x"]}


def test_a_copy_that_lacks_a_file_is_neither_completed_nor_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every error names the missing file; no server is contacted, and an empty directory stays empty."""

    def refuse(*_: object) -> None:
        raise AssertionError("a server was contacted")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    missing = f"^{tmp_path} holds (no|neither) .*: a copy must have the layout of "
    for benchmark in BENCHMARKS.values():
        # The names of a benchmark differ in the paths of their files only.
        for name in [name for name, corpus in benchmark.corpora.items() if corpus.has_copies][:2]:
            with pytest.raises(MilcoError, match=missing):
                next(iter(open_corpus(f"{name}@{tmp_path}")))
        for name in [name for name, topics in benchmark.topics.items() if topics.has_copies][-4:]:
            with pytest.raises(MilcoError, match=missing):
                next(iter(open_topics(f"{name}@{tmp_path}")))
            with pytest.raises(MilcoError, match=f"{missing}|is judged by the answers"):
                open_qrels(f"{name}@{tmp_path}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["sample", "miracl-sw", "beir-nq", "mkqa"])
def test_copies_are_for_benchmarks_outside_ir_datasets(tmp_path: Path, name: str) -> None:
    """The error names IR_DATASETS_HOME, which does the same for ir_datasets."""
    with pytest.raises(MilcoError, match=rf"{name} .*IR_DATASETS_HOME="):
        open_corpus(f"{name}@{tmp_path}")


def test_reading_a_copy_neither_imports_ir_datasets_nor_writes(tmp_path: Path) -> None:
    """ir_datasets would create directories in the user's home, and a copy may be read-only."""
    json_lines(tmp_path / "mldr-v1.0-ar/corpus.jsonl.gz", {"docid": "1", "text": "نص"})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code = (
        "import sys; from milco_pyserini.corpora import open_corpus;"
        "assert len(list(open_corpus(f'mldr-ar@{sys.argv[1]}'))) == 1;"
        "print('ir_datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_missing_copy_is_an_error(tmp_path: Path) -> None:
    """A misspelled name gets the nearest match nevertheless; a path may contain an @."""
    for opener in (open_topics, open_qrels):
        with pytest.raises(MilcoError, match=r"^mldr-ar-test@/no/where: "):
            opener("mldr-ar-test@/no/where")
    with pytest.raises(MilcoError, match=r"^data/me@home/topics\.tsv: "):
        open_topics("data/me@home/topics.tsv")
    with pytest.raises(MilcoError, match="'' with a copy of mldr-ar"):
        open_corpus("mldr-ar@")
    with pytest.raises(MilcoError, match="did you mean 'mldr-ar'"):
        open_corpus(f"mlrd-ar@{tmp_path}")


def test_without_a_network_the_error_names_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a file of a repository, and for its card; opening fetches nothing."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    corpus = open_corpus("mldr-ar")
    with pytest.raises(Unreachable, match=r"mldr-v1\.0-ar/corpus\.jsonl\.gz of Shitao/MLDR"):
        corpus.check()
    with pytest.raises(Unreachable, match="NAME@PATH"):
        open_qrels("miracl-hn-ar-dev")


def test_cached_hub_files_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the revision of the benchmark: tables by the card, files by their path."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    revision = "d7d94fa4b946cec4a27c84653aa0cf6b33f74a3c"
    hard_negatives(tmp_path / f"datasets--mteb--MIRACLRetrievalHardNegatives/snapshots/{revision}")
    assert [document.id for document in open_corpus("miracl-hn-sw")] == ["1#0", "2#0"]
    assert open_qrels("miracl-hn-sw-dev") == {"7": {"1#0": 1}}

"""The catalog of benchmarks, and milco corpora."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from milco_pyserini.cli.corpora import main
from milco_pyserini.corpora import catalog, open_answers, open_qrels
from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS
from milco_pyserini.errors import MilcoError

# Benchmark -> number of languages: those of the paper's tables, of cross-language retrieval, and of MTEB since.
WANTED = {
    "sample": 13,
    "miracl": 18,
    "miracl-hn": 18,
    "mldr": 13,
    "mkqa": 25,
    "belebele": 122,
    "mteb-mlqa": 7,
    "mteb-statcan": 2,
    "mteb-twitterhjerne": 1,
    "mteb-wikipedia": 16,
    "neuclir": 4,
    "beir": 1,
    "limit": 1,
    "xquad": 12,
    "afriqa": 9,
    "mrtydi": 11,
    "ciral": 4,
    "mlqa": 7,
    "xpqa": 13,
    "webfaq": 49,
    "neuclir-hn": 3,
    "nanobeir": 11,
    "bright": 1,
    "browsecomp-plus": 1,
    "hakari": 25,
}


def documents_of(family: str) -> int:
    """Return the sum of the published sizes of a benchmark's corpora."""
    return sum(corpus.count or 0 for corpus in BENCHMARKS[family].corpora.values())


def topics_of(family: str, ending: str) -> int:
    """Return the sum of the published sizes of a benchmark's topics whose names end like this."""
    return sum(topics.count or 0 for name, topics in BENCHMARKS[family].topics.items() if name.endswith(ending))


def test_all_benchmarks_of_the_paper_are_in_the_catalog() -> None:
    """With their number of languages, and the fourteen datasets of BEIR."""
    assert {name: len(family.languages) for name, family in BENCHMARKS.items()} == WANTED
    assert sum(name.startswith("beir-") and "cqadupstack" not in name for name in CORPORA) == 14
    assert {"neuclir-multi-2023", "neuclir-multi-2024", "limit-small-test"} <= TOPICS.keys()


def test_sizes_add_up_to_the_published_totals() -> None:
    """MLDR's card and MTEB's statistics have totals, so a slip in one language or pair would show."""
    assert (documents_of("mldr"), topics_of("mldr", "-dev"), topics_of("mldr", "-test")) == (493_709, 2600, 3800)
    assert topics_of("mldr", "-train") == 41_434
    assert (documents_of("miracl-hn"), topics_of("miracl-hn", "-dev")) == (2_449_382, 11_076)
    assert (documents_of("mteb-wikipedia"), topics_of("mteb-wikipedia", "-test")) == (216_000, 24_000)
    assert topics_of("belebele", "-test") == 109_800
    assert topics_of("mkqa", "-test") == 25 * 6619
    assert topics_of("mlqa", "-dev") == 15_747
    assert documents_of("mteb-mlqa") == 1690 + 17_297
    hakari = {name: topics.count for name, topics in BENCHMARKS["hakari"].topics.items()}
    assert sum(count for name, count in hakari.items() if name.startswith("hakari-mldr-")) == 2089
    assert sum(count for name, count in hakari.items() if name.startswith("hakari-mmteb-")) == 3248
    assert sum(name.startswith("hakari-beir-") for name in hakari) == 13 * 13
    assert (topics_of("mteb-mlqa", "-validation"), topics_of("mteb-mlqa", "-test")) == (1920, 36_756 - 17_297)


def test_every_benchmark_has_a_license_and_a_citation() -> None:
    """As well as a source, a field rule, and names as a person reads them."""
    for benchmark in BENCHMARKS.values():
        facts = (benchmark.license, benchmark.citation, benchmark.source, benchmark.field_rule)
        assert all(facts) and benchmark.corpus_names and benchmark.topics_names, benchmark.name
        assert benchmark.languages and benchmark.corpora and benchmark.topics, benchmark.name


def test_the_head_of_the_table_explains_every_key() -> None:
    """A misspelled optional key would be ignored."""
    text = (Path(catalog.__file__).parent / "benchmarks.toml").read_text(encoding="utf-8")
    explained = set(re.findall(r"\w+", text.partition("\n\n")[0])) | {field.name for field in fields(Benchmark)}
    for table in tomllib.loads(text)["benchmark"]:
        keys = {*table, *(key for kind in ("corpora", "topics") for entry in table[kind] for key in entry)}
        assert keys <= explained, table["name"]


def test_list_and_show_print_benchmarks_and_names(capsys: pytest.CaptureFixture) -> None:
    """Languages, sizes, license and source; with --names every name."""
    assert main(["list", "mldr", "afriqa"]) == 0
    shown = capsys.readouterr().out
    assert "mldr: MLDR\n  languages   ar de en es fr hi it ja ko pt ru th zh\n" in shown
    assert "corpus      mldr-LANG (13 names, 3,806 to 200,000 documents each)\n" in shown
    assert "license     MIT\n" in shown and "afriqa-en, afriqa-fr (2 names, 790 to 5,367 documents each)" in shown
    assert main(["list", "limit", "--names"]) == 0
    names = capsys.readouterr().out
    assert "limit-small       corpus  46\n" in names
    assert main(["show", "limit", "xquad-ar", "mldr-ar-dev"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("limit: LIMIT\n") and names in shown
    assert "use         --corpus xquad-ar\n" in shown and "documents   240\n" in shown
    assert "use         --topics mldr-ar-dev, --qrels mldr-ar-dev\n" in shown and "topics      200\n" in shown


def test_unknown_names_and_subcommands_get_the_nearest_match(capsys: pytest.CaptureFixture) -> None:
    """Without arguments, milco corpora prints its help page."""
    assert main(["list", "mrldr"]) == 2
    assert "unknown benchmark 'mrldr': did you mean 'mldr'?" in capsys.readouterr().err
    assert main(["show", "xquad-ar", "mldr-zw"]) == 2
    assert "unknown name 'mldr-zw': did you mean 'mldr-zh'? 'milco corpora list'" in capsys.readouterr().err
    assert main(["lits"]) == 2
    assert "unknown subcommand 'lits': did you mean 'list'?" in capsys.readouterr().err
    assert main([]) == 0
    assert "List the benchmarks" in capsys.readouterr().out


def test_topics_have_either_qrels_or_answers() -> None:
    """The error for one names the other."""
    with pytest.raises(MilcoError, match="--topics mkqa-ar-test"):
        open_qrels("mkqa-ar-test")
    with pytest.raises(MilcoError, match="mkqa-ar-test to mkqa-zh-tw-test"):
        open_answers("mldr-ar-test")

"""A search page of static files: its JavaScript finds what milco search finds, and it works in a browser."""

import functools
import gzip
import http.server
import json
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browsing import is_light, opened
from network_set import write_model, write_network
from pages import EVIL

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.main import main
from milco_pyserini.corpora import open_corpus
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.encode.query_network import QueryNetwork
from milco_pyserini.export import web
from milco_pyserini.sparse import SparseBatch, Vocabulary

pytestmark = pytest.mark.slow

DOCUMENTS = 40
# Scripts, controls, spaces, compositions, special tokens, capitals and lone surrogates.
RANGES = [(1, 0x3400), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xF900, 0xFB00), (0xFE00, 0x10000), (0x1F300, 0x1F700)]
TEXTS = [
    *(
        "",
        " ",
        "\u200b",
        "\ufeff",
        "\x1c",
        "\t\r\na  b",
        "ＮＡＳＡ",
        "＜s＞",
        "<s> hello</s>x<pad>",
        "a <unk> b",
        "e\u0301ﬁ½㌖",
    ),
    *(
        "WHO INVENTED THE TELEPHONE",
        "NASA",
        "İSTANBUL ŞEHRİ NEREDE",
        "ΟΔΟΣ ΤΗΣ ΕΙΡΗΝΗΣ",
        "a\ud800b",
        "각\u11a8",
        "▁▁a ▁b",
    ),
    " ".join(["длинный"] * 200),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of some documents of the sample, and a query network."""
    root = tmp_path_factory.mktemp("web")
    encoder = MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")
    documents = [
        {"id": one.id, "text": one.contents, **one.fields} for one in list(open_corpus("sample"))[:: 650 // DOCUMENTS]
    ]
    for number, one in enumerate(documents):
        one["text"] = f"{EVIL} {one['text']}"
        # Some have an empty kind, and some none.
        one |= [{"kind": "a"}, {"kind": ""}, {}][number % 3]
    Index.build(documents, root / "small.lucene", "lucene", encoder=encoder)
    write_network(encoder, root / "network", 0)
    assert main([*export(root), "--topics", "sample"]) == 0
    return root


def export(root: Path, index: str = "small.lucene", output: str = "site") -> list[str]:
    """Return the command that exports an index."""
    return [
        "export",
        "web",
        "--index",
        str(root / index),
        "--encoder",
        str(root / "network"),
        "--output",
        str(root / output),
    ]


@pytest.fixture(scope="module")
def network(root: Path) -> QueryNetwork:
    loaded = load_encoder(root / "network")
    assert isinstance(loaded, QueryNetwork)
    return loaded


def run(root: Path, queries: Sequence[str] = (), texts: Sequence[str] = (), value: int = 0, k: int = 1000) -> Any:
    """Search and tokenize in Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js (apt-get install nodejs)")
    given = {"directory": str(root / "site"), "queries": queries, "texts": texts, "value": value, "k": k}
    script = Path(__file__).with_name("web_search.mjs")
    return json.loads(
        subprocess.run([node, script], input=json.dumps(given), capture_output=True, check=True, text=True).stdout
    )


def queries() -> list[str]:
    """Return beginnings of texts of the sample, in all of its languages, and further texts."""
    return [one.contents[:80] for one in list(open_corpus("sample"))[::13]] + TEXTS


def many_texts() -> list[str]:
    """Return texts in every script, and of random characters."""
    rng = random.Random(0)
    pool = [chr(code) for first, last in RANGES for code in range(first, last)]
    texts = ["".join(rng.choices(pool, k=rng.randint(1, 6))) for _ in range(3000)]
    return [*queries(), *texts, *(f"a{one}b" for one in pool)]


def test_texts_have_the_tokens_of_the_package_tokenizers(root: Path, network: QueryNetwork) -> None:
    """In every script, with every normalization, cut at the length of queries."""
    texts = many_texts()
    expected = [row.ids for row in network.tokenizer.tokenize(texts, network.config.query_max_length)]
    wrong = [text for text, ids, own in zip(texts, run(root, texts=texts)["ids"], expected, strict=True) if ids != own]
    # Letters of later versions of Unicode, of which a browser knows more than Python, may have capitals.
    assert [text for text in wrong if text.isascii() or len(text) > 6] == []
    assert len(wrong) <= 3


def test_a_tokenizer_may_have_a_compiled_map_of_characters(tmp_path: Path) -> None:
    """As those of XLM-R and BGE-M3: tokens, hits and scores are equal, too."""
    encoder = write_model(tmp_path / "model", query_pivot_top_k=12)
    network = load_encoder(write_network(encoder, tmp_path / "network"))
    Index.build([text or "blank" for text in queries()], tmp_path / "small.lucene", "lucene", encoder=encoder)
    assert main(export(tmp_path)) == 0
    texts = many_texts()
    found = run(tmp_path, queries(), texts)
    assert found["ids"] == [row.ids for row in network.tokenizer.tokenize(texts, network.config.query_max_length)]
    with Searcher.open(tmp_path / "small.lucene", network) as searcher:
        expected = searcher.search_batch(queries())
    for answer, hits in zip(found["answers"], expected, strict=True):
        assert [(one["id"], one["score"]) for one in answer["hits"]] == list(
            zip(hits.docids, hits.scores.tolist(), strict=True)
        )


@pytest.mark.parametrize("language", ["", "de"])
def test_hits_and_scores_are_those_of_milco_search(root: Path, network: QueryNetwork, language: str) -> None:
    """To the last hit, with ties in the order of docids, limits of terms, totals, shares, and a filter."""
    filters = [f"lang={language}"] if language else []
    value = 1 + json.loads((root / "site" / "site.json").read_bytes())["values"].index(language) if language else 0
    with Searcher.open(root / "small.lucene", network) as searcher:
        expected = searcher.search_batch(queries(), filters=filters)
        shares = [[hit.share for hit in hits] for hits in expected]
    answers = run(root, queries(), value=value)["answers"]
    assert sum(len(hits) for hits in expected) > 50
    for answer, hits, share in zip(answers, expected, shares, strict=True):
        assert [(one["id"], one["score"]) for one in answer["hits"]] == list(
            zip(hits.docids, hits.scores.tolist(), strict=True)
        )
        assert answer["total"] == hits.total
        assert [one["share"] for one in answer["hits"]] == pytest.approx(share)
        assert all(sum(term["score"] for term in one["reasons"]) <= one["score"] for one in answer["hits"])


def test_a_finished_page_is_kept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither it nor another export is replaced without --overwrite."""
    before = (root / "site" / "site.json").stat().st_mtime_ns
    assert main([*export(root), "--topics", "sample"]) == 0
    assert (root / "site" / "site.json").stat().st_mtime_ns == before
    assert main([*export(root), "--field", "lang"]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_indexes_that_no_page_can_have_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence that names the fix, before anything is written."""
    vectors = SparseBatch.from_dicts([{"a": 1.0}], Vocabulary(["a"], []))
    Index.build(vectors, root / "floats", "exact", ids=["1"])
    Index.build(vectors, root / "textless", "lucene", ids=["1"])
    monkeypatch.setattr(web, "MAX_DOCUMENTS", DOCUMENTS - 1)
    messages = {
        "floats": "engine exact",
        "textless": "--store",
        "small.lucene": f"at most {DOCUMENTS - 1}",
        "absent": "absent",
    }
    for index, message in messages.items():
        assert main(export(root, index, "refused")) == 2
        assert message in capsys.readouterr().err
    monkeypatch.undo()
    command = [*export(root, output="refused"), "--field", "lang"]
    for given, other, message in (
        (str(root / "network"), "mini", "query network"),
        (str(root / "network"), str(root / "nothing"), "nothing"),
        ("lang", "year", "year"),
    ):
        assert main([other if part == given else part for part in command]) == 2
        assert message in capsys.readouterr().err
    assert not (root / "refused").exists()


released = threading.Event()


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    """A static server of the page, below a path."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            """State an encoding of data, as some hosts do; hold back the documents of a slow one."""
            if "/encoded/data/" in self.path:
                self.send_header("Content-Encoding", "gzip")
            if "/slow/data/texts" in self.path:
                released.wait(60)
            super().end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep stderr for messages."""

    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/site/"
        released.set()
        server.shutdown()


def test_the_page_works_in_a_browser(root: Path, network: QueryNetwork, browser: Any, address: str) -> None:
    """By keyboard, with a filter, in the dark, on a narrow screen, and without a network."""
    query = queries()[0]
    with Searcher.open(root / "small.lucene", network) as searcher:
        expected = searcher.search(query)
        language = expected[0].fields["lang"]
        filtered = searcher.search(query, filters=f"lang={language}")
    with opened(browser, address, color_scheme="dark", viewport={"width": 375, "height": 700}) as page:
        assert not is_light(page)
        assert page.locator("#examples a").count() > 5
        page.keyboard.type("/")
        assert page.input_value("#q") == ""
        page.keyboard.type(query)
        page.keyboard.press("Enter")
        page.wait_for_selector("article")
        assert page.locator("article .score strong").all_inner_texts() == [f"{hit.score:,.0f}" for hit in expected]
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        assert page.locator("article:first-child .why mark").first.is_visible()
        assert page.locator("article h2").first.get_attribute("dir") == "auto"
        page.wait_for_selector("#offline:not(:empty)")
        page.context.set_offline(True)
        page.reload()
        page.wait_for_selector("article")
        page.click("#filters summary")
        page.click(f"#filters .values a:has-text('{language}')")
        page.wait_for_selector(f"#about:has-text('of {filtered.total} ·')")
        assert page.locator("article .score strong").all_inner_texts() == [f"{hit.score:,.0f}" for hit in filtered]
        page.go_back()
        page.wait_for_selector(f"#about:has-text('of {expected.total} ·')")


def test_markup_of_documents_and_queries_is_text(root: Path, browser: Any, address: str) -> None:
    """No script runs, and no address is requested; opened() sees to both."""
    text = next(iter(open_corpus("sample"))).contents[:60]
    with opened(browser, address) as page:
        page.fill("#q", f"{text} {EVIL}")
        page.keyboard.press("Enter")
        page.wait_for_selector("article")
        assert EVIL.split(" & ")[0] in page.locator("main").inner_text()
        assert page.locator("main script, main b").count() == 0


@pytest.fixture(scope="module")
def kinds(root: Path, address: str) -> str:
    """The address of another export of the index, which filters by kind and has a title."""
    assert main([*export(root, output="kinds"), "--field", "kind", "--title", EVIL]) == 0
    return address.replace("/site/", "/kinds/")


def test_an_empty_value_does_not_filter(root: Path, network: QueryNetwork, browser: Any, kinds: str) -> None:
    """Neither of documents with it nor of those without the field; an unknown value does not find everything."""
    site = json.loads((root / "kinds" / "site.json").read_bytes())
    with Searcher.open(root / "small.lucene", network) as searcher:
        documents = searcher.search(queries()[0], 1000)
        filtered = searcher.search(queries()[0], 1000, filters="kind=a")
    assert (site["values"], site["counts"]) == (["a"], [len(range(0, len(list(open_corpus("sample"))[::16]), 3))])
    query = f"{kinds}?q={quote(queries()[0])}"
    for value, message in (
        ("", f"of {documents.total} ·"),
        ("&value=", f"of {documents.total} ·"),
        ("&value=a", f"of {filtered.total} ·"),
        ("&value=b", "No document that passes the filter has a term of this query. Without the filter, "),
    ):
        with opened(browser, query + value) as page:
            page.wait_for_selector(f"#about:has-text('{message}')")
            assert page.inner_text("#name") == EVIL


def test_files_that_are_not_of_the_export_are_refused(root: Path, browser: Any, address: str, kinds: str) -> None:
    """By name, with the fix: of another export, another file of the same, cut, flipped, or a page of the host."""
    shutil.copytree(root / "site", root / "mixed")
    data = root / "mixed" / "data"
    flipped = bytearray((data / "postings-0").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    unpacked = bytearray(gzip.decompress((data / "postings-0").read_bytes()))
    # As of a host that states the encoding gzip, whose checksum browsers do not verify.
    unpacked[-1] ^= 1
    other = "belongs to another export than site.json, or is another file of it"
    for file, content, message in (
        ("postings-0", (root / "kinds" / "data" / "postings-0").read_bytes(), other),
        ("tokenizer", (root / "kinds" / "data" / "tokenizer").read_bytes(), other),
        ("values", (data / "postings-0").read_bytes(), other),
        ("postings-0", flipped[: len(flipped) // 2], "is damaged"),
        ("postings-0", flipped, "is damaged"),
        ("postings-0", gzip.compress(bytes(1000)), "is damaged"),
        ("postings-0", gzip.compress(unpacked), "is damaged"),
        ("tokenizer", b"<!DOCTYPE html><title>Not found</title>", "is damaged, or the host sends another file"),
    ):
        before = (data / file).read_bytes()
        (data / file).write_bytes(content)
        with opened(browser, f"{address.replace('/site/', '/mixed/')}?q={quote(queries()[0])}") as page:
            page.wait_for_selector(f"#about:has-text('data/{file} {message}')")
            assert "upload all files of the export again" in page.inner_text("#about")
            assert page.locator("article").count() == 0
        (data / file).write_bytes(before)
    (root / "mixed" / "site.json").write_bytes(b"<!DOCTYPE html>")
    with opened(browser, address.replace("/site/", "/mixed/")) as page:
        page.wait_for_selector("#about:has-text('site.json is damaged')")


def test_damaged_settings_and_words_are_refused(root: Path, browser: Any, address: str) -> None:
    """By name: a flipped bit of a key, the content of another file, and a script that reads another format."""
    shutil.copytree(root / "site", root / "damaged")
    contents = {file: (root / "site" / file).read_bytes() for file in ("site.json", "interface.json", "page.js")}
    site, words, script = contents.values()
    damaged = "is damaged, or the host sends another file: upload all files of the export again."
    for file, content, message in (
        ("site.json", site.replace(b'"length"', b'"mength"'), f"site.json {damaged}"),
        ("site.json", site.replace(b'"format":', b'"format":1'), f"site.json {damaged}"),
        ("interface.json", words.replace(b'"found"', b'"fount"'), f"interface.json {damaged}"),
        ("interface.json", site, f"interface.json {damaged}"),
        ("page.js", re.sub(rb"FORMAT = \d+", b"FORMAT = 0", script), "or reload the page."),
    ):
        assert content != contents[file]
        (root / "damaged" / file).write_bytes(content)
        with opened(browser, f"{address.replace('/site/', '/damaged/')}?q={quote(queries()[0])}") as page:
            page.wait_for_selector(f"#about:has-text('{message}')")
            assert page.locator("article").count() == 0
            assert file != "page.js" or re.search(r"(site|interface)\.json are of different", page.inner_text("#about"))
        (root / "damaged" / file).write_bytes(contents[file])


def test_a_host_may_unpack_files_or_be_slow(root: Path, browser: Any, address: str) -> None:
    """The page then reports how many files are loaded."""
    for name in ("encoded", "slow"):
        (root / name).symlink_to(root / "site")
    for name in ("encoded", "slow"):
        with opened(browser, f"{address.replace('/site/', f'/{name}/')}?q={quote(queries()[0])}") as page:
            if name == "slow":
                page.wait_for_selector("#about:has-text('Loading … ')")
                released.set()
            page.wait_for_selector("article")


def test_the_page_speaks_the_language_of_the_browser_or_of_a_choice(root: Path, browser: Any, address: str) -> None:
    """With its direction; a choice is kept, and keeps the query."""
    with opened(browser, f"{address}?q={quote(queries()[0])}", locale="ar-EG") as page:
        page.wait_for_selector("article")
        root_element = "[document.documentElement.lang, document.documentElement.dir]"
        assert page.evaluate(root_element) == ["ar", "rtl"]
        assert "يطابق" in page.inner_text("article:first-child .score")
        page.click("#languages summary")
        page.click("#languages a:has-text('日本語')")
        page.wait_for_selector("#about:has-text('件目の文書')")
        assert page.evaluate(root_element) == ["ja", "ltr"]
        page.goto(address)
        page.wait_for_selector("#about:has-text('文書数')")
        assert page.get_attribute("#q", "placeholder") == "どの言語でも検索できます"

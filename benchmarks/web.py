"""Compare the search page of milco export web, in Chromium, with milco search: hits, bytes, requests and milliseconds.

python benchmarks/web.py --index indexes/sample.lucene --encoder mini-query --topics sample

Every topic is searched for in the page's own worker. Cold starts open the page with a query in a browser without files.
"""

import functools
import http.server
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from milco_pyserini import Index, Searcher
from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_topics
from milco_pyserini.defaults import MINI_QUERY
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.export.web import export_page
from milco_pyserini.options import option

_SEARCH = """async ({ texts, k }) => {
  const site = await (await fetch("site.json")).json(), answers = [];
  const worker = new Worker("worker.js", { type: "module" });
  for (const text of texts) {
    const answer = new Promise((resolve) => (worker.onmessage = ({ data }) => data.loading ?? resolve(data)));
    worker.postMessage({ number: 0, site, text, k, value: 0 });
    const { hits, total } = await answer;
    answers.push([hits.map((hit) => [hit.id, hit.score]), total]);
  }
  return answers;
}"""


@dataclass(frozen=True)
class WebOptions:
    """Search a page for topics in Chromium, and compare hits and scores with those of milco search."""

    index: Path = option(metavar="DIR", help="index of engine lucene with stored documents")
    encoder: str = option(MINI_QUERY, metavar="NAME|DIR", help="query network")
    topics: str = option("sample", metavar="NAME|PATH", help="topics")
    k: int = option(1000, minimum=1, help="hits to compare")
    repeats: int = option(5, minimum=1, metavar="N", help="cold starts, each with another topic")


@dataclass
class Traffic:
    """The requests that a server has answered since the last reset, and their bytes."""

    requests: int = 0
    bytes: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """Begin again with zero."""
        self.requests = self.bytes = 0


@contextmanager
def served(directory: Path) -> Iterator[tuple[str, Traffic]]:
    """Serve the files of a directory; yield the address, and what is sent."""
    traffic = Traffic()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Log nothing."""

        def copyfile(self, source: Any, outputfile: Any) -> None:
            """Send a file, and count it."""
            content = source.read()
            with traffic.lock:
                traffic.requests += 1
                traffic.bytes += len(content)
            outputfile.write(content)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=directory)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", traffic
        server.shutdown()


def cold_start(browser: Any, address: str, traffic: Traffic, text: str) -> tuple[float, int, int]:
    """Return milliseconds from the request of the page to the first hit, and requests and bytes until then."""
    # Files are kept for later only after the first answer, by a service worker.
    context = browser.new_context(service_workers="block")
    page = context.new_page()
    traffic.reset()
    started = time.perf_counter()
    page.goto(f"{address}?q={quote(text)}", wait_until="commit")
    page.wait_for_selector("article, #about:has-text('No document')")
    found = 1000 * (time.perf_counter() - started), traffic.requests, traffic.bytes
    context.close()
    return found


def command(options: WebOptions) -> None:
    """Print equal rankings, bytes, requests and milliseconds."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise MilcoError("benchmarks/web.py needs playwright: pip install playwright") from None
    encoder: Any = load_encoder(options.encoder)
    texts: Sequence[str] = [query.text for query in open_topics(options.topics)]
    with Searcher.open(options.index, encoder) as searcher:
        expected = [
            ([list(hit) for hit in zip(hits.docids, hits.scores.tolist(), strict=True)], hits.total)
            for hits in searcher.search_batch(texts, options.k)
        ]
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        site = Path(directory) / "site"
        started = time.perf_counter()
        manifest = export_page(Index.open(options.index), encoder, site, overwrite=True)
        seconds, size = time.perf_counter() - started, sum(file.bytes for file in manifest.files)
        sys.stdout.write(f"export: {seconds:.1f} s, {size / 1e6:.1f} MB in {len(manifest.files):,} files\n")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(site) as (address, traffic):
            page = browser.new_page()
            page.goto(address)
            started = time.perf_counter()
            answers = page.evaluate(_SEARCH, {"texts": texts, "k": options.k})
            milliseconds = 1000 * (time.perf_counter() - started) / len(texts)
            equal = sum((hits, total) == wanted for (hits, total), wanted in zip(answers, expected, strict=True))
            sys.stdout.write(
                f"equal hits, scores and totals: {equal:,} of {len(texts):,} topics, up to {options.k:,} hits each\n"
            )
            sys.stdout.write(f"a search: {milliseconds:.1f} ms on average, with the documents of all hits\n")
            page.close()
            some = texts[:: max(1, len(texts) // options.repeats)][: options.repeats]
            runs = [cold_start(browser, address, traffic, text) for text in some]
            milliseconds, requests, size = (median(values) for values in zip(*runs, strict=True))
            sys.stdout.write(
                f"cold start to the first hit: {milliseconds:,.0f} ms, {requests:.0f} requests, {size / 1e6:.2f} MB\n"
            )
        browser.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/web.py", WebOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())

"""A page in a browser as tests open it: without errors, and without requests to other addresses."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def opened(browser: Any, address: str, **context: Any) -> Iterator[Any]:
    """Yield a page at an address; in the end it must have logged nothing and requested only what is below it.

    Args:
        context: options of Playwright's new_context(), such as color_scheme.
    """
    page = browser.new_context(**context).new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    try:
        yield page
    finally:
        page.context.close()
    assert [problem for problem in problems if "favicon" not in problem] == []
    assert [url for url in requests if not url.startswith((address.partition("?")[0], "data:"))] == []


def is_light(page: Any) -> bool:
    """Return whether a page has a white background."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"

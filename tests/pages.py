"""HTML pages as tests read them, and explanations of texts that try to break out of a page."""

from collections.abc import Sequence
from html.parser import HTMLParser

from golden_set import encoder

from milco_pyserini.explain.explainer import explain_texts
from milco_pyserini.explain.explanation import Explanation

EVIL = '<script>alert("x")</script> & <b>نهر النيل</b> ナイル川 \'"'


def explanations(query: str = EVIL, texts: Sequence[str] = (EVIL, f"{EVIL} more", "x")) -> list[Explanation]:
    """Explain some texts with the tiny encoder."""
    return explain_texts(encoder("distillation"), query, texts)


class Tags(HTMLParser):
    """The tags of a page, those not closed at its end, and its text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a tag."""
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the visible text."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def values(self, name: str) -> list[str]:
        """Return the values of all attributes of that name, but not the links that choose the page's language."""
        values = [value or "" for key, value in self.attributes if key == name]
        return [value for value in values if not (name == "href" and "ui=" in value)]

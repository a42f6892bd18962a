"""Detect the languages of documents, for a corpus that does not state them: filters and balance need a field lang."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from milco_pyserini.corpora.records import Document
from milco_pyserini.errors import require_package, unknown_name

FIELD = "lang"
UNDETERMINED = "und"
"""The ISO 639 code of texts whose language is mixed or unknown."""
MIN_PROBABILITY = 0.7
"""Below it, a text has no language: rather none than a wrong one."""
# The beginning of a text shows its language.
_CHARACTERS = 2000
# py3langid's class of numbers, markup and other text without a language.
_NO_LANGUAGE = "zxx"


def detect_languages(documents: Iterable[Document], languages: Sequence[str] = ()) -> Iterator[Document]:
    """Yield documents with the detected language of their text as the field lang: "de", "zh", "yue".

    >>> from milco_pyserini.corpora import Document
    >>> documents = [Document("d1", "", "Der Nil ist ein Fluss in Afrika.")]
    >>> [document.fields for document in detect_languages(documents)]  # doctest: +SKIP
    [{'lang': 'de'}]

    Documents that have the field keep theirs. A text whose most probable language has a probability below .7, or that
    has no language, such as numbers, gets none.

    Args:
        languages: those that the documents are in, as codes of ISO 639-1, or 639-3 where a language has none (default:
            any of py3langid's 139). A text in another one may be taken for one of these.

    Raises:
        MilcoError: py3langid is not installed, or does not know one of the languages.
    """
    detect = _detector(tuple(languages))
    for document in documents:
        if FIELD not in document.fields and (language := detect(document.contents[:_CHARACTERS])):
            document = replace(document, fields={**document.fields, FIELD: language})
        yield document


@cache
def _detector(languages: tuple[str, ...]) -> Callable[[str], str | None]:
    require_package("py3langid", "detect", "the detection of languages")
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    for language in languages:
        if language not in identifier.labels:
            raise unknown_name("language", language, identifier.labels)
    if languages:
        identifier.set_languages([*languages, _NO_LANGUAGE])

    def detect(text: str) -> str | None:
        language, probability = identifier.classify(text)
        return None if probability < MIN_PROBABILITY or language == _NO_LANGUAGE else language

    return detect

"""Make pivot weights comparable between languages: common terms weigh less, and so do those of one language.

SAP fits each language to English on its own, and each keeps habits: English terms that many of its texts have, and
those of other languages have not. Between texts in one language they are noise; among all languages they rank texts in
the query's language first. A term's weight is therefore scaled by its inverse document frequency in the language where
it is most common, and by how much more common it is there than on average. Measured on training texts only.

Contrast across languages (SCT) lowers terms of one language, too. Together that is too much: a part is taken back.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.sparse import PIVOT

from . import corpus

# Texts of each language; dictionary entries are joined to texts where there are fewer than the least number.
_TEXTS, _LEAST_TEXTS, _ENTRIES = 1000, 300, 6
# Added to shares of texts.
_SMOOTHING = 1e-3
_IDF_POWER, _SPREAD_POWER = 0.5, 0.25
# Taken back after contrast; chosen on the sample, FLORES and Tatoeba.
_RETURNED_POWER = 0.2
# The logit at which the scaled weight is exact: LogSat .92, a strong term of a sentence.
_LOGIT = 1.5


def calibrate(encoder: MilcoEncoder, data: Path) -> None:
    """Scale the decoder of an encoder in place: see the module."""
    scale_terms(encoder, term_gains(document_frequencies(encoder, data)))


def recalibrate(encoder: MilcoEncoder, data: Path) -> None:
    """Take back a part of the calibration after contrast, in place: see the module."""
    scale_terms(encoder, spread(document_frequencies(encoder, data)) ** _RETURNED_POWER)


def scale_terms(encoder: MilcoEncoder, gains: NDArray[np.float64]) -> None:
    """Scale the weights of English terms by gains, float64 [V_e], in the decoder of an encoder."""
    # LogSat(scale * logit) = gain * LogSat(logit) at that logit.
    scales = torch.from_numpy((((1 + _LOGIT) ** gains - 1) / _LOGIT).astype(np.float32))
    with torch.no_grad():
        encoder.model.decoder.weight.mul_(scales.unsqueeze(1))
        encoder.model.decoder.bias.mul_(scales)


def document_frequencies(encoder: MilcoEncoder, data: Path) -> NDArray[np.float64]:
    """Return the share of texts of each language that have each English term: [languages and English, V_e]."""
    languages = corpus.languages(data)
    texts = [calibration_texts(data, language) for language in languages]
    texts.append(_spaced(corpus.english_sentences(data, per_language=_TEXTS)))
    size = encoder.vocabulary.english_size
    vectors = (encoder.encode_document(found, views=(PIVOT,)).to_scipy() for found in texts)
    return np.stack([(matrix[:, :size] > 0).mean(axis=0) for matrix in vectors])


def calibration_texts(data: Path, language: str) -> list[str]:
    """Return sentences of a language from all its sources, or dictionary entries joined to texts of that length."""
    sentences = _spaced([pair.text for pair in corpus.bitext(data, language)])
    if len(sentences) >= _LEAST_TEXTS:
        return sentences
    entries = _spaced([pair.text for pair in corpus.lexicon(data, language)], _TEXTS * _ENTRIES)
    texts = len(entries) // _ENTRIES
    return sentences + [" ".join(entries[start::texts]) for start in range(texts)]


def term_gains(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor of each term's weight, above 0 and at most 1. frequencies: [languages, V_e], from 0 to 1."""
    highest = frequencies.max(axis=0) + _SMOOTHING
    idf = np.maximum(-np.log(highest), _SMOOTHING)
    return (idf / idf.max()) ** _IDF_POWER * spread(frequencies) ** -_SPREAD_POWER


def spread(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much more common each term is in one language than on average. frequencies: as of term_gains()."""
    return (frequencies.max(axis=0) + _SMOOTHING) / (frequencies.mean(axis=0) + _SMOOTHING)


def _spaced(texts: list[str], most: int = _TEXTS) -> list[str]:
    return texts[:: max(1, len(texts) // most)][:most]

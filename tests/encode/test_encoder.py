"""Vectors depend only on their texts, and every argument of the encoder has its documented effect."""

import doctest
import functools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_set import GOLDEN, TEXTS, dense, encoder
from pandas import DataFrame

from milco_pyserini.encode import contract
from milco_pyserini.encode import encoder as encoder_module
from milco_pyserini.encode.contract import MilcoDocumentEncoder, MilcoQueryEncoder, open_query_encoder
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.encoder import MilcoEncoder, choose_device, choose_dtype
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.explainer import explain_texts
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.model import packed, tokenization, weights
from milco_pyserini.model.tokenization import replace_lone_surrogates
from milco_pyserini.model.weights import weight_hash
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch, Vocabulary

CHECKPOINT = GOLDEN / "ckpt_distillation"
FILLED = [text for text in TEXTS if text]


@pytest.fixture(scope="module")
def milco() -> MilcoEncoder:
    """The checkpoint with both views, in float32."""
    return encoder("distillation")


def variant(**fields: object) -> MilcoEncoder:
    """Load the checkpoint with other MilcoConfig fields."""
    return MilcoEncoder.from_pretrained(CHECKPOINT, "cpu", "float32", **fields)


def test_long_texts_are_truncated_like_the_authors(milco: MilcoEncoder) -> None:
    """The first tokens are kept and </s> ends the row."""
    long = TEXTS[-1]
    complete = milco.tokenizer.ids([long])[0]
    encoded = milco.encode([FILLED[0], long], max_length=64)
    cut = milco.network.encode([[*complete[:63], 2]], milco.views)
    np.testing.assert_allclose(dense(encoded)[1], dense(cut)[0], atol=1e-5)


LONG = {
    "words": "old harbour river " * 900,
    "long words": " ".join("abcdefghij" * size for size in range(1, 70)),
    "one word": "harbour" * 4001,
    "one letter": "a" * 20_001,
    "Chinese": "小さな市場の最初の本" * 1500,
    "combining marks": "e\u0301\u0323o\u0308" * 4000,
    "Hangul letters": "\u1112\u1161\u11ab\u1100\u1173\u11af" * 2500,
    "emoji": "👩\u200d👩\u200d👧 " * 2500,
    "white space first": " \n" * 10_000 + "old harbour " * 900,
    "nothing first": "\x01\u200b" * 10_000 + "old harbour " * 900,
    "longer when normalized": "\ufdfa" * 9000,
    "shorter when normalized": "\ud83d\ude82 \ud83d" * 4000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_truncating_before_tokenizing_changes_no_token(milco: MilcoEncoder, text: str) -> None:
    """The beginning of a long text has the first tokens of the complete text."""
    ids = milco.tokenizer.tokenizer.encode(replace_lone_surrogates(text)).ids
    for length in (8, 64):
        tokens = milco.tokenizer.tokenize([text, "book"], length)[0]
        assert tokens.ids == (ids if len(ids) <= length else [*ids[: length - 1], ids[-1]])
        assert tokens.truncated == (len(ids) > length)


def test_a_very_long_text_is_tokenized_in_segments(milco: MilcoEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments end at white space, so that their tokens are those of the text."""
    texts = [LONG["words"], "", "book", LONG["long words"], " " * 3000 + "x"]
    ids = milco.tokenizer.ids(texts)
    monkeypatch.setattr(tokenization, "SEGMENT", 800)
    monkeypatch.setattr(tokenization, "AT_ONCE", 1000)
    assert milco.tokenizer.ids(texts) == ids
    assert milco.tokenizer.ids(["x" * 5000])[0][-1] == ids[2][-1]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000", "\u200b", "\ufeff\x07"])
def test_a_blank_text_has_no_terms(milco: MilcoEncoder, text: str) -> None:
    """A text without a piece of its own keeps its position with an empty vector."""
    batch = milco.encode([FILLED[0], text, FILLED[1]], max_length=512)
    assert batch.lengths()[1] == 0
    assert batch.lengths()[0] > 0 < batch.lengths()[2]


def test_lone_surrogates_are_replaced(milco: MilcoEncoder) -> None:
    """A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD; a pair is its character."""
    broken = milco.tokenizer.ids(["book \ud83d", "book \ud83d\ude82"])
    assert broken == milco.tokenizer.ids(["book \ufffd", "book 🚂"])


def test_lowercase_applies_to_the_text(milco: MilcoEncoder) -> None:
    """lowercase encodes the lowercased text; the default is off."""
    lowered = milco.encode([TEXTS[1]], max_length=512, lowercase=True)
    np.testing.assert_array_equal(dense(lowered), dense(milco.encode([TEXTS[1].lower()], max_length=512)))
    assert not np.array_equal(dense(lowered), dense(milco.encode([TEXTS[1]], max_length=512)))


def test_one_view_is_its_part_of_both(milco: MilcoEncoder) -> None:
    """Asking for one view gives its part of both."""
    english = milco.vocabulary.english_size
    both = milco.encode(TEXTS, max_length=512)
    vectors = dense(both)
    for view, columns in ((PIVOT, slice(0, english)), (SOURCE, slice(english, None))):
        part = np.zeros_like(vectors)
        part[:, columns] = vectors[:, columns]
        np.testing.assert_allclose(dense(both.view(view)), part)
        alone = milco.encode(TEXTS, max_length=512, views=(view,))
        np.testing.assert_allclose(dense(alone), part, atol=2e-5, rtol=1e-5)


def test_top_k_limits_each_view() -> None:
    """pivot_top_k and source_top_k limit the terms of a text, view by view, and change no kept weight."""
    complete = variant().encode(TEXTS, max_length=512)
    limited = variant(pivot_top_k=5, source_top_k=2).encode(TEXTS, max_length=512)
    for view, limit in ((PIVOT, 5), (SOURCE, 2)):
        for (_, before), (_, after) in zip(complete.view(view).rows(), limited.view(view).rows(), strict=True):
            assert sorted(after) == sorted(before)[-limit:]
    assert max(complete.view(PIVOT).lengths()) > 5 and max(complete.view(SOURCE).lengths()) > 2
    with pytest.raises(MilcoError, match="pivot_top_k expects an integer of at least 1 or null, got 0"):
        variant(pivot_top_k=0)


def test_queries_have_limits_of_their_own() -> None:
    """query_pivot_top_k and query_source_top_k limit queries only, by every way to encode them."""
    limited = variant(query_pivot_top_k=4, query_source_top_k=1)
    complete = variant().encode_query(TEXTS)
    assert limited.encode_document(TEXTS).lengths().max() > 5
    vectors = limited.encode_query(TEXTS)
    for view, limit in ((PIVOT, 4), (SOURCE, 1)):
        for (_, before), (_, after) in zip(complete.view(view).rows(), vectors.view(view).rows(), strict=True):
            assert sorted(after) == sorted(before)[-limit:]
    expected = vectors.to_dicts()
    queries = MilcoQueryEncoder(limited)
    assert [set(terms) for terms in queries.encode_batch(TEXTS)] == [set(terms) for terms in expected]


def test_texts_in_capitals_are_lowercased_if_the_checkpoint_states_it(tmp_path: Path) -> None:
    """Sentences and long words, of queries and documents, also in explanations; acronyms stay."""
    directory = tmp_path / "capitals"
    encoder("distillation").save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"lowercase_capitals": True}))
    folding = MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32")
    texts = ["DER ZUG FÄHRT AB", "BAHNVERBINDUNG", "ИСТОРИЯ ГОРОДА МОСКВЫ"]
    for encode in (folding.encode_query, folding.encode_document):
        assert encode(texts).to_dicts() == encode([text.lower() for text in texts]).to_dicts()
    for text in ("NASA", "UNO USA", "Der ZUG", "東京"):
        assert not folding.tokenizer.lowercases(text)
    assert not encoder("distillation").tokenizer.lowercases(texts[0])
    (explanation,) = explain_texts(folding, texts[0], [texts[0]])
    origins = explanation.document.origins.values()
    assert all(texts[0][one.start : one.stop].isupper() for places in origins for one in places if one.stop > one.start)


def echo_of(milco: MilcoEncoder, text: str) -> tuple[list[int], list[float]]:
    """Return the ids of a text and their weights, directly from the network."""
    ids = milco.tokenizer.ids([text])[0]
    with torch.inference_mode():
        output = milco.model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.int64))
    return ids, output.echo[0].tolist()


@pytest.mark.parametrize("pool", ["sum", "max"])
@pytest.mark.parametrize("drop", [False, True])
def test_source_variants_equal_their_references(pool: str, drop: bool) -> None:
    """Weights of repeated tokens are summed or their maximum is taken; special tokens are dropped on request."""
    chosen = variant(source_pool=pool, source_drop_special=drop)
    special = {0, 1, 2, 3, 576}
    text = "sept heures, sept heures 陌陌 zzz"
    wanted: dict[int, float] = {}
    for number, weight in zip(*echo_of(chosen, text), strict=True):
        if weight > 0 and not (drop and number in special):
            before = wanted.get(number, 0.0)
            wanted[number] = before + weight if pool == "sum" else max(before, weight)
    ids = chosen.tokenizer.ids([text])[0]
    assert len(set(ids)) < len(ids) and special & set(ids)
    columns, weights = chosen.encode([text], max_length=512, views=(SOURCE,)).row(0)
    assert dict(zip(columns.tolist(), weights.tolist(), strict=True)) == pytest.approx(
        {358 + number: weight for number, weight in wanted.items()}, rel=1e-5
    )
    assert special & (set(columns.tolist()) - {358}) == set()
    assert bool({358 + number for number in special} & set(columns.tolist())) != drop


def test_echo_can_be_dropped_at_loading(capsys: pytest.CaptureFixture) -> None:
    """echo=False loads only the pivot view, and names the tensors that it ignores."""
    pivot_only = variant(echo=False)
    assert "ignored echo.bias, echo.scale, echo.weight, which the network lacks" in capsys.readouterr().err
    assert pivot_only.views == (PIVOT,)
    np.testing.assert_array_equal(
        dense(pivot_only.encode(FILLED, max_length=512)),
        dense(encoder("distillation").encode(FILLED, max_length=512, views=(PIVOT,))),
    )
    with pytest.raises(MilcoError, match="has no LexEcho head, so no source view"):
        pivot_only.encode(FILLED, max_length=512, views=(SOURCE,))


def test_default_lengths_come_from_the_checkpoint(milco: MilcoEncoder) -> None:
    """64 tokens for queries, 512 for documents, unless the caller or the configuration states another length."""
    long = TEXTS[-1]
    for actual, length in (
        (milco.encode_query(long), 64),
        (milco.encode_document(long), 512),
        (milco.encode_document(long, max_length=9), 9),
        (variant(query_max_length=7).encode_query(long), 7),
    ):
        np.testing.assert_allclose(dense(actual), dense(milco.encode(long, max_length=length)), atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "texts expects a str or several, got NoneType 'None'"),
        (5, "texts expects a str or several, got int '5'"),
        (b"x", "texts expects a str or several, got bytes"),
        (["x", None], r"texts\[1\] expects a str, got NoneType 'None'"),
        ([1.5], r"texts\[0\] expects a str, got float '1.5'"),
        (DataFrame({"id": ["d1"], "text": ["x"]}), r"got DataFrame: pass a column, such as df\['text'\]"),
    ],
)
def test_texts_are_validated(milco: MilcoEncoder, texts: Any, message: str) -> None:
    """The error names position and value, before anything is encoded; a column of a frame is texts."""
    for encode in (milco.encode, milco.encode_query, milco.encode_document):
        with pytest.raises(TypeError, match=message):
            encode(texts)
    column = DataFrame({"text": FILLED[:2]})["text"]
    np.testing.assert_array_equal(dense(milco.encode_document(column)), dense(milco.encode_document(FILLED[:2])))


def test_what_is_not_a_checkpoint_or_a_vector_is_refused(milco: MilcoEncoder) -> None:
    """Each error names the function to call, or what is accepted."""
    with pytest.raises(TypeError, match=r"use MilcoEncoder.from_pretrained\(\)"):
        MilcoEncoder("mini")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="vectors expects a SparseBatch"):
        milco.decode("abc")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"to_scipy\(\)"):
        np.asarray(milco.encode_document("x"))
    with pytest.raises(TypeError, match="expected a name, a path, or an iterable of documents"):
        encode_corpus(7, "vectors")  # type: ignore[arg-type]


def test_vectors_of_another_encoder_are_refused(milco: MilcoEncoder) -> None:
    """Their columns are other terms: nothing compares or decodes them, whichever encoder is asked."""
    other = SparseBatch.from_dicts([{"cat": 1.0}], Vocabulary(["cat"], ["sat"]))
    ours = milco.encode_document("x")
    for function in (milco.decode, milco.sparsity, lambda batch: milco.similarity(ours, batch)):
        with pytest.raises(MilcoError, match="different vocabularies, of "):
            function(other)


def test_arguments_accept_plain_values(milco: MilcoEncoder) -> None:
    """Default length, one view as a str, torch's own devices and dtypes; a batch size of 0 is refused."""
    text = FILLED[0]
    same = (dense(milco.encode(text)) == dense(milco.encode_document([text]))).all()
    assert same and (dense(milco.encode(text, views=PIVOT)) == dense(milco.encode(text, views=[PIVOT]))).all()
    with pytest.raises(MilcoError, match="batch_size=0: must be an integer of at least 1"):
        milco.encode(text, batch_size=0)
    device = torch.device("cpu")
    assert choose_device(device) == device
    assert choose_dtype(torch.float32, device) == torch.float32


def test_pyserinis_encoder_accepts_one_text(milco: MilcoEncoder) -> None:
    """A str is one text, not its letters; None is an empty field; a title and a space precede the text."""
    encoder = MilcoDocumentEncoder(milco)
    assert encoder.encode("hello world") == encoder.encode(["hello world"])
    assert encoder.encode("world", titles="hello") == encoder.encode(["hello world"])
    assert encoder.encode([None]) == [{}]
    assert encoder.encode(["book", "bridge"], titles=["The", "A"]) == encoder.encode(["The book", "A bridge"])
    with pytest.raises(MilcoError, match="1 titles for 2 texts: give one title, or None, per text"):
        encoder.encode(["book", "bridge"], titles=["The"])


@pytest.mark.parametrize("length", [-1, 0, 2, 513])
def test_impossible_lengths_are_refused(milco: MilcoEncoder, length: int) -> None:
    """A length without room for a token, or without positions, is an error with the limits."""
    with pytest.raises(MilcoError, match=f"maximum length {length}: .* takes 3 to 512 tokens"):
        milco.encode(FILLED, max_length=length)


@pytest.mark.parametrize("name", ["encode", "encode_query", "encode_document"])
def test_options_are_given_by_name(milco: MilcoEncoder, name: str) -> None:
    """The second argument of one was alpha, of another the length."""
    with pytest.raises(TypeError, match="positional argument"):
        getattr(milco, name)(FILLED, 64)
    assert isinstance(getattr(milco, name)(FILLED[0], max_length=64), SparseBatch)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha_on_the_query_interpolates_the_scores(milco: MilcoEncoder, alpha: float) -> None:
    """A query weighted by alpha scores alpha x pivot score + (1 - alpha) x source score."""
    documents = milco.encode_document(FILLED)
    complete = milco.encode_query(FILLED[:3])
    weighted = milco.encode_query(FILLED[:3], alpha=alpha)
    wanted = alpha * complete.view(PIVOT).dot(documents) + (1 - alpha) * complete.view(SOURCE).dot(documents)
    np.testing.assert_allclose(milco.similarity(weighted, documents), wanted, rtol=1e-4, atol=1e-4)
    assert (weighted.weights > 0).all()


def test_decode_returns_the_strongest_terms_first(milco: MilcoEncoder) -> None:
    """Terms by descending weight, at most top_k; an empty vector decodes to an empty list."""
    batch = milco.encode([FILLED[0], ""], max_length=512)
    ranked, empty = milco.decode(batch)
    assert empty == []
    assert [weight for _, weight in ranked] == sorted(batch.row(0)[1].tolist(), reverse=True)
    assert dict(ranked) == batch.to_dicts(milco.vocabulary)[0]
    assert milco.decode(batch, top_k=3)[0] == ranked[:3]


def test_public_methods_accept_what_users_pass(milco: MilcoEncoder, capsys: pytest.CaptureFixture) -> None:
    """similarity of texts, sparsity over the vocabulary, terms in common, a repr, progress on stderr."""
    queries, documents = milco.encode_query(FILLED[:1]), milco.encode_document(FILLED[:3], show_progress=True)
    assert "3 texts" in capsys.readouterr().err.replace("3/3", "3")
    np.testing.assert_allclose(milco.similarity(FILLED[0], FILLED[:3]), milco.similarity(queries, documents), rtol=1e-5)
    common = milco.intersection(queries, documents)
    assert len(common) == 3 and set(common.to_dicts()[1]) <= set(documents.to_dicts()[1])
    np.testing.assert_allclose(
        [sum(weight for _, weight in terms) for terms in milco.decode(common)],
        milco.similarity(queries, documents)[0],
        rtol=1e-4,
    )
    sparsity = milco.sparsity(documents)
    assert sparsity["active_dims"] == documents.lengths().mean()
    assert sparsity["sparsity_ratio"] == pytest.approx(1 - sparsity["active_dims"] / len(milco.vocabulary))
    assert repr(milco) == f"MilcoEncoder({str(CHECKPOINT)!r}, views=pivot source, dtype=float32, device=cpu, 935 terms)"


def test_examples_of_the_docstrings_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every public example of the encoders, on the embedded checkpoint, which is loaded once."""
    monkeypatch.setattr(MilcoEncoder, "from_pretrained", functools.cache(MilcoEncoder.from_pretrained))
    monkeypatch.setattr(contract, "as_encoder", functools.cache(contract.as_encoder))
    for module in (encoder_module, contract):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_dtype_applies_to_matrix_products_only(name: str) -> None:
    """Weights are float32 in memory and in the vectors, and the hash of the weights is the same."""
    loaded = encoder("distillation", name)
    assert loaded.network.dtype == getattr(torch, name)
    assert {tensor.dtype for tensor in loaded.model.state_dict().values()} == {torch.float32}
    assert loaded.encode(FILLED, max_length=512).weights.dtype == np.float32
    assert loaded.hashes == encoder("distillation").hashes


def test_a_checkpoint_may_state_the_dtype_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "auto" is that dtype on every processor, as for milco-mini; "fast" is the processor's; others are taken."""
    monkeypatch.setattr(packed, "native_dtype", lambda: torch.bfloat16)
    assert MilcoEncoder.from_pretrained(CHECKPOINT, "cpu").network.dtype == torch.bfloat16
    encoder("distillation").save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"cpu_dtype": "float32"}))
    assert MilcoEncoder.from_pretrained(tmp_path, "cpu").network.dtype == torch.float32
    assert MilcoEncoder.from_pretrained(tmp_path, "cpu", "bfloat16").network.dtype == torch.bfloat16
    assert MilcoEncoder.from_pretrained(tmp_path, "cpu", "fast").network.dtype == torch.bfloat16
    monkeypatch.setattr(packed, "native_dtype", lambda: torch.float32)
    assert MilcoEncoder.from_pretrained(tmp_path, "cpu", "fast").network.dtype == torch.float32


def test_hashes_identify_models_and_tokenizers(milco: MilcoEncoder) -> None:
    """Another checkpoint has another hash of its weights; the same tokenizer the same one."""
    other = encoder("alignment")
    assert milco.hashes["weight_hash"] != other.hashes["weight_hash"]
    assert milco.hashes["tokenizer_hash"] == other.hashes["tokenizer_hash"]


def test_the_hash_of_weights_is_kept_while_their_file_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same size and time has another hash if its content has changed, and so has one that was just
    written. A damaged or unwritable cache costs time only."""
    cache = tmp_path / "data"
    monkeypatch.setenv("MILCO_DATA", str(cache))
    encoder("distillation").save_pretrained(tmp_path / "own")
    file = tmp_path / "own" / "model.safetensors"
    computed = []
    monkeypatch.setattr(weights, "weight_hash", lambda tensors: computed.append(1) or weight_hash(tensors))

    def loaded_hash() -> tuple[str, int]:
        computed.clear()
        return MilcoEncoder.from_pretrained(tmp_path / "own", "cpu").hashes["weight_hash"], len(computed)

    first = weight_hash(encoder("distillation").network.state_dict())
    assert loaded_hash() == loaded_hash() == (first, 1) and not cache.exists()
    monkeypatch.setattr(weights, "_SETTLED", 0)
    assert [loaded_hash(), loaded_hash()] == [(first, 1), (first, 0)]
    content, state = bytearray(file.read_bytes()), file.stat()
    content[-3] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    (second, count), (kept, none) = loaded_hash(), loaded_hash()
    assert second == kept != first and (count, none) == (1, 0)
    for path in (cache / "hashes").iterdir():
        path.write_bytes(b"\xff")
    assert loaded_hash() == (second, 1)
    shutil.rmtree(cache)
    cache.touch()
    assert loaded_hash() == (second, 1)


def test_unknown_devices_and_dtypes_are_refused() -> None:
    """A device is "auto", "cpu", or a type of GPU, with or without a number, which must be there."""
    for name in ("gpu", "cuda:", "cuda:x", "cpu:1", "tpu", ""):
        with pytest.raises(MilcoError, match=r"device='.*': must be auto, cpu, cuda, mps or xpu"):
            choose_device(name)
    with pytest.raises(MilcoError, match="device='cpu,cpu': this takes one device"):
        choose_device("cpu,cpu")
    with pytest.raises(MilcoError, match=r"device='cuda:99': torch finds \d+ of this type"):
        MilcoEncoder.from_pretrained("nowhere at all", device="cuda:99")
    with pytest.raises(MilcoError, match="unknown dtype 'float16': did you mean 'bfloat16'"):
        choose_dtype("float16", torch.device("cpu"))
    assert choose_dtype("auto", torch.device("cpu")) in (torch.float32, torch.bfloat16)


def test_passages_are_the_complete_text(milco: MilcoEncoder) -> None:
    """Consecutive passages hold every token once, each between <s> and </s>, none longer than asked."""
    complete, short, blank = milco.tokenizer.ids([TEXTS[-1], FILLED[0], ""])
    long_passages, short_passages, blank_passages = milco.tokenizer.passages([TEXTS[-1], FILLED[0], ""], 50)
    assert [token for row in long_passages for token in row[1:-1]] == complete[1:-1]
    assert all(len(row) <= 50 and row[0] == 0 and row[-1] == 2 for row in long_passages)
    assert (short_passages, blank_passages) == ([short], [blank])


def test_pyserini_gets_integers(milco: MilcoEncoder) -> None:
    """Both encoders give round(weight x scale), the same for a text as query and as document."""
    queries, documents = MilcoQueryEncoder(milco, max_length=99), MilcoDocumentEncoder(milco, max_length=99)
    vectors = documents.encode(FILLED)
    floats = milco.encode(FILLED, max_length=99).to_dicts(milco.vocabulary)
    for text, vector, expected in zip(FILLED, vectors, floats, strict=True):
        assert all(type(impact) is int and impact >= 1 for impact in vector.values())
        for term, weight in expected.items():
            assert vector.get(term, 0) == pytest.approx(weight * 100, abs=0.51)
        assert queries.encode(text) == documents.encode([text])[0]


def test_contract_options_reach_the_encoder(milco: MilcoEncoder) -> None:
    """scale, views, lowercase, max_length and Pyserini's further arguments."""
    plain = MilcoQueryEncoder(milco).encode(TEXTS[1])
    assert set(MilcoQueryEncoder(milco, views=(PIVOT,)).encode(TEXTS[1])) < set(plain)
    assert MilcoQueryEncoder(milco, lowercase=True).encode(TEXTS[1]) == MilcoQueryEncoder(milco).encode(
        TEXTS[1].lower()
    )
    assert max(MilcoQueryEncoder(milco, scale=1000).encode(TEXTS[1]).values()) > 5 * max(plain.values())
    assert MilcoQueryEncoder(milco, max_length=5).encode(TEXTS[-1]) == MilcoQueryEncoder(milco).encode(TEXTS[-1], 5)
    assert MilcoDocumentEncoder(milco).encode([TEXTS[1]], fp16=True, add_sep=False)[0] == plain
    assert (MilcoQueryEncoder(milco).max_length, MilcoDocumentEncoder(milco).max_length) == (64, 512)
    with pytest.raises(MilcoError, match="maximum length 513"):
        MilcoQueryEncoder(milco, max_length=513)


def test_queries_are_encoded_as_the_manifest_states(milco: MilcoEncoder) -> None:
    """The manifest's encoder, views, scale and prefix; one with other weights or tokens is refused."""
    manifest = {
        "encoder": str(CHECKPOINT),
        **milco.hashes,
        "scale": 50.0,
        "views": ["pivot"],
        "lowercase": True,
        "english_prefix": "e_",
    }
    query = open_query_encoder(StoreManifest(**manifest), device="cpu", dtype="float32").encode(FILLED[0])
    wanted = milco.encode([FILLED[0]], max_length=64, views=(PIVOT,), lowercase=True).to_dicts(milco.vocabulary)[0]
    rounded = {f"e_{term}": int(np.rint(np.float32(w) * np.float32(50))) for term, w in wanted.items()}
    assert query == {term: impact for term, impact in rounded.items() if impact}
    for field in ("weight_hash", "tokenizer_hash"):
        with pytest.raises(MilcoError, match=f"does not fit: .* with {field} other, not"):
            open_query_encoder(StoreManifest(**manifest | {field: "other"}), device="cpu")
    with pytest.raises(MilcoError, match="Pass encoder to encode the queries"):
        open_query_encoder(StoreManifest(scale=1.0))
    with pytest.raises(MilcoError, match=r"was loaded with english_prefix '.*', but .* were encoded with 'x_'"):
        open_query_encoder(StoreManifest(**manifest | {"english_prefix": "x_"}), milco)
    # External vectors do not state theirs.
    other = load_encoder(CHECKPOINT, "cpu", "float32", english_prefix="x_")
    assert open_query_encoder(StoreManifest(scale=1.0), other).encoder is other


def test_an_unknown_checkpoint_is_refused(tmp_path: Path) -> None:
    """One line with what it is and what was expected, before any weight is read."""
    directory = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "encoder")
    (directory / "model.safetensors").unlink()
    with pytest.raises(MilcoError) as refused:
        load_encoder(directory)
    message = str(refused.value)
    assert message.startswith(f"encoder {directory} is not a sparse encoder: its config.json names XLMRobertaModel")
    for kind in ("MILCO", "model_type milco", "SPLADE", "ForMaskedLM", "sparse_linear.pt", "BGE-M3"):
        assert kind in message
    assert "\n" not in message
    (directory / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(MilcoError, match=r"its config\.json names model_type t5, which is neither"):
        load_encoder(directory)
    (directory / "config.json").unlink()
    with pytest.raises(MilcoError, match=r"config\.json does not exist"):
        load_encoder(directory)


def test_push_to_hub_uploads_the_checkpoint(milco: MilcoEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It creates the repository and uploads everything that save_pretrained writes."""
    uploaded: dict[str, object] = {}

    class Hub:
        def create_repo(self, name: str, **options: object) -> str:
            uploaded["repository"] = (name, options)
            return f"https://example.org/{name}"

        def upload_folder(self, repo_id: str, folder_path: str) -> None:
            uploaded["to"] = repo_id
            uploaded["vectors"] = dense(
                MilcoEncoder.from_pretrained(folder_path, "cpu", "float32").encode("book", max_length=9)
            )

    monkeypatch.setattr(sys.modules["huggingface_hub"], "HfApi", Hub)
    assert milco.push_to_hub("someone/milco", private=True) == "https://example.org/someone/milco"
    assert uploaded["repository"] == ("someone/milco", {"exist_ok": True, "private": True})
    np.testing.assert_array_equal(uploaded["vectors"], dense(milco.encode("book", max_length=9)))

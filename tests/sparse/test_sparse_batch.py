"""Operations on compressed rows give what the same operations on dictionaries give."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch, Vocabulary
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import SCALE, quantize, quantize_vector, validate_scale

ENGLISH, ALL = 7, 12
VOCABULARY = Vocabulary([f"w{number}" for number in range(ENGLISH)], [f"s{number}" for number in range(ALL - ENGLISH)])
TERMS = VOCABULARY.terms.tolist()
# Few values, so that ties are common; all of them exact in float32.
WEIGHTS = st.one_of(st.sampled_from([0.125, 0.5, 1.0, 2.0, 40.0]), st.floats(2**-10, 50, width=32))
VECTORS = st.lists(st.dictionaries(st.sampled_from(TERMS), WEIGHTS, max_size=ALL), max_size=7)
Vector = dict[str, float]


def batch_of(vectors: list[Vector]) -> SparseBatch:
    """The batch of some dictionaries."""
    return SparseBatch.from_dicts(vectors, VOCABULARY)


def assert_well_formed(batch: SparseBatch) -> None:
    """Assert what SparseBatch promises of its arrays."""
    assert (batch.indptr.dtype, batch.columns.dtype, batch.weights.dtype) == (np.int64, np.int32, np.float32)
    assert batch.indptr[0] == 0
    assert batch.indptr[-1] == len(batch.columns) == len(batch.weights)
    for columns, weights in batch.rows():
        assert (np.diff(columns) > 0).all()
        assert (weights > 0).all()


@given(VECTORS)
def test_dictionaries_round_trip(vectors: list[Vector]) -> None:
    """from_dicts and to_dicts are each other's inverse, in column order."""
    batch = batch_of(vectors)
    assert_well_formed(batch)
    assert batch.to_dicts(VOCABULARY) == vectors
    assert batch.lengths().tolist() == [len(vector) for vector in vectors]
    assert batch.row_numbers().tolist() == [row for row, vector in enumerate(vectors) for _ in vector]
    for number, (columns, weights) in enumerate(batch.rows()):
        np.testing.assert_array_equal(batch.row(number)[0], columns)
        np.testing.assert_array_equal(batch.row(number)[1], weights)


@given(VECTORS, st.data())
def test_take_selects_rows(vectors: list[Vector], data: st.DataObject) -> None:
    """Any rows in any order, repeated or none."""
    order = data.draw(st.lists(st.integers(0, len(vectors) - 1), max_size=9)) if vectors else []
    taken = batch_of(vectors).take(order)
    assert_well_formed(taken)
    assert taken.to_dicts(VOCABULARY) == [vectors[number] for number in order]


@given(VECTORS, st.integers(0, 7))
def test_concatenate_joins_batches(vectors: list[Vector], cut: int) -> None:
    """Parts one after the other are the complete batch, empty parts too."""
    joined = SparseBatch.concatenate([batch_of(vectors[:cut]), batch_of([]), batch_of(vectors[cut:])], ENGLISH)
    assert_well_formed(joined)
    assert joined.to_dicts(VOCABULARY) == vectors
    assert len(SparseBatch.concatenate([], ENGLISH)) == 0


def test_different_vocabularies_are_never_mixed() -> None:
    """Their columns are other terms. Equal pieces are one vocabulary, pivot terms fit those with source terms, too."""
    cat, equal, sun = (SparseBatch.from_dicts([{term: 1.0}], Vocabulary([term], [])) for term in ("cat", "cat", "sun"))
    both = SparseBatch.from_dicts([{"m_x": 1.0}], Vocabulary(["cat"], ["x"]))
    unknown = SparseBatch.from_columns([{"cat": 1.0}], {"cat": 0}, 1)
    for mix in (SparseBatch.dot, SparseBatch.intersection, lambda *two: SparseBatch.concatenate(two, 1)):
        with pytest.raises(MilcoError, match="1 and 1 terms"):
            mix(cat, sun)
        mix(cat, equal)
        mix(cat, unknown)
        mix(cat, both)
    assert SparseBatch.concatenate([unknown, cat, both], 1).to_dicts() == [{"cat": 1.0}, {"cat": 1.0}, {"m_x": 1.0}]


@given(VECTORS)
def test_views_split_the_terms(vectors: list[Vector]) -> None:
    """The pivot view is the English terms, the source view the others; both are all terms, no view is none."""
    batch = batch_of(vectors)
    english = set(TERMS[:ENGLISH])
    for views, kept in (
        ((PIVOT,), english),
        ((SOURCE,), set(TERMS) - english),
        ((SOURCE, PIVOT), set(TERMS)),
        ((), set()),
    ):
        part = batch.view(*views)
        assert_well_formed(part)
        assert part.to_dicts(VOCABULARY) == [{t: w for t, w in vector.items() if t in kept} for vector in vectors]
    with pytest.raises(MilcoError, match="did you mean 'pivot'"):
        batch.view("pivots")


@given(VECTORS, VECTORS)
def test_dot_is_the_sum_over_shared_terms(first: list[Vector], second: list[Vector]) -> None:
    """Every pair's sum of products, as float32."""
    scores = batch_of(first).dot(batch_of(second))
    wanted = [[sum(a[term] * b[term] for term in a.keys() & b.keys()) for b in second] for a in first]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, np.array(wanted).reshape(len(first), len(second)), rtol=1e-5)


@given(VECTORS, VECTORS)
def test_intersection_is_the_products_of_common_terms(first: list[Vector], second: list[Vector]) -> None:
    """Vector by vector, or one vector with every other; the products sum to the dot product."""
    both = min(len(first), len(second))
    for left, right in ((first[:both], second[:both]), (first[:1], second), (first, second[:1])):
        if 1 in (len(left), len(right)) or len(left) == len(right):
            common = batch_of(left).intersection(batch_of(right))
            assert_well_formed(common)
            count = len(right) if len(left) == 1 else len(left)
            pairs = zip(left * (count if len(left) == 1 else 1), right * (count if len(right) == 1 else 1), strict=True)
            expected = [{term: a[term] * b[term] for term in a.keys() & b.keys()} for a, b in pairs]
            for products, vector in zip(expected, common.to_dicts(VOCABULARY), strict=True):
                assert vector == pytest.approx(products)
    with pytest.raises(MilcoError, match="2 and 3 vectors"):
        batch_of([{}, {}]).intersection(batch_of([{}, {}, {}]))


@given(VECTORS)
def test_scipy_and_torch_round_trip(vectors: list[Vector]) -> None:
    """to_scipy, to_torch and from_scipy keep every weight and the shape, in any sparse format."""
    batch = batch_of(vectors)
    matrix = batch.to_scipy()
    assert batch.shape == matrix.shape == (len(vectors), ALL)
    assert matrix.dtype == np.float32
    for same in (matrix, matrix.tocoo(), scipy.sparse.csc_matrix(matrix), batch.to_torch().to_dense().numpy()):
        back = SparseBatch.from_scipy(same, VOCABULARY)
        assert_well_formed(back)
        assert back.to_dicts() == vectors
        assert back.english_size == ENGLISH
    assert batch.to_torch().is_coalesced()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, -2.0]], "a weight that is negative or not finite"),
        ([[1.0, float("nan")]], "a weight that is negative or not finite"),
        (np.ones((1, ALL + 1)), "13 columns do not fit a vocabulary of 12 terms"),
    ],
)
def test_from_scipy_refuses_impossible_vectors(matrix: object, message: str) -> None:
    """Weights are above 0, and every column has a term, whose name needs a vocabulary."""
    with pytest.raises(MilcoError, match=message):
        SparseBatch.from_scipy(matrix, VOCABULARY)
    with pytest.raises(MilcoError, match="vocabulary"):
        SparseBatch.from_scipy([[1.0]]).to_dicts()
    with pytest.raises(KeyError, match="nowhere"):
        batch_of([{"nowhere": 1.0}])


def test_vectors_are_saved_and_loaded(tmp_path: Path) -> None:
    """One file holds vectors and vocabulary; scipy reads it, and a matrix that scipy saved is loaded."""
    batch = batch_of([{"w0": 1.5, "m_s1": 0.25}, {}, {"w3": 2.0}])
    path = tmp_path / "vectors.npz"
    batch.save(path)
    loaded = SparseBatch.load(str(path))
    assert_well_formed(loaded)
    assert (loaded.to_dicts(), loaded.shape, loaded.english_size) == (batch.to_dicts(), (3, ALL), ENGLISH)
    np.testing.assert_array_equal(scipy.sparse.load_npz(path).toarray(), batch.to_scipy().toarray())
    scipy.sparse.save_npz(tmp_path / "scipy.npz", scipy.sparse.csr_matrix(batch.to_scipy()))
    assert SparseBatch.load(tmp_path / "scipy.npz").to_dicts(VOCABULARY) == batch.to_dicts()


def test_a_matrix_of_scipy_is_validated(tmp_path: Path) -> None:
    """Columns are sorted, zeros dropped; another layout and negative weights are errors."""
    unsorted = scipy.sparse.csr_matrix(([1.0, 2.0, 0.0], [2, 0, 1], [0, 3]), shape=(1, 4))
    scipy.sparse.save_npz(tmp_path / "unsorted.npz", unsorted)
    loaded = SparseBatch.load(tmp_path / "unsorted.npz")
    assert_well_formed(loaded)
    assert loaded.columns.tolist() == [0, 2] and loaded.weights.tolist() == [2, 1]
    scipy.sparse.save_npz(tmp_path / "columns.npz", unsorted.tocsc())
    with pytest.raises(MilcoError, match=r"columns\.npz .*csc"):
        SparseBatch.load(tmp_path / "columns.npz")
    scipy.sparse.save_npz(tmp_path / "negative.npz", -unsorted)
    with pytest.raises(MilcoError, match="negative"):
        SparseBatch.load(tmp_path / "negative.npz")


@pytest.mark.parametrize("content", [None, b"", b"not zip", b"PK\x03\x04 cut"])
def test_a_file_without_vectors_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """One line names the file."""
    path = tmp_path / "v.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        MilcoError, match=r"no vectors at .*v\.npz" if content is None else r"v\.npz is not a file of"
    ) as error:
        SparseBatch.load(path)
    assert "pickle" not in str(error.value)


def test_vectors_are_indexed_like_a_list() -> None:
    """An index, a slice, a list, a mask; iteration yields batches of one."""
    vectors = [{"w0": 1.0}, {}, {"w1": 2.0, "m_s0": 3.0}, {"w2": 4.0}]
    batch = batch_of(vectors)
    for index in (0, -1, slice(1, 3), slice(None, None, -1), [2, 0], np.array([True, False, True, False]), []):
        kept = np.atleast_1d(np.arange(4)[index])
        assert batch[index].to_dicts() == [vectors[number] for number in kept]
    assert [each.to_dicts() for each in batch] == [[vector] for vector in vectors]
    with pytest.raises(IndexError):
        batch[4]


def test_vectors_show_themselves() -> None:
    """Counts in the repr; in a notebook the strongest terms with bars, and HTML in a term is text."""
    vocabulary = Vocabulary(["<b>", "music"], ["▁陌"])
    batch = SparseBatch.from_dicts([{"<b>": 2.0, "music": 1.0, "m_▁陌": 0.5}, {}], vocabulary)
    assert repr(batch) == "SparseBatch(2 vectors, 3 terms, 1.5 per vector)"
    assert repr(batch[:0]) == "SparseBatch(0 vectors, 0 terms, 0.0 per vector)"
    shown = batch._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown and "m_▁陌" in shown and "width: 120px" in shown
    assert "SparseBatch(1 vector," in SparseBatch.from_scipy([[1.0]])._repr_html_()


def test_sparsity_counts_terms_and_empty_dimensions() -> None:
    """Mean number of terms, and mean share of dimensions without one."""
    assert batch_of([{"w0": 1.0, "w1": 1.0, "w2": 1.0}, {}]).sparsity() == {"active_dims": 1.5, "sparsity_ratio": 0.875}
    assert batch_of([]).sparsity()["active_dims"] == 0


def ranked(vector: Vector) -> list[str]:
    """Terms by descending weight, ties by column: the order in which pruning keeps them."""
    return sorted(vector, key=lambda term: (-vector[term], TERMS.index(term)))


def pruned(vector: Vector, method: str, value: float) -> Vector:
    """Prune one vector, the readable way."""
    order = ranked(vector)
    if method == "threshold":
        kept = [term for term in order if vector[term] >= np.float32(value)]
    elif method == "top-k":
        kept = order[: int(value)]
    elif method == "percentile":
        kept = order[: len(order) - int(len(order) * value / 100)]
    else:
        kept, units = list(order), {term: round(vector[term] * 2**24) for term in order}
        total = sum(units.values())
        # The weakest term goes for as long as all that went holds no more than the share.
        while kept and sum(units[term] for term in order[len(kept) - 1 :]) <= total * (value / 100) * (1 + 1e-12):
            kept.pop()
    return {term: vector[term] for term in kept}


@settings(max_examples=100)
@given(
    VECTORS,
    st.one_of(
        st.tuples(st.just("top-k"), st.integers(1, 13)),
        st.tuples(st.just("percentile"), st.integers(0, 99)),
        st.tuples(st.just("mass"), st.integers(0, 99)),
        st.tuples(st.just("threshold"), st.sampled_from([0, 0.125, 0.3, 1, 41])),
    ),
)
def test_pruning_equals_its_reference(vectors: list[Vector], rule: tuple[str, float]) -> None:
    """Each method equals the readable one on every vector, ties included."""
    actual = PruningRule(*rule)(batch_of(vectors))
    assert_well_formed(actual)
    assert actual.to_dicts(VOCABULARY) == [pruned(vector, *rule) for vector in vectors]


@given(
    VECTORS, st.sampled_from(VIEWS), st.sampled_from([("top-k", 2), ("percentile", 50), ("mass", 40), ("threshold", 1)])
)
def test_pruning_one_view_does_not_change_the_other(vectors: list[Vector], view: str, rule: tuple[str, float]) -> None:
    """The named view's terms are pruned by themselves, and the other view's are unchanged."""
    batch = batch_of(vectors)
    actual = PruningRule.parse(f"{view}:{rule[0]}:{rule[1]}")(batch)
    assert_well_formed(actual)
    other = next(name for name in VIEWS if name != view)
    assert actual.view(other).to_dicts(VOCABULARY) == batch.view(other).to_dicts(VOCABULARY)
    assert actual.view(view).to_dicts(VOCABULARY) == PruningRule(*rule)(batch.view(view)).to_dicts(VOCABULARY)


def test_mass_ties_do_not_depend_on_earlier_vectors() -> None:
    """Ten equal terms lose exactly half at mass:50, however small, wherever they are in a batch."""
    wide = Vocabulary([f"w{number}" for number in range(700)], [])
    generator = np.random.default_rng(0)
    crowd = [dict(zip(wide.terms, generator.random(700) ** 12 * 40 + 1e-6, strict=True)) for _ in range(100)]
    equals = [dict.fromkeys(wide.terms[:10].tolist(), number * 1e-6) for number in range(1, 200)]
    kept = PruningRule("mass", 50)(SparseBatch.from_dicts([*crowd, *equals], wide)).to_dicts(wide)[len(crowd) :]
    assert [list(vector) for vector in kept] == [wide.terms[:5].tolist()] * len(equals)


# The paper's pruning table: p, and the terms that are left of about 572 in the mean of all documents.
@pytest.mark.parametrize(
    ("percent", "paper"),
    [(50, 285.6), (70, 172.2), (80, 115.1), (85, 86.4), (90, 57.9), (95, 29.2), (97, 17.7), (99, 6.5)],
)
def test_percentile_follows_the_paper(percent: int, paper: float) -> None:
    """Of 572 terms, percentile leaves the paper's number of terms, within one."""
    wide = Vocabulary([f"w{number}" for number in range(572)], [])
    vector = dict(zip(wide.terms.tolist(), np.linspace(1, 2, 572).tolist(), strict=True))
    left = len(PruningRule("percentile", percent)(SparseBatch.from_dicts([vector], wide)).columns)
    assert left == pytest.approx(paper, abs=1)
    assert percent != 50 or left == 286


@pytest.mark.parametrize(
    "text", ["top-k:1234567", "percentile:12.5", "mass:30", "threshold:0.015625", "pivot:top-k:20", "source:mass:5"]
)
def test_rules_round_trip_as_text(text: str) -> None:
    """parse and str are each other's inverse, so that a manifest states what was done."""
    assert str(PruningRule.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topk:100", r"unknown pruning 'topk': did you mean 'top-k'\?"),
        ("mass", "mass takes a number, as in mass:30"),
        ("top-k:1.5", "an integer of at least 1"),
        ("mass:-1", "a percentage from 0 to below 100"),
        ("threshold:-0.1", "a weight of at least 0"),
        ("pivots:top-k:5", "unknown view 'pivots': did you mean 'pivot'"),
        ("source:topk:5", "unknown pruning 'topk': did you mean 'top-k'.*VIEW:METHOD:VALUE, such as"),
    ],
)
def test_an_invalid_rule_is_refused(text: str, reason: str) -> None:
    """An unknown method, or a value out of range, is answered with what is valid."""
    with pytest.raises(MilcoError, match=reason):
        PruningRule.parse(text)


@given(VECTORS, st.sampled_from([1.0, 10.0, SCALE, 1000.0]))
def test_queries_and_documents_are_quantized_alike(vectors: list[Vector], scale: float) -> None:
    """round(weight x scale) by one rule on both sides, without zeros, without clipping."""
    kept, impacts = quantize(batch_of(vectors), scale)
    assert_well_formed(kept)
    terms = VOCABULARY.terms
    actual = [
        dict(zip(terms[kept.columns[a:b]].tolist(), impacts[a:b].tolist(), strict=True))
        for a, b in zip(kept.indptr[:-1], kept.indptr[1:], strict=True)
    ]
    assert actual == [quantize_vector(vector, scale) for vector in vectors]
    for vector, integers in zip(vectors, actual, strict=True):
        for term, weight in vector.items():
            assert integers.get(term, 0) == pytest.approx(weight * scale, abs=0.5 + 1e-5 * weight * scale)
        assert all(type(impact) is int and impact >= 1 for impact in integers.values())


@pytest.mark.parametrize("scale", [1e9, 2**31 - 1])
@pytest.mark.parametrize("weight", [3.5, float("inf"), float("nan"), 3e38])
def test_an_impact_above_the_limit_is_refused(scale: float, weight: float) -> None:
    """Above 2^31 - 1 there is one clear error on both sides, and no integer overflow."""
    batch = batch_of([{"w0": 0.25}, {"w1": weight}])
    for quantize_side in (lambda: quantize(batch, scale), lambda: quantize_vector({"w0": 0.25, "w1": weight}, scale)):
        with pytest.raises(MilcoError, match=r"2,147,483,647.*scale"):
            quantize_side()


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf"), 0, -1, 1e30])
def test_an_invalid_scale_is_refused(scale: float) -> None:
    """A scale is above 0 and leaves room for a weight of 1."""
    with pytest.raises(MilcoError, match=re.escape(f"scale={scale:g}")):
        validate_scale(scale)


def test_halves_are_rounded_to_even() -> None:
    """0.5 -> 0 (dropped), 1.5 -> 2, 2.5 -> 2, 40.96 x 100 unclipped: as numpy rounds, on both sides."""
    vector = {"w0": 0.5, "w1": 1.5, "w2": 2.5, "w3": 0.4}
    assert quantize_vector(vector, 1) == {"w1": 2, "w2": 2}
    assert quantize(batch_of([vector]), 1)[1].tolist() == [2, 2]
    assert quantize_vector({"w0": 40.96}, SCALE) == {"w0": 4096}


def test_decimal_halves_are_rounded_alike() -> None:
    """0.015, 0.025, ...: products in float32 on both sides, whatever they would be in float64."""
    weights = [number / 200 for number in range(1, 400, 2)]
    wide = Vocabulary([f"w{number}" for number in range(len(weights))], [])
    vector = dict(zip(wide.terms.tolist(), weights, strict=True))
    kept, impacts = quantize(SparseBatch.from_dicts([vector], wide), SCALE)
    actual = dict(zip(wide.terms[kept.columns].tolist(), impacts.tolist(), strict=True))
    assert actual == quantize_vector(vector, SCALE)
    assert actual["w1"] == 2


def test_a_batch_is_pickled_without_its_vocabulary() -> None:
    """The vectors are kilobytes, their vocabulary is megabytes; it can be set again."""
    vocabulary = Vocabulary([f"term{number}" for number in range(10_000)], [])
    batch = SparseBatch.from_dicts([{"term5": 0.5, "term9999": 2.0}], vocabulary)
    pickled = pickle.dumps(batch)
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert copy.vocabulary is None and copy.to_dicts(vocabulary) == batch.to_dicts()
    assert replace(copy, vocabulary=vocabulary).shape == batch.shape

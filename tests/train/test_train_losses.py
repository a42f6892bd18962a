"""Losses and the head's sparse gradient, against the authors' values and full autograd."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_set import GOLDEN, encoder, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import write_json
from milco_pyserini.model import pooling
from milco_pyserini.model.pooling import log_saturation, max_logits, max_logits_reference
from milco_pyserini.options import replace_options
from milco_pyserini.train import losses, objectives
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.config import AlignmentOptions, ContrastOptions
from milco_pyserini.train.objectives import AlignmentLoss, ContrastiveLoss, encode_by_length, source_views
from milco_pyserini.train.presets import AUTHORS_SAP, PAPER_SAP
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher

INPUTS = json.loads((GOLDEN / "inputs.json").read_text(encoding="utf-8"))
# Recorded with the padding of both sides at minus infinity.
SMSE_WITHOUT_PADS = 11.135


def texts(checkpoint: str) -> TextCollator:
    """Return the collator of a golden checkpoint."""
    return TextCollator(encoder(checkpoint).tokenizer, pad_id=1)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("padding", "wanted", "tolerance"), [("zero", 5.738574, 1e-5), ("-inf", SMSE_WITHOUT_PADS, 1e-3)]
)
def test_alignment_loss_is_the_authors(padding: str, wanted: float, tolerance: float) -> None:
    """With padding "zero" SMSE is 5.738574; with minus infinity twice that, which padding hides."""
    teacher = MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "en_lsr", padding)
    objective = AlignmentLoss(encoder("alignment").model, teacher, AlignmentOptions(padding=padding))
    english, foreign = zip(*INPUTS["BITEXT"], strict=True)
    pairs = [BitextPair("und", *sides) for sides in zip(foreign, english, strict=True)]
    encode = texts("alignment")
    with torch.no_grad():
        loss = objective(encode(foreign, 512), encode(english, 512), teacher.prepare(pairs))["loss"]
    assert loss.item() == pytest.approx(wanted, abs=tolerance)


def test_the_papers_preset_has_the_padding_of_the_authors_code() -> None:
    """The published checkpoint most likely comes from it; minus infinity is an option."""
    assert PAPER_SAP.objective.padding == AUTHORS_SAP.objective.padding == "zero"
    assert replace_options(PAPER_SAP, padding="-inf").objective.padding == "-inf"


@pytest.mark.golden
def test_contrastive_loss_is_the_authors() -> None:
    """KL distillation is 1.869205, the total loss 1.924506, and every student score is the authors'."""
    found = contrast()
    arrays = expected()
    assert found["parts"]["kd"].item() == pytest.approx(1.869205, abs=1e-5)
    assert found["loss"].item() == pytest.approx(float(arrays["distillation.loss.loss"]), abs=1e-5)
    assert contrast(direction="student-teacher")["parts"]["kd"].item() == pytest.approx(1.585450, abs=1e-5)


def contrast(**options: Any) -> dict:
    """Compute the loss of the golden queries and passages, with the golden checkpoint's regularization."""
    objective = ContrastiveLoss(encoder("distillation").model, ContrastOptions(**options))
    encode = texts("distillation")
    passages = [passage for group in INPUTS["PASSAGES"] for passage in group]
    with torch.no_grad():
        return objective(
            query=encode(INPUTS["QUERIES"], 512),
            passage=encode(passages, 512),
            scores=torch.tensor(INPUTS["TEACHER_SCORES"]),
        )


@pytest.mark.golden
@pytest.mark.parametrize("name", losses.LOSSES)
def test_every_loss_of_the_table_is_computed_from_what_it_needs(name: str) -> None:
    """Scores of a teacher or none, and its options by name; its value is that of its function."""
    seen = {}

    def function(student: Tensor, target: Tensor, **options: str) -> Tensor:
        seen.update(student=student, target=target, options=options)
        return loss.function(student, target, **options)

    loss = losses.LOSSES[name]
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(losses.LOSSES, name, loss._replace(function=function))
        value = contrast(loss=name)["parts"][name]
    shape = [len(INPUTS["QUERIES"]), len(INPUTS["PASSAGES"][0])]
    assert list(seen["student"].shape) == (shape if loss.needs_scores else [shape[0], shape[0] * shape[1]])
    assert torch.is_floating_point(seen["target"]) == loss.needs_scores
    assert tuple(seen["options"]) == loss.options
    assert torch.isfinite(value) and value == loss.function(seen["student"], seen["target"], **seen["options"])


def test_marginmse_compares_differences_to_the_positive() -> None:
    """By hand; a constant that is added to a query's scores changes nothing."""
    student, teacher = (
        torch.tensor([[3.0, 1.0, 2.0], [0.0, 4.0, 0.0]]),
        torch.tensor([[9.0, 8.0, 5.0], [1.0, 1.0, 1.0]]),
    )
    wanted = ((2 - 1) ** 2 + (1 - 4) ** 2 + (-4 - 0) ** 2 + (0 - 0) ** 2) / 4
    assert losses.margin_mean_squared_error(student, teacher).item() == pytest.approx(wanted)
    shifted = student + torch.tensor([[5.0], [-7.0]])
    assert losses.margin_mean_squared_error(shifted, teacher).item() == pytest.approx(wanted)
    assert losses.margin_mean_squared_error(teacher, teacher).item() == 0


@pytest.mark.golden
def test_a_shared_positive_is_not_a_negative() -> None:
    """InfoNCE of queries with the same positive and no other passage is 0."""
    config = ContrastOptions(loss="infonce", lambda_query=0, lambda_passage=0)
    objective, encode = ContrastiveLoss(encoder("distillation").model, config), texts("distillation")
    queries, (passage, other) = INPUTS["QUERIES"][:2], INPUTS["PASSAGES"][0][:2]
    with torch.no_grad():
        alone = objective(query=encode(queries, 512), passage=encode([passage, passage], 512))
        against = objective(query=encode(queries, 512), passage=encode([passage, other], 512))
    assert alone["loss"].item() == 0
    assert against["loss"].item() > 0


@pytest.mark.golden
def test_translations_are_contrasted_with_all_other_texts() -> None:
    """The scores are those of inference, in both views; a text that does not query is a document only."""
    config = ContrastOptions(lambda_passage=0)
    model = encoder("distillation")
    objective, encode = ContrastiveLoss(model.model, config), texts("distillation")
    found = [*INPUTS["QUERIES"][:2], *(passage for group in INPUTS["PASSAGES"][:2] for passage in group)]
    meaning = torch.tensor([0, 1, *(place for place, group in enumerate(INPUTS["PASSAGES"][:2]) for _ in group)])
    is_query = torch.arange(len(found)) < 2
    with torch.no_grad():
        output = objective(text=encode(found, 512), meaning=meaning, is_query=is_query)
    vectors = model.encode_document(found).to_scipy()
    scores = torch.from_numpy((vectors @ vectors.T).toarray()).double()
    assert output["loss"].item() == pytest.approx(contrast_of_many(scores, meaning, is_query), rel=1e-4)


@pytest.mark.golden
def test_alignment_next_to_contrast_is_that_of_sap() -> None:
    """Its weight multiplies SMSE of the same texts with the teacher's view of their English translations."""
    config = ContrastOptions(views=("pivot",), lambda_passage=0, alignment_weight=0.5)
    model, encode = encoder("alignment").model, texts("alignment")
    teacher = MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "en_lsr")
    english, foreign = zip(*INPUTS["BITEXT"], strict=True)
    prepared = teacher.prepare([BitextPair("und", *sides) for sides in zip(foreign, english, strict=True)])
    batch = {"text": encode(foreign, 512), "meaning": torch.arange(3) // 2, "is_query": torch.ones(3, dtype=torch.bool)}
    with torch.no_grad():
        found = ContrastiveLoss(model, config, aligner=teacher)(**batch, teacher=prepared)
        alone = ContrastiveLoss(model, config)(**batch)
        target = teacher.targets(prepared)
        wanted = losses.sparse_mean_squared_error(model(**batch["text"]).logits, target, mean="teacher")
    assert found["parts"]["alignment"].item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx(alone["loss"].item() + 0.5 * wanted.item(), rel=1e-5)
    assert torch.equal(found["grounded"], target > 0)


def contrast_of_many(scores: Tensor, meaning: Tensor, is_query: Tensor) -> float:
    """Compute InfoNCE with several positives, one query and one positive at a time."""
    means = []
    for query in is_query.nonzero().flatten().tolist():
        negatives = scores[query, meaning != meaning[query]].exp().sum()
        positives = [p for p in (meaning == meaning[query]).nonzero().flatten().tolist() if p != query]
        each = [-torch.log(scores[query, p].exp() / (scores[query, p].exp() + negatives)).item() for p in positives]
        means += [sum(each) / len(each)] if each else []
    return sum(means) / len(means)


@settings(max_examples=50, deadline=None)
@given(texts=st.integers(2, 12), meanings=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_info_nce_of_many_is_its_formula(texts: int, meanings: int, seed: int) -> None:
    """For any number of positives; without a positive, or without a negative, the loss is 0."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(texts, texts, generator=generator, dtype=torch.float64)
    meaning = torch.randint(meanings, (texts,), generator=generator)
    is_query = torch.rand(texts, generator=generator) < 0.7
    same = meaning.unsqueeze(1) == meaning
    found = losses.info_nce_of_many(scores[is_query], same[is_query], is_query.nonzero()[:, 0])
    paired = is_query & (same.sum(dim=1) > 1)
    wanted = contrast_of_many(scores, meaning, is_query) if paired.any() else 0
    assert found.item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_texts_of_different_lengths_are_encoded_as_alone() -> None:
    """A batch is encoded in parts of similar length: the same vectors, in the same order."""
    model = encoder("distillation").model
    words = [" ".join(INPUTS["QUERIES"][place % 2].split()[: 1 + place % 7] * (1 + place % 3)) for place in range(40)]
    batch = texts("distillation")(words, 64)
    with torch.no_grad():
        logits, echo = encode_by_length(model, **batch)
        whole = model(**batch)
    torch.testing.assert_close(logits, whole.logits)
    torch.testing.assert_close(echo, whole.echo)


@pytest.mark.parametrize(
    ("views", "regularize_source", "expected"),
    [
        (("pivot", "source"), False, ["pivot"]),
        (("pivot", "source"), True, ["pivot", "source"]),
        (("pivot",), True, ["pivot"]),
        (("source",), False, []),
        (("source",), True, ["source"]),
    ],
)
def test_only_views_that_are_trained_are_regularized(
    views: tuple[str, ...], regularize_source: bool, expected: list[str]
) -> None:
    """The weights of another view are in no loss: they would only shrink."""
    config = ContrastOptions(views=views, regularize_source=regularize_source)
    sides = {"pivot": [torch.tensor([[1.0, 2.0]])], "source": [torch.tensor([[4.0, 8.0]])]}
    found = ContrastiveLoss(encoder("distillation").model, config).regularizers(sides, ["query"])
    assert found["query_l1"].item() == sum({"pivot": 3.0, "source": 12.0}[view] for view in expected)


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "smse": lambda logits, target: losses.sparse_mean_squared_error(logits, target),
    "smse with a margin": lambda logits, target: losses.sparse_mean_squared_error(logits, target, 0.5, "teacher"),
    "l1": lambda logits, _: losses.l1(log_saturation(logits)),
    "flops": lambda logits, _: losses.flops(log_saturation(logits)),
    "infonce": lambda logits, _: losses.info_nce(
        log_saturation(logits) @ log_saturation(logits).T, torch.arange(len(logits))
    ),
}


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(LOSSES)),
    size=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(2, 5), st.integers(1, 40)),
    seed=st.integers(0, 2**31),
)
def test_the_sparse_gradient_equals_full_autograd(name: str, size: tuple[int, int, int, int], seed: int) -> None:
    """Equal losses and gradients of states, decoder and bias, for every loss and shape."""
    batch, tokens, width, vocabulary = size
    generator = torch.Generator().manual_seed(seed)
    projected = torch.randn(batch, tokens, width, generator=generator, dtype=torch.float64)
    mask = torch.rand(batch, tokens, generator=generator) < 0.7
    mask[:, 0] = True
    weight = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
    bias = torch.randn(vocabulary, generator=generator, dtype=torch.float64)
    target = torch.randn(batch, vocabulary, generator=generator)
    found = []
    for pool in (max_logits, max_logits_reference):
        leaves = [tensor.clone().float().requires_grad_() for tensor in (projected, weight, bias)]
        loss = LOSSES[name](pool(leaves[0], mask, leaves[1], leaves[2]), target)
        loss.backward()
        found.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_the_gradient_of_a_gpu_is_that_of_the_cpu(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products over all coordinates give what the loop over texts gives: with holes in a mask, in several blocks."""
    monkeypatch.setattr(pooling, "VOCABULARY_CHUNK", 16)
    monkeypatch.setattr(pooling, "GPU_BLOCK_LOGITS", 2 * 6 * 16)
    generator = torch.Generator().manual_seed(5)
    projected, weight = torch.randn(5, 6, 8, generator=generator), torch.randn(39, 8, generator=generator)
    mask = torch.rand(5, 6, generator=generator) < 0.6
    mask[torch.arange(5), torch.randint(6, (5,), generator=generator)] = True
    gradient = torch.randn(5, 39, generator=generator) * (torch.rand(5, 39, generator=generator) < 0.5)
    wanted, found = (
        function(gradient, projected, mask, weight, dtype, True)
        for function in (pooling.sparse_gradients, pooling.dense_gradients)
    )
    for sparse, dense in zip(wanted, found, strict=True):
        torch.testing.assert_close(dense, sparse, atol=tolerance, rtol=tolerance)
    assert not found[0][~mask].any()
    assert pooling.dense_gradients(gradient, projected, mask, weight, dtype, False)[1] is None


def test_the_gradient_follows_the_bfloat16_maximum() -> None:
    """Under autocast, bfloat16 decides on the maximum and the token that gets the gradient, whose value is exact."""
    generator = torch.Generator().manual_seed(7)
    projected = torch.randn(3, 5, 16, generator=generator, requires_grad=True)
    weight = torch.randn(30, 16, generator=generator, requires_grad=True)
    mask, bias = torch.ones(3, 5, dtype=torch.bool), torch.zeros(30)
    with torch.autocast("cpu", torch.bfloat16):
        logits = max_logits(projected, mask, weight, bias)
    assert logits.dtype == torch.float32
    logits.sum().backward()
    token = (projected.bfloat16() @ weight.bfloat16().T).max(dim=1).indices
    for text in range(3):
        for place in range(5):
            wanted = weight.detach()[token[text] == place].sum(dim=0)
            torch.testing.assert_close(projected.grad[text, place], wanted)


def test_smse_without_active_coordinates_is_zero() -> None:
    """Not a division by zero."""
    nothing = torch.full((2, 3), -1.0, requires_grad=True)
    loss = losses.sparse_mean_squared_error(nothing, nothing.detach())
    loss.backward()
    assert loss.item() == 0
    assert not nothing.grad.any()


def test_a_margin_pushes_terms_below_zero() -> None:
    """A logit without a teacher's term has a gradient down to -margin, and none below."""
    student = torch.tensor([[-0.1, -0.6]], requires_grad=True)
    losses.sparse_mean_squared_error(student, torch.zeros(1, 2), margin=0.5).backward()
    assert student.grad[0, 0] > 0
    assert student.grad[0, 1] == 0


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_source_view_products_are_those_of_the_full_vocabulary(pool: str) -> None:
    """Over the tokens of a batch."""
    generator = torch.Generator().manual_seed(2)
    ids = [torch.randint(0, 9, (3, 6), generator=generator), torch.randint(0, 9, (4, 5), generator=generator)]
    echoes = [torch.rand(side.shape, generator=generator) for side in ids]
    dropped = torch.tensor([0, 3])
    wanted = []
    for side, echo in zip(ids, echoes, strict=True):
        rows = np.zeros((len(side), 9), np.float32)
        for row, column, weight in zip(*np.nonzero(side.numpy() >= 0), echo.flatten().tolist(), strict=True):
            piece = int(side[row, column])
            if piece not in (0, 3):
                rows[row, piece] = max(rows[row, piece], weight) if pool == "max" else rows[row, piece] + weight
        wanted.append(rows)
    query, passage = source_views(torch.cat([side.flatten() for side in ids]).unique(), ids, echoes, pool, dropped)
    np.testing.assert_allclose((query @ passage.T).numpy(), wanted[0] @ wanted[1].T, rtol=1e-5)


@pytest.mark.parametrize("has_checkpointing", [False, True])
def test_short_texts_have_nearly_the_gradients_of_fused_attention(
    has_checkpointing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16 on the CPU, their attention is unfused; with gradient checkpointing it stays fused."""
    encoder("distillation").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["encoder"] |= {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    write_json(tmp_path / "config.json", config)
    trained = MilcoEncoder.from_pretrained(tmp_path, device="cpu", dtype="float32")
    batch = TextCollator(trained.tokenizer, pad_id=1)(["Where does the Nile end?", "Der Nil", "水"], 16)
    if has_checkpointing:
        trained.model.encoder.gradient_checkpointing_enable({"use_reentrant": False})

    def gradients(unfused_length: int) -> Tensor:
        monkeypatch.setattr(objectives, "_UNFUSED_LENGTH", unfused_length)
        trained.model.train().zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            objectives.forward_pass(trained.model, **batch).pivot.sum().backward()
        layer = trained.model.encoder.encoder.layer[0].attention.self
        return torch.cat([part.weight.grad.flatten() for part in (layer.query, layer.key, layer.value)])

    length = batch["input_ids"].shape[1]
    unfused, fused = gradients(length), gradients(length - 1)
    assert torch.equal(unfused, fused) == has_checkpointing
    assert torch.nn.functional.cosine_similarity(unfused, fused, dim=0) > 0.99


@pytest.mark.golden
def test_the_teacher_computes_in_the_precision_of_the_student() -> None:
    """As in the authors' code, whose teacher runs under autocast; targets are float32 all the same."""
    teacher = MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "en_lsr", "zero")
    found = []

    def recorded(prepared: dict[str, Tensor]) -> Tensor:
        found.append((torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")))
        return MaskedLanguageModelTeacher.targets(teacher, prepared)

    teacher.targets = recorded  # type: ignore[method-assign]
    pairs = [BitextPair("de", "Der Nil", "The Nile")]
    encode = texts("alignment")
    for dtype in (torch.bfloat16, torch.float32):
        config = AlignmentOptions(padding="zero", english_weight=0)
        objective = AlignmentLoss(encoder("alignment").model, teacher, config, dtype)
        with torch.no_grad():
            batch = encode(["Der Nil"], 16)
            assert objective(batch, batch, teacher.prepare(pairs))["loss"].dtype == torch.float32
    assert found[0] == (torch.bfloat16, True) and not found[1][1]

"""VarlenForward equals the padded reference, with the reference of torch's attention, which runs on a GPU only."""

import pytest
import torch
from golden_set import TEXTS, encoder

from milco_pyserini.model.forward import PaddedForward
from milco_pyserini.model.varlen import VarlenForward, varlen_attention, varlen_attention_reference

CPU = torch.device("cpu")


@pytest.mark.parametrize(("dtype", "highest", "mean"), [(torch.float32, 1e-5, 1e-6), (torch.bfloat16, 0.3, 3e-2)])
@pytest.mark.parametrize("checkpoint", ["distillation", "alignment"])
def test_packed_texts_have_the_logits_of_padded_ones(
    checkpoint: str, dtype: torch.dtype, highest: float, mean: float
) -> None:
    """In any order, of any length; in bfloat16 the residual stream is rounded, too, so the tolerance is wider."""
    golden = encoder(checkpoint)
    rows = [row[:60] for row in golden.tokenizer.ids(TEXTS) if row]
    found = VarlenForward(golden.model, CPU, dtype, varlen_attention_reference)(rows)
    wanted = PaddedForward(golden.model, CPU, torch.float32)(rows)
    for left, right in zip(found, wanted, strict=True):
        if right is None:
            assert left is None
            continue
        assert left is not None and left.dtype == torch.float32 and left.shape == right.shape
        difference = (left - right).abs()
        assert difference.max() <= highest and difference.mean() <= mean


def test_texts_do_not_attend_to_each_other() -> None:
    """Packed attention equals padded attention with a mask, whatever follows a text."""
    draw = torch.Generator().manual_seed(0)
    lengths = [3, 1, 5]
    query, key, value = torch.randn(3, sum(lengths), 2, 4, generator=draw)
    bounds = torch.tensor([0, 3, 4, 9], dtype=torch.int32)
    found = varlen_attention_reference(query, key, value, bounds, 5)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    padded = [
        torch.nn.utils.rnn.pad_sequence(part.split(lengths), True).transpose(1, 2) for part in (query, key, value)
    ]
    wanted = torch.nn.functional.scaled_dot_product_attention(*padded, attn_mask=mask[:, None, None])
    torch.testing.assert_close(found, wanted.transpose(1, 2)[mask])


def test_what_the_attention_does_not_take_is_refused() -> None:
    """A processor: the message names it."""
    with pytest.raises(ValueError, match=r"not torch\.bfloat16 on cpu"):
        varlen_attention(CPU, torch.bfloat16)

"""Measure pairs per second of SAP or SCT, and their share of the machine's matrix product limit.

python benchmarks/training_throughput.py --model mini --batch 128 --tokens 32

Training steps are timed (forward, backward, AdamW) on texts of equal length from the embedded sample. The limit is the
rate of plain matrix products in the same dtype, measured between the steps. Only matrix products are counted as work:
encoder, connector and head forward, encoder and connector backward (twice their forward), attention included. The
head's sparse backward is not counted, because it is negligible. Results are medians of interleaved rounds.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.options import option

if TYPE_CHECKING:
    import torch

    from milco_pyserini.corpora.bitext import BitextPair
    from milco_pyserini.encode.encoder import MilcoEncoder

_PRODUCT = (2048, 1024, 4096)


@dataclass(frozen=True)
class ThroughputOptions:
    """Measure pairs per second of SAP against the machine's matrix product limit."""

    model: str = option("mini", metavar="NAME|DIR", help="checkpoint: name on the Hub, directory, or mini (embedded)")
    batch: int = option(128, minimum=1, metavar="N", help="pairs per step")
    tokens: int = option(32, minimum=1, metavar="N", help="tokens per text, on both sides of a pair")
    stage: str = option("sap", choices=("sap", "sct"), help="SCT: queries with one passage each, InfoNCE")
    repeats: int = option(5, minimum=1, metavar="N", help="rounds; medians are printed")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu or cuda")
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16"), help="dtype of the matrix products")


def command(options: ThroughputOptions) -> None:
    """Time steps and plain products in turn, and print rates and the share."""
    import torch

    from milco_pyserini.encode.encoder import MilcoEncoder, choose_device, choose_dtype

    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    encoder = MilcoEncoder.from_pretrained(options.model, device=options.device, dtype="float32")
    step = training_step(encoder, options, dtype)
    product = matrix_product(device, dtype)
    step(), product()
    seconds, limits = [], []
    for _ in range(options.repeats):
        limits.append(_seconds(product, device))
        seconds.append(_seconds(step, device))
    limit = 2 * _PRODUCT[0] * _PRODUCT[1] * _PRODUCT[2] / statistics.median(limits)
    taken = options.batch * pair_flop(encoder, options.tokens) / statistics.median(seconds)
    threads = f", {torch.get_num_threads()} threads" if device.type == "cpu" else ""
    sys.stdout.write(
        f"{options.stage}, {options.model}, {options.batch} pairs of {options.tokens} tokens per side, {dtype}, "
        f"{device}{threads}\n"
        f"{options.batch / statistics.median(seconds):8.1f} pairs/s\n"
        f"{taken / 1e9:8.1f} GFLOP/s of {limit / 1e9:.1f} in plain products: {taken / limit:.0%} of the limit\n"
    )


def training_step(encoder: "MilcoEncoder", options: ThroughputOptions, dtype: "torch.dtype") -> Callable[[], None]:
    """Return a step on one batch, SAP's with the lexical teacher: forward, backward and optimizer."""
    import torch

    from milco_pyserini.train.batches import AlignmentCollator, TextCollator
    from milco_pyserini.train.config import AlignmentOptions, ContrastOptions
    from milco_pyserini.train.lexical_teacher import LexicalTeacher
    from milco_pyserini.train.objectives import AlignmentLoss, ContrastiveLoss

    pairs = sample_pairs(options.batch)
    teacher = LexicalTeacher.fit((pair.english for pair in pairs), encoder.english_tokenizer)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id)
    batch = AlignmentCollator(texts, teacher, options.tokens)(pairs)
    batch.pop("languages")
    model = encoder.model.to(encoder.device).train()
    inputs = {side: {name: tensor.to(encoder.device) for name, tensor in part.items()} for side, part in batch.items()}
    objective: torch.nn.Module = AlignmentLoss(model, teacher, AlignmentOptions(mean="teacher"), dtype)
    if options.stage == "sct":
        inputs = {"query": inputs["text"], "passage": inputs["english"]}
        config = ContrastOptions(loss="infonce", views=encoder.views)
        objective = ContrastiveLoss(model, config, dtype).to(encoder.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        objective(**inputs)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def sample_pairs(count: int) -> "list[BitextPair]":
    """Return pairs of several passages each, so that every text is long enough to be truncated."""
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.corpora.bitext import BitextPair

    texts = [document.text for document in open_corpus("sample")]
    long = [" ".join(texts[place : place + 4]) for place in range(0, len(texts) - 4, 4)]
    return [
        BitextPair("und", foreign, english) for foreign, english in islice(zip(cycle(long), cycle(long[::-1])), count)
    ]


def matrix_product(device: "torch.device", dtype: "torch.dtype") -> Callable[[], None]:
    """Return a matrix product of a size at which the machine reaches its limit."""
    import torch

    rows, inner, columns = _PRODUCT
    left = torch.randn(rows, inner, device=device, dtype=dtype)
    right = torch.randn(inner, columns, device=device, dtype=dtype)
    return lambda: (left @ right, None)[1]


def pair_flop(encoder: "MilcoEncoder", tokens: int) -> float:
    """Return the floating point operations of a pair: both sides, forward and backward."""
    model = encoder.model
    config = model.config.encoder
    layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    attention = 2 * tokens * config.hidden_size
    connector = config.hidden_size * model.config.english_hidden_size + model.config.english_hidden_size**2
    body = config.num_hidden_layers * (layer + attention) + connector
    head = model.config.english_hidden_size * model.config.english_vocab_size
    return 2 * tokens * 2 * (3 * body + head)


def _seconds(action: Callable[[], None], device: "torch.device") -> float:
    import torch

    started = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/training_throughput.py", ThroughputOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())

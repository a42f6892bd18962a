"""Fine-tune the upper layers to few terms and other spellings: contrast in a batch, and the rankings of two teachers.

The teachers are the base's centered cosines and BM25 (lexical). Within limits of 32 and 8 terms of a query, 96 and 64
of a passage, 500 steps of half a batch on 29,000 texts take the sample from .837 to .856, and the pivot view alone from
.831 to .848. With the base as the only teacher and a tokenizer that folds case, 650 steps ended at .820. The mean
of the weights of several (Wortsman et al. 2022, arXiv 2203.05482) is better than each of them on other sets.

More of the same adds nothing: from these weights, 450 steps on 61,600 texts with terms grounded in translations end at
.851 of .862 (their mean .861), 400 steps of all twelve layers at .855 (their mean .862). Larger batches were not tried.

Each step draws a budget. A query has its strongest terms only, a text that is searched its own, so what is beyond the
budget takes no part in scores, and the configuration cuts it off when texts are encoded. An L1 norm strong enough to
leave 32 terms of a query made search worse than cutting off alone.
"""

import copy
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from milco_pyserini.console import log
from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.encode.devices import choose_device
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import atomic_file
from milco_pyserini.model.pooling import log_saturation
from milco_pyserini.sparse import PIVOT
from milco_pyserini.sparse.stop_words import STOP_WORDS
from milco_pyserini.train import losses
from milco_pyserini.train.lexical_teacher import LexicalTeacher
from milco_pyserini.train.objectives import encode_by_length

from . import MiniOptions
from .base import SPECIAL_TOKENS
from .grounding import Grounding, ungrounded_share
from .lexical import EchoScores, LexicalScores
from .pool import FROZEN, MEANINGLESS, NOTHING, PARALLEL_SOURCE, PASSAGE, Pool

# Groups of translations and pairs of a batch. Half of each are near neighbors: hard negatives of each other.
GROUPS, PAIRS, NEIGHBORS = 48, 32, 4
# Meaningless texts of a batch, which are negatives of all queries.
NOTHINGS = 8
# The teacher's similarity above which a neighbor could be an answer too.
_SAME = 0.85
# Budgets of a query and of a text that is searched, of which each step draws a pair.
BUDGETS = ((16, 64), (24, 96), (32, 128), (32, 128), (48, 192))
_SCORE_TEMPERATURE, _TEACHER_TEMPERATURE = 0.25, 0.05
_DISTILLATION = 2.0
# Weights of contrast with negatives in the query's own language, of terms that a text cannot mean, and of terms of
# meaningless texts.
_OWN_LANGUAGE, _GROUNDING, _NOTHING = 0.5, 1.0, 0.02
_OWN = -1e4
_NEVER = -100.0
# Passages in which terms are counted.
_COUNTED = 500
_FILE = "refinement.pt"


def silent_columns(pieces: list[str]) -> list[int]:
    """Return the English pieces that are never a reason: marks, single characters, other alphabets, function words.

    Parts of words stay if they have three letters: without any, the sample had .006 less.
    """

    def is_silent(piece: str) -> bool:
        word = piece.removeprefix("##")
        if word != piece:
            return len(word) < 3 or not (word.isascii() and word.isalpha())
        return len(word) < 2 or not (word.isascii() and word.isalnum()) or word in STOP_WORDS

    return [number for number, piece in enumerate(pieces) if is_silent(piece)]


class PoolStates(nn.Module):
    """Takes the place of embeddings and frozen layers: the states at places in the pool."""

    def __init__(self, pool: Pool, device: torch.device) -> None:
        super().__init__()
        # On the CPU, they stay in the file.
        self.states = torch.from_numpy(pool.states).to(device)

    def forward(self, input_ids: Tensor, **_: Any) -> Tensor:
        """Return float32 [B, S, D] for places int64 [B, S]."""
        return self.states[input_ids].float()


def batches(pool: Pool, seed: int) -> Iterator[list[int]]:
    """Yield numbers of entries: groups of translations, and queries of one set with their passages."""
    rng = random.Random(f"{seed} batches")
    members: dict[int, list[int]] = defaultdict(list)
    sets: dict[str, list[int]] = defaultdict(list)
    for number, entry in enumerate(pool.entries):
        members[entry.meaning].append(number)
        if entry.source != PARALLEL_SOURCE and entry.kind == PASSAGE:
            sets[entry.source].append(number)
    nothings = [number for number, entry in enumerate(pool.entries) if entry.kind == NOTHING]
    groups = [members[n][0] for n in sorted({e.meaning for e in pool.entries if e.source == PARALLEL_SOURCE})]
    names, sizes = list(sets), [len(one) ** 0.5 for one in sets.values()]
    while True:
        chosen = [n for first in clustered(pool, groups, GROUPS, rng) for n in members[pool.entries[first].meaning]]
        (name,) = rng.choices(names, sizes)
        for passage in clustered(pool, sets[name], min(PAIRS, len(sets[name])), rng):
            chosen.append(passage)
            asked = [n for n in members[pool.entries[passage].meaning] if n != passage]
            query = rng.choice([n for n in asked if pool.entries[n].spelling_of is None])
            chosen += [query, *(n for n in asked if pool.entries[n].spelling_of == query)]
        yield chosen + rng.sample(nothings, min(NOTHINGS, len(nothings)))


def clustered(pool: Pool, numbers: list[int], count: int, rng: random.Random) -> list[int]:
    """Return so many of the entries: a half in clusters of neighbors by the teacher, a half at random."""
    vectors = pool.teacher[numbers]
    chosen: dict[int, None] = {}
    for seed in rng.sample(range(len(numbers)), count // 2 // NEIGHBORS):
        similarity = vectors @ vectors[seed]
        similarity[similarity > _SAME] = -1
        chosen |= dict.fromkeys([seed, *similarity.topk(min(NEIGHBORS, len(numbers)) - 1).indices.tolist()])
    others = rng.sample(range(len(numbers)), min(2 * count, len(numbers)))
    return [numbers[place] for place in list(chosen | dict.fromkeys(others))[:count]]


def silence_frequent(encoder: MilcoEncoder, pool: Pool) -> None:
    """Make the pivot terms that most passages have, within the limits, no term of any text; they tell nothing apart."""
    passages = [number for number, entry in enumerate(pool.entries) if entry.kind == PASSAGE]
    counted = passages[:: max(1, len(passages) // _COUNTED)]
    rows = [pool.ids[pool.starts[number] : pool.starts[number + 1]].tolist() for number in counted]
    vectors = encoder.network.encode(rows, (PIVOT,))
    frequent = np.flatnonzero(np.bincount(vectors.columns) > len(vectors) / 2)
    log(f"Silent, in most passages: {' '.join(encoder.vocabulary.terms[frequent])}")
    encoder.model.decoder.bias.data[torch.from_numpy(frequent)] = _NEVER


def silence_meaningless(encoder: MilcoEncoder) -> None:
    """Lower the bias of each pivot term by the logit that three quarters of meaningless texts stay below.

    Texts such as "1" and "n/a" had terms of which any short query has some: the score of one for "Drucker" was .4 of
    the query's score with itself, and is now .04. The sample has .852 where it had .851.
    """
    rows = [row.ids for row in encoder.tokenizer.tokenize(MEANINGLESS, 16)]
    vectors = encoder.network.encode(rows, (PIVOT,))
    weights = np.zeros((len(rows), len(encoder.model.decoder.bias)), np.float32)
    weights[np.repeat(np.arange(len(rows)), vectors.lengths()), vectors.columns] = vectors.weights
    encoder.model.decoder.bias.data -= torch.from_numpy(np.expm1(np.quantile(weights, 0.75, axis=0)).astype(np.float32))


def silence(encoder: MilcoEncoder) -> list[int]:
    """Make silent columns no term of any text; return them."""
    silent = silent_columns(encoder.vocabulary.english)
    encoder.model.decoder.bias.data[silent] = _NEVER
    return silent


def strongest(views: Tensor, count: int) -> Tensor:
    """Return views with their strongest terms only."""
    least = views.detach().topk(min(count, views.shape[1]), dim=1).values[:, -1:]
    return torch.where(views >= least, views, 0.0)


class Batch:
    """Entries of a pool: places of their states, int64 [B, S], padded, and which texts answer which.

    Args:
        numbers: of the entries.
        lexical: the second teacher.
        echo: scores of the source view, which the pivot view adds to.
    """

    def __init__(self, pool: Pool, numbers: list[int], lexical: LexicalScores, echo: EchoScores) -> None:
        self.entries = [pool.entries[number] for number in numbers]
        rows = [torch.arange(pool.starts[number], pool.starts[number + 1]) for number in numbers]
        self.places = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.mask = (torch.arange(self.places.shape[1]) < torch.tensor([len(row) for row in rows]).unsqueeze(1)).long()
        self.meaning = torch.tensor([entry.meaning for entry in self.entries])
        roots = [n if e.spelling_of is None else e.spelling_of for n, e in zip(numbers, self.entries, strict=True)]
        self.root = torch.tensor(roots)
        searching = [place for place, entry in enumerate(self.entries) if entry.kind not in (PASSAGE, NOTHING)]
        self.queries = torch.tensor(searching)
        self.passages = torch.tensor([place for place, entry in enumerate(self.entries) if entry.kind == PASSAGE])
        vectors = pool.teacher[numbers]
        asked = [numbers[place] for place in searching]
        languages = np.array([entry.language for entry in self.entries])
        self.is_foreign = torch.from_numpy(languages[searching][:, None] != languages).to(self.meaning.device)
        self.echo = echo(asked, numbers).to(self.meaning.device)
        # Both teachers, float32 [Q, B].
        self.teacher = (vectors[self.queries.cpu()] @ vectors.T + lexical(asked, numbers)).to(self.meaning.device)

    def losses(self, scores: Tensor) -> dict[str, Tensor]:
        """Return contrasts and distillation of the pivot view's scores of queries and all texts, float [Q, B]."""
        scores = (scores + self.echo) / _SCORE_TEMPERATURE
        same = self.meaning[self.queries].unsqueeze(1) == self.meaning
        own = self.root[self.queries].unsqueeze(1) == self.root
        goal = self.teacher / _TEACHER_TEMPERATURE
        return {
            "contrast": losses.info_nce_of_many(scores, same, self.queries),
            # A translation must be ahead of what is not one in the query's language.
            "own": _OWN_LANGUAGE
            * losses.info_nce_of_many(scores.masked_fill(self.is_foreign & ~same, _OWN), same, self.queries),
            "distillation": _DISTILLATION
            * losses.kl_distillation(scores.masked_fill(own, _OWN), goal.masked_fill(own, _OWN)),
        }


class Refinement:
    """A training of the upper layers, connector and decoder on a pool, which resumes from its file."""

    def __init__(
        self, encoder: MilcoEncoder, pool: Pool, grounding: Grounding, run: Path, seed: int, options: MiniOptions
    ) -> None:
        run.mkdir(exist_ok=True)
        self.pool, self.grounding, self.file, self.seed = pool, grounding, run / _FILE, seed
        self.steps, rate = options.refine_steps, options.refine_rate
        # The encoder keeps its own layers and embeddings.
        silent = silence(encoder)
        self.model = model = copy.deepcopy(encoder.model).requires_grad_(False)
        english = (entry.english for entry in pool.entries if entry.english)
        self.teacher = LexicalTeacher.fit(english, encoder.english_tokenizer)
        self.teacher.weights[silent] = 0
        tokenizer = encoder.tokenizer
        self.lexical = LexicalScores(pool, len(tokenizer.pieces), len(SPECIAL_TOKENS), encoder.english_tokenizer)
        self.echo = EchoScores(pool, encoder)
        self.device = choose_device(options.device)
        model.encoder.embeddings = PoolStates(pool, self.device)
        model.encoder.encoder.layer, model.echo = model.encoder.encoder.layer[FROZEN:], None
        model.to(self.device)
        rates = {
            "encoder": rate,
            "connector.projector": rate,
            "connector.dense": rate / 7,
            "connector.layer_norm": rate * 1.5,
            "decoder": rate * 4,
        }
        parts = {name: model.get_submodule(name).requires_grad_(True).parameters() for name in rates}
        groups = [{"params": list(parts[name]), "peak": value} for name, value in rates.items()]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
        self.done = 0
        if self.file.exists():
            saved = torch.load(self.file, map_location=self.device, weights_only=True)
            model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.done = saved["done"]

    def _factor(self, step: int) -> float:
        """Return the share of the learning rates: a short warm-up, then a cosine to a twentieth."""
        return min(step / 20, 0.525 + 0.475 * math.cos(math.pi * min(1.0, step / self.steps)))

    def train(self, save_every: int = 50, log_every: int = 10) -> None:
        """Train to the last step."""
        stream = batches(self.pool, self.seed)
        rng = random.Random(f"{self.seed} budgets")
        sums: dict[str, float] = defaultdict(float)
        started = time.monotonic()
        for step in range(1, self.steps + 1):
            numbers, budget = next(stream), rng.choice(BUDGETS)
            if step <= self.done:
                continue
            with self.device:
                parts, loss = self.loss(numbers, budget)
            loss.backward()
            for group in self.optimizer.param_groups:
                group["lr"] = group["peak"] * self._factor(step)
            nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]], 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.done = step
            for name, value in parts.items():
                sums[name] += value / log_every
            if step % log_every == 0:
                figures = " ".join(f"{name} {value:.3f}" for name, value in sums.items())
                log(f"{step}/{self.steps} {(time.monotonic() - started) / log_every:.1f} s/step {figures}")
                sums.clear()
                started = time.monotonic()
            if step % save_every == 0 or step == self.steps:
                self.save()

    def loss(self, numbers: list[int], budget: tuple[int, int]) -> tuple[dict[str, float], Tensor]:
        """Return the parts of the loss, and figures, by name; and the loss."""
        batch = Batch(self.pool, numbers, self.lexical, self.echo)
        entries, queries, passages = batch.entries, batch.queries, batch.passages
        with torch.autocast(self.device.type, torch.bfloat16):
            logits, _ = encode_by_length(self.model, batch.places, batch.mask)
        views = log_saturation(logits)
        parts = batch.losses(strongest(views[queries], budget[0]) @ strongest(views, budget[1]).T)
        known = [place for place, entry in enumerate(entries) if entry.english]
        grounded = self.grounding([entries[place].english for place in known]).to(self.device)
        nothing = torch.tensor([entries[place].kind == NOTHING for place in known])
        parts["grounding"] = _GROUNDING * ungrounded_share(views[known][~nothing], grounded[~nothing])
        parts["nothing"] = _NOTHING * losses.l1(views[known][nothing].masked_fill(grounded[nothing], 0.0))
        pairs = [place for place in known if entries[place].kind != NOTHING]
        prepared = self.teacher.prepare(
            [BitextPair(entries[p].language, entries[p].text, entries[p].english) for p in pairs]
        )
        targets = self.teacher.targets({name: side.to(self.device) for name, side in prepared.items()})
        parts["alignment"] = losses.sparse_mean_squared_error(logits[pairs], targets, mean="teacher")
        loss = cast(Tensor, sum(parts.values()))
        terms = [(views[rows] > 0).sum(dim=1).float().mean().item() for rows in (queries, passages)]
        found = targets > 0
        figures = {name: part.item() for name, part in parts.items()}
        figures |= {"query_terms": terms[0], "passage_terms": terms[1]}
        figures["recall"] = (found & (logits[pairs] > 0)).sum().item() / found.sum().item()
        figures["tokens"] = float(batch.mask.sum())
        return figures, loss

    def save(self) -> None:
        """Write what resumes the training."""
        with atomic_file(self.file) as handle:
            torch.save(
                {
                    "model": {
                        n: t for n, t in self.model.state_dict().items() if not n.startswith("encoder.embeddings")
                    },
                    "optimizer": self.optimizer.state_dict(),
                    "done": self.done,
                },
                handle,
            )


def load_refined(model: Any, runs: Sequence[Path]) -> None:
    """Load the mean of what refinements trained into a complete model, whose layers from FROZEN on they have."""
    saved = [torch.load(run / _FILE, map_location="cpu", weights_only=True)["model"] for run in runs]
    prefix = "encoder.encoder.layer."
    means = {}
    for name in saved[0]:
        mean = torch.stack([one[name].float() for one in saved]).mean(dim=0)
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            name = f"{prefix}{int(number) + FROZEN}.{rest}"
        means[name] = mean
    unknown = model.load_state_dict(means, strict=False).unexpected_keys
    assert not unknown, unknown

"""What a boundary after each byte is worth: the counterfactual that a policy gradient estimates, measured outright.

For a drawn segmentation every decision is flipped, one at a time, and the text scored again. What the boundary buys is
the discounted sum of what it takes off the bytes from there on, all other decisions being as they were drawn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from byteseam.evaluation.segment import boundaries_by_rule, in_window, text_batch
from byteseam.inspect import Record
from byteseam.rl.returns import continues, discounted_returns
from byteseam.strategies import ScoreFunction
from byteseam.strategies.base import resolved
from byteseam.text import is_whitespace, utf8_character_ends
from byteseam.trained import Trained
from byteseam.types import Decision, Encoded

Bar = Callable[[int, int], None]
"""(bytes done, in all)."""


def nothing(done: int, total: int) -> None:
    """Tells nobody."""


ROWS_AT_ONCE = 64
"""Flipped segmentations of one forward pass."""

OTHERWISE_GAMMA = 0.9
"""Discount for runs whose strategy has none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Bytes of one kind, and what a boundary after one of them is worth on average."""

    name: str
    bytes: int
    probability: float | None
    """The policy's, on average."""
    advantage_nats: float
    error_nats: float
    """Standard error over the drawn segmentations; that other text would differ is not in it."""


def with_advantages(trained: Trained, record: Record, count: int, seed: int, bar: Bar = nothing) -> Record:
    """The record of a text with what a boundary after each byte is worth.

    Args:
        count: segmentations that are drawn and flipped; at least 2, for there to be an error.
    """
    gains = advantages(trained, record.data, count, seed, bar)
    return replace(record, advantage_nats=gains.mean(0), advantage_error_nats=gains.std(0, ddof=1) / math.sqrt(count))


def advantages(trained: Trained, data: bytes, count: int, seed: int, bar: Bar = nothing) -> NDArray[np.float64]:
    """[count, n] float64, nats: for each drawn segmentation what a boundary after each byte buys.

    Texts longer than a row are read through windows that move by half a row; a byte is measured where it has a quarter
    of a window on both sides.
    """
    size, window = len(data), max(trained.config.training.length_bytes - 1, 4)
    generator = torch.Generator().manual_seed(seed)
    found = np.zeros((count, size))
    start = first = 0
    while first < size:
        end = min(start + window, size)
        last = size if end == size else start + window - window // 4
        gains = torch.stack([_flips(trained, data, start, end, generator) for _ in range(count)])
        found[:, first:last] = gains[:, first - start : last - start].cpu().numpy()
        bar(last, size)
        first = last
        start = last - window // 4
    return found


@torch.no_grad()
def _flips(trained: Trained, data: bytes, start: int, end: int, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Of one segmentation of ``data[start:end]``, which is drawn."""
    model, strategy, precision = trained.model, trained.strategy, trained.precision
    batch = text_batch(data[start:end], precision.device)
    length = batch.mask.shape[1]
    uniforms = torch.rand(1, length, generator=generator).to(precision.device)
    with precision.autocast():
        encoded = model.encode(batch)
        decision = model.decide(strategy, encoded, batch, uniforms)
        if strategy.by_rule:
            decision = in_window(decision, boundaries_by_rule(strategy, model.policy, data), start)
        places = torch.arange(1, length, device=precision.device)
        flipped = decision.boundary.repeat(length, 1)
        # Row 0 is the segmentation as drawn; row i has the decision at position i turned round.
        flipped[places, places] = ~flipped[places, places]
        nll = []
        for part in flipped.split(ROWS_AT_ONCE):
            ids = torch.zeros(len(part), dtype=torch.int64, device=precision.device)
            many = Encoded(encoded.hidden[ids], encoded.early_logits[ids])
            relaxed = None if decision.relaxed is None else decision.relaxed[ids]
            taken = Decision(part, decision.free[ids], decision.logits[ids], relaxed)
            nll.append(model.rollout(many, taken, batch.rows(ids)).nll)
    costs = torch.cat(nll).double()
    gamma = resolved(strategy.gamma) if isinstance(strategy, ScoreFunction) else OTHERWISE_GAMMA
    # Better by the flip, at each position and after it; only what follows the flip can differ.
    gained = discounted_returns(costs[0] - costs[1:], gamma, continues(batch.document_ids).expand(length - 1, -1))
    own = gained[torch.arange(length - 1, device=gained.device), places]
    return torch.where(decision.boundary[0, 1:], -own, own)


def by_kind(records: Sequence[Record]) -> list[Kind]:
    """Averages over white space, ends of words, insides of characters, and all other bytes; kinds that occur."""
    names = ("white space", "the last byte of a word", "a byte inside a character", "any other byte")
    gathered: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    for record in records:
        assert record.advantage_nats is not None
        assert record.advantage_error_nats is not None
        data = np.frombuffer(record.data, np.uint8)
        space, inside = is_whitespace(data), ~utf8_character_ends(data)
        word_end = ~space & ~inside & np.append(space[1:], False)
        probability = np.full(len(data), np.nan) if record.probability is None else record.probability
        columns = np.stack((probability, record.advantage_nats, record.advantage_error_nats))
        rest = ~(space | word_end | inside)
        for name, where in zip(names, (space, word_end, inside, rest), strict=True):
            gathered[name].append(columns[:, where])
    kinds = []
    for name, parts in gathered.items():
        probability, advantage, error = np.concatenate(parts, axis=1)
        if number := len(advantage):
            known = None if np.isnan(probability).any() else float(probability.mean())
            spread = float(np.sqrt(np.square(error).sum())) / number
            kinds.append(Kind(name, number, known, float(advantage.mean()), spread))
    return kinds

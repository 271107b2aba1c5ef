"""Three ways to decide boundaries after training; all are causal and the same for the same seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from byteseam.language_model import LanguageModel
from byteseam.strategies import DEFAULT_THRESHOLD, Strategy
from byteseam.types import Batch, Mean

Mode = Literal["sample", "threshold", "rate"]


@dataclass(frozen=True, slots=True)
class Decider:
    """The numbers that probabilities are compared with: a boundary is where the number is smaller.

    ``sample``: as in training, random numbers where the strategy draws, else a half. ``threshold``: one number, 0.5
    unless given. ``rate``: one number too, calibrated on held-out text so that the asked bytes per token come out
    (`calibrate`).
    """

    mode: Mode = "sample"
    threshold: float = DEFAULT_THRESHOLD
    seed: int = 0

    def uniforms(
        self, strategy: Strategy, rows: int, length: int, draw: int, device: torch.device
    ) -> Float[Tensor, "B L"]:
        """The numbers of one forward pass; `draw` tells passes apart. A strategy that is random gets random ones."""
        if strategy.random or (strategy.sampled and self.mode == "sample"):
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + draw) % 2**63)
            return torch.rand(rows, length, generator=generator).to(device)
        threshold = DEFAULT_THRESHOLD if self.mode == "sample" else self.threshold
        return torch.full((rows, length), threshold, device=device)


@torch.no_grad()
def realised_rate(model: LanguageModel, strategy: Strategy, batches: Iterable[Batch], decider: Decider) -> float:
    """Boundaries per free decision; runs the encoder and the policy only."""
    rate = Mean(0.0, 0.0)
    for index, batch in enumerate(batches):
        encoded = model.encode(batch)
        rows, length = batch.byte_ids.shape
        uniforms = decider.uniforms(strategy, rows, length, index, batch.byte_ids.device)
        decision = model.decide(strategy, encoded, batch, uniforms)
        rate += Mean(float((decision.boundary & decision.free).sum()), float(decision.free.sum()))
    return rate.value


def calibrate(
    model: LanguageModel, strategy: Strategy, batches: list[Batch], target_rate: float, passes: int = 24
) -> tuple[float, float]:
    """(threshold, realised rate) closest to `target_rate` on these batches, by bisection.

    Bisection, not a quantile of the probabilities: with a history window they depend on the decisions themselves.
    """
    low, high = 0.0, 1.0
    best = (DEFAULT_THRESHOLD, realised_rate(model, strategy, batches, Decider("threshold", DEFAULT_THRESHOLD)))
    for _ in range(passes):
        middle = (low + high) / 2
        rate = realised_rate(model, strategy, batches, Decider("threshold", middle))
        if abs(rate - target_rate) < abs(best[1] - target_rate):
            best = (middle, rate)
        if rate > target_rate:
            low = middle
        else:
            high = middle
    return best

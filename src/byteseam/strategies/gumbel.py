"""Boundaries as relaxed Bernoulli variables with straight-through gradients, and mean-pooled tokens."""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.layers import Norm
from byteseam.model.pooling import MeanPooling
from byteseam.model.unet import document_starts
from byteseam.rl.losses import bernoulli_entropy, even_rate_loss
from byteseam.strategies.base import EXACT, Experience, Schedule, Statistics, Strategy, log_odds, resolved
from byteseam.types import Batch, Decision, Encoded, LossTerms, total_and_count

EPSILON = 1e-6
"""Random numbers are kept this far from 0 and 1, where the noise would be infinite."""


class BoundaryMLP(nn.Module):
    """``l = W2 gelu(W1 norm(x) + b1) + b2``; b2 starts at the target rate. In fp32, whatever the autocast type."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 1)
        nn.init.constant_(self.outer.bias, log_odds(min(max(rate, EPSILON), 1 - EPSILON)))

    def forward(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B L"]:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.outer(F.gelu(self.inner(self.norm(hidden.float()))))[..., 0]


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Gumbel(Strategy):
    """Dynamic token pooling: hard boundaries forward, a relaxed Bernoulli's gradient backward (Nawrot et al. 2023).

    ``relaxed = sigmoid((l + noise) / temperature)``, a boundary where it exceeds a half, which is a Bernoulli draw
    with probability ``sigmoid(l)``. The rate is held by ``-log Binomial(boundaries; L, rate) / L`` per row.

    Faithful to the paper but for what it leaves open and what our contracts ask: the MLP reads normalised states and
    starts at the target rate; a document's start is a boundary, and the learned null group stands there; the release
    draws in evaluation too, here ``--decide`` chooses; it normalises pooled tokens before the token model, whose layers
    do so themselves here. The authors of arXiv 2602.13940 used temperature 1 and another rate loss.
    """

    name: ClassVar[str] = "gumbel"
    learns: ClassVar[str] = "an MLP, through straight-through gradients of relaxed draws"
    rate_control: ClassVar[str] = "binomial prior on each row's boundaries, or even pressure"
    source: ClassVar[str] = "Nawrot et al. 2023 (arXiv 2211.09761)"
    learned: ClassVar[bool] = True
    sampled: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ("rate_weight",)

    temperature: float = Field(default=0.5, gt=0)
    """Of the relaxed draws: the lower, the nearer to hard ones, and the larger the gradient's variance."""
    rate_control_by: Literal["prior", "even"] = "prior"
    """``prior``: the paper's binomial prior. ``even``: the score function's pressure, the same on every logit."""
    rate_weight: Schedule = 1.0

    def build(self, width: int) -> BoundaryMLP:
        return BoundaryMLP(width, self.rate)

    def pooling(self, width: int) -> MeanPooling:
        return MeanPooling(width)

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """A boundary where the number is below the probability, and the relaxed draw that the same number makes."""
        starts = document_starts(batch.document_ids)
        logits = policy(encoded.hidden)
        boundary = (uniforms < torch.sigmoid(logits.detach())) | starts
        noise = -torch.logit(uniforms.clamp(EPSILON, 1 - EPSILON))
        relaxed = torch.sigmoid((logits + noise) / self.temperature)
        return Decision(boundary, batch.mask & ~starts, logits, relaxed.masked_fill(starts, 1.0))

    def loss(self, policy: nn.Module, experience: Experience, statistics: Statistics) -> LossTerms:
        """The rate alone: what boundaries are worth comes back through the tokens."""
        decision = experience.rollout.decision
        if self.rate_control_by == "even":
            rate = even_rate_loss(decision.logits, decision.free, self.rate, statistics.probability)
        else:
            rate = binomial_prior_loss(decision, self.rate, statistics.probability[1])
        entropy = total_and_count(bernoulli_entropy(decision.logits.detach()), decision.free)
        zero = rate.new_zeros(())
        return LossTerms(zero, resolved(self.rate_weight) * rate, zero, {"policy_entropy": entropy})


def binomial_prior_loss(decision: Decision, rate: float, count: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """``-log Binomial(k; n, rate)`` summed over rows, k boundaries among n free decisions, divided by `count`.

    With rows of equal n and `count` their sum this is the mean over rows of the paper's ``-log p / n``. The boundaries
    are hard, their gradient is the relaxed draws'.

    Args:
        count: free decisions of the whole effective batch.
    """
    assert decision.relaxed is not None
    rate = min(max(rate, EPSILON), 1 - EPSILON)
    drawn = decision.boundary.to(decision.relaxed.dtype) + decision.relaxed - decision.relaxed.detach()
    trials = decision.free.sum(1).to(drawn.dtype)
    hits = drawn.where(decision.free, drawn.new_zeros(())).sum(1)
    ways = torch.lgamma(trials + 1) - torch.lgamma(hits + 1) - torch.lgamma(trials - hits + 1)
    log_prob = ways + hits * math.log(rate) + (trials - hits) * math.log(1 - rate)
    return -log_prob.sum() / count.clamp(min=1)

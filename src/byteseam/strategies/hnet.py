"""Boundaries where neighbouring bytes differ: H-Net's routing, smoothing and ratio loss."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.pooling import Pooling, Segments, distribute
from byteseam.model.scan import moving_average
from byteseam.model.unet import document_starts
from byteseam.rl.losses import bernoulli_entropy, even_rate_loss, masked_mean
from byteseam.strategies.base import (
    EXACT,
    LOGIT_OF_CERTAINTY,
    Experience,
    Schedule,
    Statistics,
    Strategy,
    resolved,
)
from byteseam.types import Batch, Decision, Encoded, LossTerms, total_and_count

SMALLEST = 1e-4
"""Weights of the moving average stay this far from 0 and 1, but at a document's start."""


class Routing(nn.Module):
    """``p[t] = (1 - cos(Wq x[t-1], Wk x[t])) / 2``; both maps start as identities. fp32, whatever the autocast type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.query.weight)
        nn.init.eye_(self.key.weight)

    def forward(self, hidden: Float[Tensor, "B L D"], starts: Bool[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """Probabilities; 1 at the start of a document, which has no byte before it."""
        with torch.autocast(hidden.device.type, enabled=False):
            hidden = hidden.float()
            before = F.pad(self.query(hidden)[:, :-1], (0, 0, 1, 0), value=1.0)
            likeness = F.cosine_similarity(before, self.key(hidden), dim=-1)
            return ((1 - likeness) / 2).clamp(0, 1).masked_fill(starts, 1.0)


class Smoothing(Pooling):
    """Tokens are smoothed by a moving average weighted with their probabilities, ``h = p z + (1 - p) h_before``.

    A byte reads ``h * c + W x``: c is the probability of what was chosen, 1 forward and differentiable backward; W
    starts at zero and is fp32. An average never reaches into another document.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.residual = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.residual.weight)

    def up(
        self, hidden: Float[Tensor, "B L D"], tokens: Float[Tensor, "B S D"], parts: Segments
    ) -> Float[Tensor, "B L D"]:
        relaxed = parts.relaxed
        assert relaxed is not None
        with torch.autocast(hidden.device.type, enabled=False):
            weight = (
                relaxed.clamp(SMALLEST, 1 - SMALLEST).masked_fill(parts.starts, 1.0).gather(1, parts.token_positions)
            )
            smooth = distribute(moving_average(tokens.float(), weight), parts.segment_ids)
            confidence = torch.where(parts.boundary, relaxed, 1 - relaxed)
            straight = confidence + (1 - confidence).detach()
            return smooth * straight[..., None] + self.residual(hidden.float())


@dataclass(frozen=True, kw_only=True, config=EXACT)
class HNet(Strategy):
    """Dynamic chunking: a boundary starts a chunk where a byte is unlike the one before (Hwang et al. 2025).

    A boundary at t selects the state at t and reaches bytes from t on, which is what a boundary does here anyway.
    Decided by ``p > 0.5`` (a tie is none), in training too; what boundaries are worth comes back through the moving
    average's weights and the confidence. The ratio loss pulls the rate towards its target on average over the batch;
    it has no gradient on the mean probability once the share of boundaries is the target, so that p idles near a half.

    Differs from the release by the U-Net around it: one stage, windowed attention in place of Mamba-2, no wider token
    vectors, no learning rates by stage; padding and document starts count in no mean. Losses are fp32.
    """

    name: ClassVar[str] = "hnet"
    learns: ClassVar[str] = "two linear maps, through moving average and straight-through confidence"
    rate_control: ClassVar[str] = "ratio loss, or even pressure"
    source: ClassVar[str] = "H-Net (Hwang et al. 2025, arXiv 2507.07955)"
    learned: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ("rate_weight",)

    rate_control_by: Literal["ratio", "even"] = "ratio"
    """``ratio``: the paper's loss. ``even``: the score function's pressure, the same on every logit."""
    rate_weight: Schedule = 0.03

    def build(self, width: int) -> Routing:
        return Routing(width)

    def pooling(self, width: int) -> Smoothing:
        return Smoothing(width)

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """A boundary where the probability exceeds the number."""
        starts = document_starts(batch.document_ids)
        probability = policy(encoded.hidden, starts)
        boundary = (uniforms < probability.detach()) | starts
        logits = torch.logit(probability, eps=1e-6).masked_fill(starts, LOGIT_OF_CERTAINTY)
        return Decision(boundary, batch.mask & ~starts, logits, probability)

    def loss(self, policy: nn.Module, experience: Experience, statistics: Statistics) -> LossTerms:
        """The rate alone: what boundaries are worth comes back through the tokens."""
        decision = experience.rollout.decision
        assert decision.relaxed is not None
        if self.rate_control_by == "even":
            hard = torch.stack((statistics.boundaries, statistics.probability[1]))
            rate = even_rate_loss(decision.logits, decision.free, self.rate, hard)
        else:
            rate = ratio_loss(
                decision.relaxed, decision.free, statistics.boundaries, statistics.probability[1], self.rate
            )
        entropy = total_and_count(bernoulli_entropy(decision.logits.detach()), decision.free)
        zero = rate.new_zeros(())
        return LossTerms(zero, resolved(self.rate_weight) * rate, zero, {"policy_entropy": entropy})


def ratio_loss(
    probability: Float[Tensor, "B L"],
    free: Bool[Tensor, "B L"],
    boundaries: Float[Tensor, ""],
    count: Float[Tensor, ""],
    rate: float,
) -> Float[Tensor, ""]:
    """``N/(N-1) * ((N-1) F G + (1-F) (1-G))``, F the share of boundaries, G the mean probability, N = 1 / rate.

    Linear in G, so that parts of a batch add up to the whole batch's.

    Args:
        boundaries: boundaries among the free decisions of the whole effective batch.
        count: free decisions of the whole effective batch.
    """
    # At one byte a token the factor has no bound; it is held where the loss is still finite.
    tokens = max(1 / rate, 1 + 1e-3)
    share = boundaries / count.clamp(min=1)
    mean = masked_mean(probability, free, count)
    part = free.sum().to(mean.dtype) / count.clamp(min=1)
    return tokens / (tokens - 1) * ((tokens - 1) * share * mean + (1 - share) * (part - mean))

"""Boundaries where the next byte is hard to tell: BLT's entropy patching, with the early exit as its model."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_starts
from byteseam.rl.losses import even_rate_loss
from byteseam.strategies.base import EXACT, Experience, Pooled, Schedule, Statistics, resolved
from byteseam.types import Batch, Decision, Encoded, LossTerms, total_and_count

FIRST_THRESHOLD_NATS = {"absolute": 2.0, "relative": 0.0}


class Threshold(nn.Module):
    """One number, nats, that moves until the rate is right."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Entropy(Pooled):
    """A token ends where the early exit's next-byte entropy, or its rise over the byte before, exceeds a threshold.

    Only the threshold is learned: the rate's pressure moves it, and it is stored with the model. BLT's entropies come
    from a language model of its own with a wide window and a threshold set by hand; here they are those of the
    early-exit head, which changes while it learns and sees the encoder's window. BLT's top-k mode looks ahead and is
    left out. The probability of a boundary is ``sigmoid(entropy - threshold)``, so that other rates can be asked for.
    """

    name: ClassVar[str] = "entropy"
    learns: ClassVar[str] = "a threshold; the entropies are the early exit's"
    rate_control: ClassVar[str] = "the threshold moves until the rate is right"
    source: ClassVar[str] = "BLT (Pagnoni et al. 2024, arXiv 2412.09871)"
    learned: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ("rate_weight",)

    rule: Literal["absolute", "relative"] = "absolute"
    """``absolute``: H[t] exceeds the threshold; ``relative``: H[t] - H[t-1] does."""
    rate_weight: Schedule = 1.0

    def build(self, width: int) -> Threshold:
        return Threshold(FIRST_THRESHOLD_NATS[self.rule])

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """A boundary where the probability exceeds the number."""
        assert isinstance(policy, Threshold)
        starts = document_starts(batch.document_ids)
        surprise = next_byte_entropy(encoded.early_logits.detach())
        if self.rule == "relative":
            before = F.pad(surprise[:, :-1], (1, 0))
            surprise = (surprise - before).masked_fill(starts, 0.0)
        logits = surprise - policy.value
        boundary = (uniforms < torch.sigmoid(logits.detach())) | starts
        return Decision(boundary, batch.mask & ~starts, logits)

    def loss(self, policy: nn.Module, experience: Experience, statistics: Statistics) -> LossTerms:
        """The rate alone, on the share of boundaries: it moves the threshold."""
        assert isinstance(policy, Threshold)
        decision = experience.rollout.decision
        hard = torch.stack((statistics.boundaries, statistics.probability[1]))
        rate = even_rate_loss(decision.logits, decision.free, self.rate, hard)
        threshold = policy.value.detach().expand_as(decision.logits)
        zero = rate.new_zeros(())
        metrics = {"entropy_threshold": total_and_count(threshold, decision.free)}
        return LossTerms(zero, resolved(self.rate_weight) * rate, zero, metrics)


def next_byte_entropy(logits: Float[Tensor, "B L V"]) -> Float[Tensor, "B L"]:
    """Entropy of the next id, nats; at most log V."""
    log_prob = torch.log_softmax(logits.float(), dim=-1)
    return -(log_prob.exp() * log_prob).sum(-1)

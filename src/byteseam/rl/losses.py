"""Losses on the boundary policy. All minimised; ``log_prob <= 0``."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def bernoulli_log_prob(logits: Float[Tensor, "*N"], boundary: Bool[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """``log pi(a)`` of independent decisions; finite for any finite logit (no log of a rounded probability)."""
    return F.logsigmoid(torch.where(boundary, logits, -logits))


def bernoulli_entropy(logits: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Entropy of each decision, nats; at most log 2."""
    return F.softplus(logits) - logits * torch.sigmoid(logits)


def masked_mean(
    values: Float[Tensor, "*N"], mask: Bool[Tensor, "*N"], count: Float[Tensor, ""] | None = None
) -> Float[Tensor, ""]:
    """Mean over the True positions; 0 where there is none.

    Args:
        count: the number to divide by, where these values are a part of a larger batch.
    """
    if count is None:
        count = mask.sum().to(values.dtype)
    return values.where(mask, torch.zeros_like(values)).sum() / count.clamp(min=1)


def score_function_loss(
    advantage: Float[Tensor, "*N"],
    log_prob: Float[Tensor, "*N"],
    free: Bool[Tensor, "*N"],
    count: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """``-mean(stopgrad(advantage) * log_prob)`` over the free decisions: REINFORCE (Williams 1992).

    Its gradient estimates the gradient of the negative expected return, divided by the number of decisions.

    Args:
        count: the number of free decisions of the whole batch, where these are a part of it.
    """
    return -masked_mean(advantage.detach() * log_prob, free, count)


def even_rate_loss(
    logits: Float[Tensor, "*N"],
    free: Bool[Tensor, "*N"],
    target_rate: float,
    probability: Float[Tensor, " 2"] | None = None,
) -> Float[Tensor, ""]:
    """``mean(logits) * stopgrad(mean(p) - target_rate)``: the same push on every logit, whatever its probability.

    Unlike ``(mean(p) - target)^2`` it is not scaled by the sigmoid's slope, which would spare the decided bytes.

    Args:
        probability: (sum of p, number of free decisions) of the whole batch, where these logits are a part of it.
    """
    if probability is None:
        chosen = torch.sigmoid(logits.detach()).where(free, torch.zeros_like(logits))
        probability = torch.stack((chosen.sum(), free.sum().to(chosen.dtype)))
    total, count = probability.unbind()
    pressure = total / count.clamp(min=1) - target_rate
    return masked_mean(logits, free, count) * pressure.detach()

"""Choosing the next id from logits."""

import torch
from jaxtyping import Float
from torch import Tensor


def next_id_probabilities(
    logits: Float[Tensor, " V"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, " V"]:
    """fp32 probabilities after temperature, the k likeliest, and the smallest set of mass `top_p`.

    ``temperature = 0`` puts everything on the likeliest id.
    """
    logits = logits.float()
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), logits.numel()).to(logits.dtype)
    # In double precision and from zero down: no temperature is too low.
    probabilities = torch.softmax((logits - logits.max()).double() / temperature, dim=-1).float()
    order = probabilities.argsort(descending=True, stable=True)
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if top_k is not None:
        keep[order[top_k:]] = False
    if top_p is not None:
        before = probabilities[order].cumsum(0) - probabilities[order]
        keep[order[before >= top_p]] = False
    probabilities = probabilities * keep
    return probabilities / probabilities.sum()

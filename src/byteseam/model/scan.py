"""Exponential moving averages over tokens, as a scan of logarithmic depth. Imports torch alone."""

import torch
from jaxtyping import Float
from torch import Tensor


def moving_average(values: Float[Tensor, "B S D"], weight: Float[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """``h[j] = weight[j] * values[j] + (1 - weight[j]) * h[j - 1]``, with ``h[-1] = 0``.

    The pairs ``(1 - weight, weight * value)`` compose associatively: after step k, entry j has summed the 2^k entries
    that end in it. A weight of exactly 1 forgets all that was before.
    """
    total = weight[..., None] * values
    carry = (1 - weight)[..., None]
    step = 1
    while step < values.shape[1]:
        total = total + carry * _later(total, step)
        carry = carry * _later(carry, step)
        step *= 2
    return total


def moving_average_reference(values: Float[Tensor, "B S D"], weight: Float[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """The same, one token after the other: what `moving_average` is tested against, and how one would generate."""
    state = torch.zeros_like(values[:, 0]) if values.shape[1] else values.new_zeros(values.shape[0], values.shape[2])
    out = []
    for index in range(values.shape[1]):
        now = weight[:, index, None]
        state = now * values[:, index] + (1 - now) * state
        out.append(state)
    return torch.stack(out, dim=1) if out else values


def _later(sequence: Float[Tensor, "B S E"], step: int) -> Float[Tensor, "B S E"]:
    """The sequence moved back by so many places, zeros in front."""
    return torch.nn.functional.pad(sequence[:, :-step], (0, 0, step, 0))

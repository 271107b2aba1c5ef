"""Discounted returns that never cross a document start."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def continues(document_ids: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """True where position ``i + 1`` exists and belongs to the document of position ``i``."""
    same = document_ids[:, 1:] == document_ids[:, :-1]
    return torch.nn.functional.pad(same, (0, 1), value=False)[:, : document_ids.shape[1]]


def discounted_returns(
    reward: Float[Tensor, "*K B L"], gamma: float, continues: Bool[Tensor, "B L"]
) -> Float[Tensor, "*K B L"]:
    """``G[i] = reward[i] + gamma * G[i + 1]`` where the document continues, else ``G[i] = reward[i]``.

    The immediate reward is included: a boundary at ``i`` already helps to predict byte ``i + 1``.
    Log-depth scan over ``L`` (the pairs ``(reward, gamma)`` compose associatively); no host synchronisation.

    Args:
        reward: what the decisions bought, any floating dtype, better when larger.
        gamma: discount per byte, in [0, 1].
        continues: see `continues`.
    """
    total = reward
    carry = continues.to(reward.dtype) * gamma
    length = reward.shape[-1]
    step = 1
    while step < length:
        # After this line, `total[i]` sums the rewards of the 2 * step positions from i, each with its discount.
        ahead = torch.nn.functional.pad(total[..., step:], (0, step))
        total = total + carry * ahead
        carry = carry * torch.nn.functional.pad(carry[..., step:], (0, step))
        step *= 2
    return total

"""Rewards: what a segmentation bought, byte by byte."""

from jaxtyping import Float
from torch import Tensor


def likelihood_reward(nll: Float[Tensor, "*N L"]) -> Float[Tensor, "*N L"]:
    """``reward = -nll``: the log-likelihood of the next byte, nats."""
    return -nll


def early_exit_reward(nll: Float[Tensor, "*K B L"], early_nll: Float[Tensor, "B L"]) -> Float[Tensor, "*K B L"]:
    """``reward = early_nll - nll``: what the tokens bought over a model that never saw a boundary, nats.

    A control variate: `early_nll` does not depend on any boundary, so the expected gradient is that of
    `likelihood_reward` (the paper's early-exit relative reward).
    """
    return early_nll - nll

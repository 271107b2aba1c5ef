"""Control variates: what is subtracted from a return without changing the expected gradient.

A baseline may use anything that does not depend on the decision it is subtracted for. Leaving one out keeps the
sample's own return out of its own baseline; a mean that included it would scale the gradient by ``1 - 1/n``.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def leave_one_out_over_rollouts(returns: Float[Tensor, "K *N"]) -> Float[Tensor, "K *N"]:
    """For each of K rollouts of the same text, the mean return of the other K - 1.

    Raises:
        ValueError: with fewer than 2 rollouts, where there is no other.
    """
    rollouts = returns.shape[0]
    if rollouts < 2:
        raise ValueError(f"leaving one rollout out takes at least 2 rollouts, not {rollouts}")
    return (returns.sum(0, keepdim=True) - returns) / (rollouts - 1)


def leave_one_out_over_rows(
    returns: Float[Tensor, "B L"],
    mask: Bool[Tensor, "B L"],
    total: Float[Tensor, " L"],
    count: Float[Tensor, " L"],
) -> Float[Tensor, "B L"]:
    """For each row, the mean return of the batch's other rows at the same byte index (the paper's batch-relative
    baseline, leaving the row itself out).

    Where no other row has a target, the baseline is the row's own return: the advantage there is 0, no signal.

    Args:
        returns: the rows at hand.
        mask: True where a row has a target.
        total: sum of the returns over ALL rows of the batch (every micro-batch and rank), masked.
        count: how many rows these are, at each index.
    """
    own = mask.to(returns.dtype)
    others = count - own
    mean = (total - returns * own) / others.clamp(min=1)
    return mean.where(others > 0, returns)

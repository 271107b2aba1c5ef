"""The gradient estimators against the exact gradient, by enumerating every segmentation of a short text.

A text with n free decisions has 2^n segmentations. The model scores them all once; what the policy does with them is
then a matter of looking up costs, so that expectations are sums, and thousands of samples cost little. Estimates come
from the training code itself (`Strategy.statistics` and `Strategy.loss`), differentiated with respect to the policy's
taps: with history 1 these are the boundary logits before they are squashed, one a byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from byteseam.language_model import LanguageModel
from byteseam.strategies import Experience, ScoreFunction
from byteseam.strategies.base import resolved
from byteseam.strategies.policy import BoundaryPolicy
from byteseam.strategies.score_function import Learned
from byteseam.types import Batch, Decision, Encoded, Rollout

MOST_DECISIONS = 16
"""Free decisions that are still enumerated."""


@dataclass(frozen=True, slots=True)
class Segmentations:
    """Every segmentation of one text, N of them, and what each costs; float64."""

    batch: Batch
    """The text, one row."""
    encoded: Encoded
    early_nll: Float[Tensor, "1 L"]
    taps: Float[Tensor, "L w"]
    """What the policy made of the text (`BoundaryPolicy.taps`)."""
    free: Bool[Tensor, "1 L"]
    boundary: Bool[Tensor, "N L"]
    nll: Float[Tensor, "N L"]


@torch.no_grad()
def enumerate_segmentations(
    model: LanguageModel, strategy: ScoreFunction, batch: Batch, rows_at_once: int = 1024
) -> Segmentations:
    """Score every segmentation of a text.

    Args:
        batch: one row, with at most `MOST_DECISIONS` free decisions. Where there is no choice, it is made once.
        rows_at_once: segmentations of one forward pass.

    Raises:
        ValueError: with more decisions than can be enumerated.
    """
    encoded = model.encode(batch)
    # A number of 1 is below no probability: what is a boundary all the same is forced.
    decision = model.decide(strategy, encoded, batch, torch.ones(batch.mask.shape))
    (places,) = decision.free[0].nonzero(as_tuple=True)
    if len(places) > MOST_DECISIONS:
        raise ValueError(f"{len(places)} free decisions have too many segmentations; at most {MOST_DECISIONS}")
    number = torch.arange(2 ** len(places))
    boundary = decision.boundary.repeat(len(number), 1)
    boundary[:, places] = (number[:, None] >> torch.arange(len(places)) & 1).bool()
    nll = []
    for part in boundary.split(rows_at_once):
        ids = torch.zeros(len(part), dtype=torch.int64)
        copies = Encoded(encoded.hidden[ids], encoded.early_logits[ids])
        taken = Decision(part, decision.free[ids], decision.logits[ids])
        nll.append(model.rollout(copies, taken, batch.rows(ids)).nll)
    policy: Learned = model.policy  # type: ignore[assignment]
    return Segmentations(
        batch=batch,
        encoded=encoded,
        early_nll=model.early_nll(encoded, batch).double(),
        taps=policy.policy.taps(encoded.hidden)[0].double(),
        free=decision.free,
        boundary=boundary,
        nll=torch.cat(nll).double(),
    )


def probabilities(policy: BoundaryPolicy, table: Segmentations, taps: Float[Tensor, "L w"]) -> Float[Tensor, " N"]:
    """How likely the policy draws each segmentation; they sum to 1."""
    rows = len(table.boundary)
    document_ids = table.batch.document_ids.expand(rows, -1)
    yes = torch.sigmoid(policy.log_odds_given(taps.expand(rows, -1, -1), table.boundary, document_ids))
    return torch.where(table.boundary, yes, 1 - yes).where(table.free, 1.0).prod(dim=1)


def exact_gradient(policy: Learned, table: Segmentations, gamma: float = 1.0) -> Float[Tensor, "L w"]:
    """The gradient of the expected log-likelihood with respect to the taps.

    With ``gamma < 1`` it is what a discounted estimator aims at instead: the share that a decision at ``i`` has in
    the expected reward at ``k`` counts ``gamma^(k - i)``. Rewards before ``i`` owe nothing to it.
    """
    taps = table.taps.clone().requires_grad_()
    expected = probabilities(policy.policy, table, taps) @ -table.nll
    rows = [torch.autograd.grad(each, taps, retain_graph=True)[0] for each in expected]
    place = torch.arange(len(rows))
    ahead = place[:, None] - place
    weight = torch.where(ahead >= 0, gamma ** ahead.clamp(min=0).double(), 0.0)
    return (weight[..., None] * torch.stack(rows)).sum(0)


def estimates(
    policy: Learned,
    strategy: ScoreFunction,
    tables: Sequence[Segmentations],
    which: Int[Tensor, " B"],
    drawn: Int[Tensor, "K B"],
) -> Float[Tensor, "B L w"]:
    """What the strategy's policy loss makes of given samples: for each row, an estimate of `exact_gradient`.

    Args:
        strategy: with every schedule resolved and a policy weight that is not zero.
        tables: texts of one length.
        which: the text of each row of a batch.
        drawn: the segmentations of each row, by number, one a rollout.
    """

    def rows(name: str) -> Tensor:
        return torch.stack([getattr(table, name) for table in tables])[which]

    texts = [torch.cat([getattr(table.batch, name) for table in tables])[which] for name in Batch.__slots__]
    batch = Batch(*texts)
    early_nll, free = rows("early_nll")[:, 0], rows("free")[:, 0]
    hidden = torch.cat([table.encoded.hidden for table in tables])[which]
    taps = rows("taps").requires_grad_()
    boundary, nll = (
        torch.stack([getattr(table, name) for table in tables])[which, drawn] for name in ("boundary", "nll")
    )
    logits = torch.stack([policy.policy.log_odds_given(taps, each, batch.document_ids) for each in boundary])
    extra = None
    if len(drawn) > 1:
        extra = Rollout(Decision(boundary[1:], free.expand_as(boundary[1:]), logits[1:]), nll[1:])
    experience = Experience(
        batch=batch,
        encoded=Encoded(hidden, hidden.new_zeros(*hidden.shape[:2], 1)),
        early_nll=early_nll,
        rollout=Rollout(Decision(boundary[0], free, logits[0]), nll[0]),
        rows=torch.arange(len(which)),
        extra=extra,
    )
    with torch.no_grad():
        statistics = strategy.statistics(experience)
    terms = strategy.loss(policy, experience, statistics)
    (gradient,) = torch.autograd.grad(terms.policy, taps)
    # The loss is minus a weighted mean over decisions and rollouts; undone here.
    weight = resolved(strategy.policy_weight)
    return gradient * (-statistics.policy_decisions / (weight * len(drawn)))


def expected_estimates(
    policy: Learned, strategy: ScoreFunction, tables: Sequence[Segmentations]
) -> Float[Tensor, "B L w"]:
    """The expectation of `estimates` for a batch of one row a text, by running them on every possible outcome.

    Rows that do not see each other are enumerated apart: ``N^rollouts`` outcomes each. Where the baseline looks at
    the other rows, every outcome of the whole batch is one: ``N^rows``.
    """
    odds = torch.stack([probabilities(policy.policy, table, table.taps) for table in tables])
    count, number = odds.shape
    if strategy.needs_returns:
        outcomes = torch.cartesian_prod(*[torch.arange(number)] * count).view(-1, 1, count)
        which = torch.arange(count)
        total = torch.zeros(count, *tables[0].taps.shape, dtype=torch.float64)
        for drawn in outcomes:
            total += odds[which, drawn[0]].prod() * estimates(policy, strategy, tables, which, drawn)
        return total
    outcomes = torch.cartesian_prod(*[torch.arange(number)] * strategy.rollouts).view(number**strategy.rollouts, -1).T
    means = []
    for each in range(count):
        found = estimates(policy, strategy, tables, torch.full(outcomes.shape[1:], each), outcomes)
        means.append((odds[each, outcomes].prod(0)[:, None, None] * found).sum(0))
    return torch.stack(means)


def sampled_estimates(
    policy: Learned,
    strategy: ScoreFunction,
    tables: Sequence[Segmentations],
    draws: int,
    generator: torch.Generator,
) -> Float[Tensor, "M B L w"]:
    """`estimates` of a batch of one row a text, `draws` times, on segmentations drawn from the policy."""
    odds = torch.stack([probabilities(policy.policy, table, table.taps) for table in tables])
    count = len(tables)
    drawn = torch.multinomial(odds, draws * strategy.rollouts, replacement=True, generator=generator)
    drawn = drawn.view(count, draws, strategy.rollouts).permute(1, 2, 0)
    which = torch.arange(count)
    if strategy.needs_returns:
        return torch.stack([estimates(policy, strategy, tables, which, each) for each in drawn])
    # Rows do not see each other: all draws fit into one batch.
    together = drawn.transpose(0, 1).reshape(strategy.rollouts, draws * count)
    return estimates(policy, strategy, tables, which.repeat(draws), together).unflatten(0, (draws, count))

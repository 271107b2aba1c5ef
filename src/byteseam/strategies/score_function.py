"""Boundaries learned by reinforcement: discrete decisions, optimised directly (arXiv 2602.13940)."""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.rl.baselines import leave_one_out_over_rollouts, leave_one_out_over_rows
from byteseam.rl.losses import (
    bernoulli_entropy,
    bernoulli_log_prob,
    even_rate_loss,
    masked_mean,
    score_function_loss,
)
from byteseam.rl.returns import continues, discounted_returns
from byteseam.rl.rewards import early_exit_reward, likelihood_reward
from byteseam.strategies.base import EXACT, Experience, Pooled, Schedule, ShareSchedule, Statistics, resolved
from byteseam.strategies.policy import BoundaryPolicy
from byteseam.strategies.value import ValueHead
from byteseam.types import Batch, Decision, Encoded, LossTerms, total_and_count


class Learned(nn.Module):
    """What `ScoreFunction` learns besides the language model."""

    def __init__(self, policy: BoundaryPolicy, value: ValueHead | None) -> None:
        super().__init__()
        self.policy = policy
        self.value = value


@dataclass(frozen=True, kw_only=True, config=EXACT)
class ScoreFunction(Pooled):
    """``a[i] ~ Bernoulli(sigmoid(l[i]))``; the policy climbs ``E[sum_i advantage[i] * log pi(a[i])]``.

    ``reward[k] = early_nll[k] - nll[k]``; ``G[i] = sum_{k >= i} gamma^(k-i) reward[k]``;
    ``advantage = G - baseline``. With ``gamma = 1`` every baseline here leaves the gradient unbiased (``batch``
    where another row reaches as far); ``gamma < 1`` trades bias for variance by design. The rate is held
    by the same small push on every logit.
    """

    name: ClassVar[str] = "score_function"
    learns: ClassVar[str] = "a linear policy, by the score function"
    rate_control: ClassVar[str] = "even pressure on every logit"
    source: ClassVar[str] = "Dauncey and Wattenhofer 2026 (arXiv 2602.13940)"
    learned: ClassVar[bool] = True
    sampled: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ("gamma", "policy_weight", "rate_weight", "reach")

    history: int = Field(default=1, ge=1, le=64)
    """The policy's window w: 1 samples every byte independently, w > 1 sees the last w - 1 decisions."""
    logit_divisor: float = Field(default=16.0, gt=0)
    """D: raw logits are divided by it, so that the policy leaves uniformity slowly."""
    logit_cap: float = Field(default=6.0, gt=0)
    """Log-odds never leave (-cap, cap)."""
    gamma: ShareSchedule = 0.9
    """Discount of rewards a byte, in [0, 1]."""
    early_exit: bool = True
    """Reward what the tokens bought over the early-exit head, instead of the likelihood itself."""
    baseline: Literal["none", "batch", "leave_one_out", "value"] = "leave_one_out"
    """``batch``: mean return of the batch's other rows at the same byte index (the paper). ``leave_one_out``: mean
    return of the other rollouts of the same text. ``value``: a learned prediction of the return."""
    samples: int = Field(default=4, ge=1, le=64)
    """K, segmentations drawn of the same text; only ``leave_one_out`` uses more than one."""
    sample_rows: float = Field(default=0.25, gt=0, le=1)
    """Share of the rows that get K rollouts; the others train the language model and hold the rate."""
    policy_weight: Schedule = 1.0
    rate_weight: Schedule = 1.0
    random_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of training at the start in which boundaries stay random and only the language model learns."""
    reach: ShareSchedule = 0.0
    """How much of the policy's and rate's gradient flows on into the encoder, in [0, 1]."""
    value_width: int = Field(default=64, ge=1)
    """Hidden width of the learned value."""

    def __post_init__(self) -> None:
        if self.baseline == "leave_one_out" and self.samples < 2:
            raise ValueError("samples = 1 leaves baseline = leave_one_out no other rollout; set samples to 2 or more")

    @property
    def learning(self) -> bool:
        """False while the policy's weight is zero: then one rollout is enough."""
        return not isinstance(self.policy_weight, float) or self.policy_weight > 0

    @property
    def rollouts(self) -> int:
        return self.samples if self.baseline == "leave_one_out" and self.learning else 1

    @property
    def rollout_rows(self) -> float:
        return self.sample_rows if self.baseline == "leave_one_out" else 1.0

    @property
    def least_rows(self) -> int:
        # With one row there is no other to compare it with: every advantage would be 0.
        return 2 if self.baseline == "batch" else 1

    @property
    def needs_returns(self) -> bool:
        return self.baseline == "batch" and self.learning

    def at(self, progress: float) -> "ScoreFunction":
        now = super().at(progress)
        return replace(now, policy_weight=0.0, rate_weight=0.0) if progress < self.random_fraction else now

    def build(self, width: int) -> Learned:
        policy = BoundaryPolicy(width, self.history, self.rate, self.logit_divisor, self.logit_cap)
        return Learned(policy, ValueHead(width, self.value_width) if self.baseline == "value" else None)

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Bernoulli draws from the policy's probabilities."""
        assert isinstance(policy, Learned)
        reach = resolved(self.reach)
        hidden = encoded.hidden
        if reach < 1:
            hidden = hidden.detach() if reach == 0 else torch.lerp(hidden.detach(), hidden, reach)
        return policy.policy(hidden, batch.document_ids, batch.mask, uniforms)

    def returns(
        self, nll: Float[Tensor, "*K B L"], early_nll: Float[Tensor, "B L"], document_ids: Int[Tensor, "B L"]
    ) -> Float[Tensor, "*K B L"]:
        """Discounted returns, nats."""
        reward = early_exit_reward(nll, early_nll) if self.early_exit else likelihood_reward(nll)
        return discounted_returns(reward, resolved(self.gamma), continues(document_ids))

    def statistics(self, experience: Experience) -> Statistics:
        """Adds the number of decisions learned from and, for the batch-relative baseline, the mean returns."""
        plain = super().statistics(experience)
        mask, decision = experience.batch.mask, experience.rollout.decision
        decisions = decision.free[experience.rows].sum() * self.rollouts
        returns = plain.returns
        if self.needs_returns:
            own = self.returns(experience.rollout.nll, experience.early_nll, experience.batch.document_ids)
            returns = torch.stack((own.masked_fill(~mask, 0.0).sum(0), mask.sum(0).to(own.dtype)))
        return replace(plain, policy_decisions=decisions.to(returns.dtype), returns=returns)

    def loss(self, policy: nn.Module, experience: Experience, statistics: Statistics) -> LossTerms:
        """Score-function, rate and value terms, weighted."""
        assert isinstance(policy, Learned)
        decision = experience.rollout.decision
        rate = even_rate_loss(decision.logits, decision.free, self.rate, statistics.probability)
        entropy = bernoulli_entropy(decision.logits.detach())
        metrics = {"policy_entropy": total_and_count(entropy, decision.free)}
        policy_term = value_term = rate.new_zeros(())
        # A small micro-batch may hold none of the rows that the policy learns from.
        if self.learning and len(experience.rows):
            policy_term, value_term = self.policy_terms(policy, experience, statistics, metrics)
        return LossTerms(
            policy=resolved(self.policy_weight) * policy_term,
            rate=resolved(self.rate_weight) * rate,
            auxiliary=value_term,
            metrics=metrics,
        )

    def policy_terms(
        self, policy: Learned, experience: Experience, statistics: Statistics, metrics: dict[str, Tensor]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """(score-function loss, value loss); adds the scales of advantages and returns to `metrics`."""
        rows, rollout, extra = experience.rows, experience.rollout, experience.extra
        decision = rollout.decision
        own = (decision.free, decision.logits, decision.boundary, rollout.nll)
        free, logits, boundary, nll = (tensor[rows][None] for tensor in own)
        if extra is not None:
            free = torch.cat((free, extra.decision.free))
            logits = torch.cat((logits, extra.decision.logits))
            boundary = torch.cat((boundary, extra.decision.boundary))
            nll = torch.cat((nll, extra.nll))
        early, document_ids = experience.early_nll[rows], experience.batch.document_ids[rows]
        returns = self.returns(nll, early, document_ids)
        value_loss = returns.new_zeros(())
        if self.baseline == "leave_one_out":
            baseline = leave_one_out_over_rollouts(returns)
        elif self.baseline == "batch":
            baseline = leave_one_out_over_rows(returns[0], experience.batch.mask, *statistics.returns)[None]
        elif self.baseline == "value":
            assert policy.value is not None
            hidden = experience.encoded.hidden[rows]
            predicted = policy.value(hidden, early, boundary[0], document_ids, resolved(self.gamma))
            error = (predicted - returns[0]).square()
            value_loss = masked_mean(error, free[0], statistics.policy_decisions)
            baseline = predicted.detach()[None]
            metrics["value_error"] = total_and_count(error.detach(), free[0])
        else:
            baseline = torch.zeros_like(returns)
        advantage = returns - baseline
        metrics["advantage_square"] = total_and_count(advantage.square(), free)
        metrics["return_square"] = total_and_count(returns.square(), free)
        metrics["return_mean"] = total_and_count(returns, free)
        log_prob = bernoulli_log_prob(logits, boundary)
        return score_function_loss(advantage, log_prob, free, statistics.policy_decisions), value_loss

"""What every strategy is: its settings, and how it decides and learns."""

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.pooling import MeanPooling, Pooling
from byteseam.types import Batch, Decision, Encoded, LossTerms, Rollout

if TYPE_CHECKING:
    from byteseam.config import ModelConfig

EXACT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""How every strategy reads its settings: no unknown ones, no infinities."""

DEFAULT_THRESHOLD = 0.5
"""The probability that a boundary must exceed where none is given and nothing is drawn."""

LOGIT_OF_CERTAINTY = 20.0
"""Log-odds that fixed rules report for a boundary (and its negative for none): certain, yet finite."""


_Points = tuple[tuple[float, float], ...]


def _checked(value: float | _Points, highest: float | None) -> float | _Points:
    points = value if isinstance(value, tuple) else ((0.0, value),)
    places = [place for place, _ in points]
    if not points or places != sorted(places) or places[0] < 0 or places[-1] > 1:
        raise ValueError("a schedule is a list of [share of training, value] with rising shares from 0 to 1")
    if any(number < 0 or (highest is not None and number > highest) for _, number in points):
        raise ValueError("must be at least 0" if highest is None else f"must lie between 0 and {highest:g}")
    return value


Schedule = Annotated[float | _Points, AfterValidator(lambda value: _checked(value, None))]
"""A number >= 0, or points ``[[share of training, value], ...]`` that are joined by straight lines."""

ShareSchedule = Annotated[float | _Points, AfterValidator(lambda value: _checked(value, 1.0))]
"""The same for numbers in [0, 1]."""


def at_progress(schedule: Schedule, progress: float) -> float:
    """The value of a schedule after this share of training, in [0, 1].

    >>> at_progress(((0.0, 0.0), (0.5, 1.0)), 0.25)
    0.5
    """
    if not isinstance(schedule, tuple):
        return schedule
    before = schedule[0]
    for point in schedule:
        if point[0] > progress:
            span = point[0] - before[0]
            return before[1] + (point[1] - before[1]) * ((progress - before[0]) / span if span else 0.0)
        before = point
    return before[1]


def resolved(schedule: Schedule) -> float:
    """A schedule that `Strategy.at` has turned into a number.

    Raises:
        TypeError: if it has not.
    """
    if isinstance(schedule, tuple):
        raise TypeError("the schedule still has points; take the strategy at a moment, strategy.at(progress)")
    return schedule


@plain_dataclass(frozen=True, slots=True)
class Statistics:
    """Sums over the whole effective batch (all micro-batches and ranks): losses are means over it, not over a part."""

    targets: Float[Tensor, ""]
    """Targets that count."""
    probability: Float[Tensor, " 2"]
    """(sum of p over the free decisions, their number)."""
    boundaries: Float[Tensor, ""]
    """Boundaries among the free decisions."""
    policy_decisions: Float[Tensor, ""]
    """Decisions that enter the policy loss, over all rollouts."""
    returns: Float[Tensor, "2 L"]
    """(sum of returns, number of rows with a target) at each byte index; zeros unless the strategy needs them."""

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            self.targets + other.targets,
            self.probability + other.probability,
            self.boundaries + other.boundaries,
            self.policy_decisions + other.policy_decisions,
            self.returns + other.returns,
        )


@plain_dataclass(frozen=True, slots=True)
class Experience:
    """What one forward pass gives a strategy to learn from."""

    batch: Batch
    encoded: Encoded
    early_nll: Float[Tensor, "B L"]
    """nats, detached; 0 where masked."""
    rollout: Rollout
    """The rollout that carries gradients through the model. Its nll is detached here."""
    rows: Int[Tensor, " R"]
    """int64, the rows of the batch that the policy learns from."""
    extra: Rollout | None = None
    """K - 1 further rollouts of these rows, forward only: every tensor is [K - 1, R, L]."""


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Strategy(ABC):
    """Where tokens end. The instance is the configuration; what it learns lives in a module that it builds.

    The base decides nothing and learns nothing: a fixed rule overrides `decide`, a learned one also `build`,
    `loss` and, when its estimator looks beyond one micro-batch, `statistics`. What a strategy does to bytes and
    tokens, if more than selecting and adding, stands in `pooling`. docs/adding-a-strategy.md has one in thirty lines.
    """

    name: ClassVar[str]
    learns: ClassVar[str] = "nothing"
    """What it learns, and how, in a few words."""
    rate_control: ClassVar[str] = "none: the rate is what the text makes of it"
    """What holds the rate, in a few words."""
    source: ClassVar[str] = "byteseam"
    """Where it comes from."""
    learned: ClassVar[bool] = False
    """True if boundaries have probabilities that training changes."""
    sampled: ClassVar[bool] = False
    """True if training draws boundaries from their probabilities; False: it compares these with a half."""
    random: ClassVar[bool] = False
    """True if boundaries are drawn at random whatever the bytes: a threshold means nothing to it."""
    steered: ClassVar[bool] = True
    """True if `bytes_per_token` is what comes out; False for rules whose rate is what the text makes of it."""
    by_rule: ClassVar[bool] = False
    """True if it decides from bytes, their places and random numbers alone, without the encoder's states."""
    whole_bytes: ClassVar[bool] = False
    """True if every byte is a token of its own by definition: then there is no rate to compare."""
    fit_bytes: ClassVar[int] = 0
    """Bytes of training text that `fit` wants to see."""

    bytes_per_token: float = Field(default=5.0, ge=1)
    """Bytes that a token should span on average; its inverse is `rate`."""

    @property
    def rate(self) -> float:
        """Tokens per byte, in (0, 1]."""
        return 1.0 / self.bytes_per_token

    @property
    def rollouts(self) -> int:
        """How many segmentations of the same text a training step draws. Read once a step."""
        return 1

    @property
    def rollout_rows(self) -> float:
        """Share of the batch's rows that get more than one rollout, in (0, 1]. Read once a step."""
        return 1.0

    @property
    def least_rows(self) -> int:
        """How many rows a batch must have for the strategy to learn anything. Read once, with the configuration."""
        return 1

    @property
    def needs_returns(self) -> bool:
        """True if `statistics` must see the returns of every micro-batch before any of them is learned from."""
        return False

    def at(self, progress: float) -> Self:
        """The strategy after this share of training: every schedule resolved to a number. Called once a step."""
        fixed = {
            key: at_progress(value, progress)
            for key, value in vars(self).items()
            if isinstance(value, tuple) and key in getattr(self, "schedules", ())
        }
        return replace(self, **fixed) if fixed else self

    def build(self, width: int) -> nn.Module:
        """The parameters that the strategy learns, for encoder states of this width. Called once, before training."""
        return nn.Module()

    def pooling(self, width: int) -> Pooling:
        """How bytes become tokens and tokens reach bytes, with what is learned for it. Called once, before training."""
        return Pooling()

    def network(self, model: "ModelConfig") -> "ModelConfig":
        """The sizes of the network that it decides for: those of the configuration, unless it wants others."""
        return model

    def settled(self, model: "ModelConfig", length_bytes: int) -> Self:
        """The strategy with every setting that was left to the tool, for rows of so many bytes. Called as a run begins.

        Raises:
            UserError: if no setting will do.
        """
        return self

    def fit(self, policy: nn.Module, documents: Sequence[bytes]) -> None:  # noqa: B027 - most have nothing to fit
        """Learn in place what is learned by counting, from about `fit_bytes` of training text. Called as a run begins.

        Raises:
            UserError: if the text will not do.
        """

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Where tokens end. Called once a forward pass. Causal: position i may use what stands at or before i.

        Args:
            policy: what `build` made.
            uniforms: numbers in [0, 1); a boundary is drawn where the number is below its probability. A constant
                in place of random numbers makes it a threshold.
        """
        raise TypeError(f"{type(self).__name__} does not decide")

    def statistics(self, experience: Experience) -> Statistics:
        """Sums that are added up over micro-batches and ranks. Called before `loss`, without gradients."""
        decision = experience.rollout.decision
        zero = experience.early_nll.new_zeros(())
        chosen = torch.sigmoid(decision.logits).where(decision.free, zero)
        return Statistics(
            targets=experience.batch.mask.sum().to(zero.dtype),
            probability=torch.stack((chosen.sum(), decision.free.sum().to(zero.dtype))),
            boundaries=(decision.boundary & decision.free).sum().to(zero.dtype),
            policy_decisions=zero,
            returns=zero.new_zeros(2, experience.batch.mask.shape[1]),
        )

    def loss(self, policy: nn.Module, experience: Experience, statistics: Statistics) -> LossTerms:
        """What is minimised besides the next-byte losses. Called once a forward pass in training."""
        zero = experience.early_nll.new_zeros(())
        return LossTerms(zero, zero, zero)


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Pooled(Strategy):
    """A strategy that says where tokens end, and leaves open what a token is made of."""

    pool: Literal["last", "mean"] = "last"
    """A token is the encoder's vector at its last byte (the paper's U-Net), or the mean over its bytes."""

    def pooling(self, width: int) -> Pooling:
        return MeanPooling(width) if self.pool == "mean" else Pooling()


def fixed_decision(wanted: Bool[Tensor, "B L"], starts: Bool[Tensor, "B L"], mask: Bool[Tensor, "B L"]) -> Decision:
    """The decision of a rule that is always certain."""
    boundary = wanted | starts
    logits = torch.where(boundary, LOGIT_OF_CERTAINTY, -LOGIT_OF_CERTAINTY)
    return Decision(boundary, mask & ~starts, logits)


def log_odds(probability: float) -> float:
    """``log(p / (1 - p))``."""
    return math.log(probability / (1 - probability))

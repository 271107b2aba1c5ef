"""The records that flow through the house. Read this file first.

Axes: B rows, L bytes (positions of a row), S tokens, D width, V vocabulary, K rollouts.
Signs: ``nll >= 0`` (nats), ``log_prob <= 0``, losses are minimised, a reward is better when larger.

A worked row, ``L = 8``, the documents ``b"to be"`` and ``b"or"`` packed (``M`` is the document mark, id 256)::

    position       0    1    2    3    4    5    6    7
    byte_ids       M    t    o    _    b    e    M    o
    targets        t    o    _    b    e    M    o    r
    document_ids   0    0    0    0    0    0    1    1
    boundary       1    0    0    1    0    0    1    0     a token ENDS after this position
    segment_ids    0    0    0    1    1    1    2    2     the latest boundary at or before the position
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

DOCUMENT_MARK = 256
"""The id that starts every document (BOS) and, as a target, ends it. No byte has this value."""

VOCABULARY = 257
"""Ids that the model reads and predicts: the 256 byte values and the document mark."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of bytes. Every row, and every document in a row, starts with the document mark."""

    byte_ids: Int[Tensor, "B L"]
    """int64, what the model reads: 0..255, or the document mark."""
    targets: Int[Tensor, "B L"]
    """int64, the next id: 0..255, or the document mark where a document ends."""
    mask: Bool[Tensor, "B L"]
    """True where the target counts (in loss, reward, rate and metrics); False on padding."""
    document_ids: Int[Tensor, "B L"]
    """int64, the number of the document within its row, from 0, never falling. Padding has a number of its own."""

    def rows(self, index: slice | Int[Tensor, " R"]) -> "Batch":
        """The batch of some rows."""
        return Batch(self.byte_ids[index], self.targets[index], self.mask[index], self.document_ids[index])


@dataclass(frozen=True, slots=True)
class Encoded:
    """What the encoder made of a batch; it never saw a boundary."""

    hidden: Float[Tensor, "B L D"]
    """The encoder's output X."""
    early_logits: Float[Tensor, "B L V"]
    """fp32, next-id logits of the early-exit head."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where tokens end, and what the policy thought."""

    boundary: Bool[Tensor, "*K B L"]
    """True where a token ends after this position. True at every document start."""
    free: Bool[Tensor, "*K B L"]
    """True where the policy had a choice; False at document starts and on padding."""
    logits: Float[Tensor, "*K B L"]
    """fp32, log-odds of a boundary; differentiable where a policy is learned. Fixed rules give +-inf-free constants."""
    relaxed: Float[Tensor, "*K B L"] | None = None
    """fp32 in [0, 1], what a strategy that learns by back-propagation uses in the boundary's place; else nothing."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled segmentation of a batch and what it cost (K of them where a further axis stands in front)."""

    decision: Decision
    nll: Float[Tensor, "*K B L"]
    """nats, -log p(target | bytes up to here, boundaries up to here); 0 where masked."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that remembers how much it is a mean of, so that means of ragged parts combine exactly.

    >>> (Mean(6.0, 2.0) + Mean(1.0, 1.0)).value
    2.3333333333333335
    """

    total: float
    count: float

    @property
    def value(self) -> float:
        """The mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)


def total_and_count(values: Float[Tensor, "*N"], where: Bool[Tensor, "*N"]) -> Float[Tensor, " 2"]:
    """(sum over the True positions, their number): a mean that stays on the device and still adds up exactly."""
    chosen = values.where(where, values.new_zeros(()))
    return torch.stack((chosen.sum(), where.sum().to(values.dtype)))


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What a strategy adds to the loss, already weighted, and what it reports."""

    policy: Float[Tensor, ""]
    rate: Float[Tensor, ""]
    auxiliary: Float[Tensor, ""]
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """name -> tensor [2] of (total, count), kept on the device so that the loop need not synchronise."""

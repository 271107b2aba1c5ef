"""The measure of record: bits per byte of held-out text, with the rate beside it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from byteseam.errors import UserError
from byteseam.evaluation.agreement import Agreement, agreement
from byteseam.evaluation.confidence import Interval, ratio_interval
from byteseam.evaluation.decide import Decider
from byteseam.language_model import LanguageModel
from byteseam.rl.losses import bernoulli_entropy
from byteseam.strategies import Strategy
from byteseam.training.precision import Precision
from byteseam.types import DOCUMENT_MARK, Batch, Mean

RATE_TOLERANCE = 0.1
"""A realised rate further than this share from its target is off target."""


class NotFiniteError(UserError):
    """A loss, a gradient or a parameter is no number any more: training went astray."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a model did with held-out text. Bits are over bytes; the marks that end documents are not counted."""

    bits_per_byte: float
    interval: Interval | None
    """95 % bootstrap interval of `bits_per_byte` over documents; None with fewer than two."""
    early_bits_per_byte: float
    """The early-exit head's, which never sees a boundary."""
    bytes_per_token: float
    """Free decisions per boundary; infinite without a boundary."""
    rate: float
    policy_entropy_nats: float
    """Mean entropy of a decision; 0 for rules that are certain."""
    agreement: Agreement
    documents: int
    bytes_scored: int
    document_bits: list[float]
    """What each document cost, in the corpus' order."""
    document_bytes: list[int]

    def to_dict(self) -> dict[str, object]:
        """Plain numbers for JSON."""
        interval = self.interval
        return {
            "bits_per_byte": self.bits_per_byte,
            "bits_per_byte_interval": None if interval is None else [interval.low, interval.high],
            "early_bits_per_byte": self.early_bits_per_byte,
            "bytes_per_token": self.bytes_per_token,
            "rate": self.rate,
            "policy_entropy_nats": self.policy_entropy_nats,
            **self.agreement.values(),
            "documents": self.documents,
            "bytes_scored": self.bytes_scored,
        }


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    strategy: Strategy,
    batches: Iterable[tuple[Batch, Int[Tensor, "B L"]]],
    decider: Decider,
    precision: Precision,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Score every target of the batches once.

    Args:
        batches: with the number of each target's document, -1 on padding (`byteseam.data.batches.evaluation_batches`).
        progress: told the bytes scored by each batch.

    Raises:
        NotFiniteError: if the loss of a document is not finite.
    """
    nll: dict[int, float] = {}
    counts: dict[int, int] = {}
    early, rate, entropy = Mean(0.0, 0.0), Mean(0.0, 0.0), Mean(0.0, 0.0)
    nothing = Mean(0.0, 0.0)
    where = Agreement(nothing, nothing, nothing, nothing, nothing)
    model.eval()
    for index, (batch, documents) in enumerate(batches):
        rows, length = batch.byte_ids.shape
        uniforms = decider.uniforms(strategy, rows, length, index, precision.device)
        with precision.autocast():
            encoded, rollout = model(strategy, batch, uniforms)
            early_nll = model.early_nll(encoded, batch)
        decision, is_byte = rollout.decision, batch.mask & (batch.targets != DOCUMENT_MARK)
        free = float(decision.free.sum())
        early += Mean(float(early_nll.double()[is_byte].sum()), float(is_byte.sum()))
        rate += Mean(float((decision.boundary & decision.free).sum()), free)
        entropy += Mean(float(bernoulli_entropy(decision.logits).double()[decision.free].sum()), free)
        for document, total, number in _by_document(documents[is_byte], rollout.nll[is_byte]):
            nll[document] = nll.get(document, 0.0) + total
            counts[document] = counts.get(document, 0) + number
        for data, boundary in _pieces(batch, decision.boundary):
            where = where + agreement(data, boundary)
        if progress is not None:
            progress(int(is_byte.sum()))
    model.train()
    scored = sum(counts.values())
    order = sorted(counts)
    totals = np.array([nll[document] for document in order]) / math.log(2)
    sizes = np.array([counts[document] for document in order])
    if not np.isfinite(totals).all():
        raise NotFiniteError("the loss on held-out text is not finite: the model went astray in training")
    return Evaluation(
        bits_per_byte=float(totals.sum() / scored) if scored else math.nan,
        interval=ratio_interval(totals, sizes, seed=0),
        early_bits_per_byte=early.value / math.log(2),
        bytes_per_token=1 / rate.value if rate.total else math.inf,
        rate=rate.value,
        policy_entropy_nats=entropy.value,
        agreement=where,
        documents=len(counts),
        bytes_scored=scored,
        document_bits=totals.tolist(),
        document_bytes=sizes.tolist(),
    )


def _by_document(documents: Tensor, nll: Tensor) -> list[tuple[int, float, int]]:
    numbers, inverse, counts = torch.unique(documents, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(numbers), dtype=torch.float64).index_add_(0, inverse.cpu(), nll.double().cpu())
    return list(zip(numbers.tolist(), sums.tolist(), counts.tolist(), strict=True))


def _pieces(batch: Batch, boundary: Tensor) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """(bytes, boundaries) of every stretch of a document in every row, the marks left out."""
    ids, documents = batch.byte_ids.cpu().numpy(), batch.document_ids.cpu().numpy()
    mask, chosen = batch.mask.cpu().numpy(), boundary.cpu().numpy()
    for row in range(len(ids)):
        real = np.flatnonzero(mask[row])
        if not len(real):
            continue
        for piece in np.split(real, np.flatnonzero(np.diff(documents[row, real])) + 1):
            inside = piece[1:]  # the first is the mark
            yield ids[row, inside].astype(np.uint8), chosen[row, inside]


def rate_warning(rate: float, target: float) -> str | None:
    """One sentence when a realised rate is off its target or has collapsed; None when it is fine."""
    if rate > 0.95 and target < 0.9:
        return f"the boundaries have collapsed to one a byte (rate {rate:.3f}); raise strategy.rate_weight"
    if rate < min(0.01, target / 10):
        return f"the boundaries have vanished (rate {rate:.4f}); raise strategy.rate_weight"
    if abs(rate - target) > RATE_TOLERANCE * target:
        return (
            f"the rate {rate:.3f} ({1 / rate:.2f} bytes per token) is off its target {target:.3f} "
            f"({1 / target:.2f}); bits per byte at another rate do not compare"
        )
    return None

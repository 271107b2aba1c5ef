"""From a batch to the loss of one optimiser step, whatever the strategy."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from byteseam.language_model import LanguageModel, further_rollouts
from byteseam.strategies import DEFAULT_THRESHOLD, Experience, Statistics, Strategy
from byteseam.types import DOCUMENT_MARK, Batch, Encoded, Rollout, total_and_count

LOSS_TERMS = ("nll_loss", "early_loss", "policy_loss", "rate_loss", "auxiliary_loss")
"""What the objective is the sum of; the parts of a batch add up to the whole batch's."""

Metrics = dict[str, Tensor]
"""name -> tensor [2] of (total, count)."""


def draw_uniforms(
    seed: int, step: int, rollouts: int, rows: int, length: int, device: torch.device
) -> Float[Tensor, "K B L"]:
    """Random numbers in [0, 1), one sheet a rollout: a pure function of (seed, step), so that resuming needs no state.

    Drawn on the CPU whatever the device, so that the same seed gives the same boundaries everywhere.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    return torch.rand(rollouts, rows, length, generator=generator).to(device)


def decided_by(strategy: Strategy, uniforms: Float[Tensor, "*K B L"]) -> Float[Tensor, "*K B L"]:
    """The numbers that a training step compares probabilities with: random ones, or a half."""
    return uniforms if strategy.sampled else torch.full_like(uniforms, DEFAULT_THRESHOLD)


def learning_rows(strategy: Strategy, rows: int, first: int = 0) -> Int[Tensor, " R"]:
    """int64, which of the rows ``first .. first + rows`` of a batch the policy learns from, counted from `first`.

    They are spread evenly and depend on the row's number in the whole batch, not on how it is cut into parts.
    """
    place = torch.arange(first, first + rows, dtype=torch.float64)
    share = strategy.rollout_rows
    # Ceilings, so that row 0 is always among them; the nudge keeps exact products from being rounded up.
    chosen = torch.ceil((place + 1) * share - 1e-9) > torch.ceil(place * share - 1e-9)
    return torch.arange(rows)[chosen]


def experience(
    model: LanguageModel, strategy: Strategy, batch: Batch, uniforms: Float[Tensor, "K B L"], first_row: int = 0
) -> tuple[Experience, Float[Tensor, "B L"], Rollout]:
    """One forward pass: (what the strategy learns from, early-exit nll, the rollout that carries gradients)."""
    encoded, rollout = model(strategy, batch, decided_by(strategy, uniforms[0]))
    early_nll = model.early_nll(encoded, batch)
    rows = learning_rows(strategy, len(batch.byte_ids), first_row).to(batch.byte_ids.device)
    extra = None
    if strategy.rollouts > 1 and len(rows):
        part = Encoded(encoded.hidden[rows], encoded.early_logits[rows])
        extra = further_rollouts(model, strategy, part, batch.rows(rows), uniforms[1 : strategy.rollouts, rows])
    detached = Rollout(rollout.decision, rollout.nll.detach())
    return Experience(batch, encoded, early_nll.detach(), detached, rows, extra), early_nll, rollout


def objective(
    model: LanguageModel,
    strategy: Strategy,
    batch: Batch,
    uniforms: Float[Tensor, "K B L"],
    early_exit_weight: float,
    statistics: Statistics | None = None,
    first_row: int = 0,
) -> tuple[Tensor, Metrics]:
    """``mean(nll) + w_early * mean(early_nll) + policy + rate + auxiliary``, and what to report.

    Args:
        uniforms: see `draw_uniforms`.
        statistics: the whole effective batch's, where this batch is a part of it; else this batch's own.
        first_row: the number of this part's first row in the whole batch.
    """
    lived, early_nll, rollout = experience(model, strategy, batch, uniforms, first_row)
    if statistics is None:
        with torch.no_grad():
            statistics = strategy.statistics(lived)
    terms = strategy.loss(model.policy, lived, statistics)
    targets = statistics.targets.clamp(min=1)
    nll_loss, early_loss = rollout.nll.sum() / targets, early_exit_weight * early_nll.sum() / targets
    parts = dict(zip(LOSS_TERMS, (nll_loss, early_loss, terms.policy, terms.rate, terms.auxiliary), strict=True))
    loss = torch.stack(list(parts.values())).sum()
    return loss, terms.metrics | report(batch, lived, parts)


@torch.no_grad()
def report(batch: Batch, lived: Experience, parts: dict[str, Tensor]) -> Metrics:
    """What every strategy reports (`docs/metrics.md`). Loss terms add up over the parts of a batch."""
    decision = lived.rollout.decision
    is_byte = batch.mask & (batch.targets != DOCUMENT_MARK)
    metrics = {
        "nll": total_and_count(lived.rollout.nll, is_byte),
        "early_nll": total_and_count(lived.early_nll, is_byte),
        "rate": total_and_count(decision.boundary.float(), decision.free),
        "probability": total_and_count(torch.sigmoid(decision.logits), decision.free),
    }
    for name, part in parts.items():
        metrics[name] = torch.stack((part.detach(), torch.ones_like(part)))
    return metrics

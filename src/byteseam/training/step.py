"""One optimiser step: micro-batches in, gradients and metrics out."""

import torch
from jaxtyping import Float
from torch import Tensor

from byteseam.config import TrainingConfig
from byteseam.language_model import LanguageModel
from byteseam.strategies import Experience, Statistics, Strategy
from byteseam.training.objective import LOSS_TERMS, Metrics, decided_by, experience, learning_rows, objective
from byteseam.training.precision import Precision
from byteseam.types import Batch, Rollout


def add_metrics(into: Metrics, more: Metrics) -> None:
    """Add totals and counts, in place."""
    for name, value in more.items():
        into[name] = into[name] + value if name in into else value


def accumulate_gradients(
    model: LanguageModel,
    strategy: Strategy,
    batch: Batch,
    uniforms: Float[Tensor, "K B L"],
    config: TrainingConfig,
    precision: Precision,
) -> Metrics:
    """Gradients of the whole batch's objective, in parts of `micro_batch_rows`; the same as in one part.

    Every mean in the objective is a mean over the whole batch, and so are the estimator's statistics. With more than
    one part these are gathered first, in a pass without gradients: encoder and policy only, or the whole model when
    the baseline needs every row's returns.
    """
    rows = len(batch.byte_ids)
    size = config.micro_batch_rows or rows
    parts = [slice(first, min(first + size, rows)) for first in range(0, rows, size)]
    statistics: Statistics | None = None
    if len(parts) > 1:
        for part in parts:
            with torch.no_grad(), precision.autocast():
                own = part_statistics(model, strategy, batch.rows(part), uniforms[:, part], part.start)
            statistics = own if statistics is None else statistics + own
    metrics: Metrics = {}
    for part in parts:
        with precision.autocast():
            loss, own_metrics = objective(
                model,
                strategy,
                batch.rows(part),
                uniforms[:, part],
                config.early_exit_weight,
                statistics,
                first_row=part.start,
            )
        loss.backward()
        add_metrics(metrics, own_metrics)
    for name in LOSS_TERMS:
        # Parts of one loss: they have been added up, and the step counts once.
        metrics[name] = torch.stack((metrics[name][0], torch.ones_like(metrics[name][0])))
    return metrics


def part_statistics(
    model: LanguageModel, strategy: Strategy, batch: Batch, uniforms: Float[Tensor, "K B L"], first_row: int
) -> Statistics:
    """A part's share of the whole batch's statistics, at the least cost that the strategy allows."""
    if strategy.needs_returns:
        return strategy.statistics(experience(model, strategy, batch, uniforms, first_row)[0])
    encoded = model.encode(batch)
    decision = model.decide(strategy, encoded, batch, decided_by(strategy, uniforms[0]))
    unknown = torch.zeros_like(uniforms[0])
    rows = learning_rows(strategy, len(batch.byte_ids), first_row).to(unknown.device)
    return strategy.statistics(Experience(batch, encoded, unknown, Rollout(decision, unknown), rows))

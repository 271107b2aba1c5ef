"""Every gradient estimator against the exact gradient of a short text, in one table with a verdict a row.

What is estimated is the gradient of the expected log-likelihood of the text, over all segmentations, with respect to
the policy's raw outputs, one a byte. Score-function estimators are judged by samples drawn from tables of all
segmentations (`byteseam.laboratory.enumeration`); straight-through ones by what the training code back-propagates.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from byteseam.config import ModelConfig
from byteseam.evaluation.segment import text_batch
from byteseam.laboratory.enumeration import enumerate_segmentations, exact_gradient, sampled_estimates
from byteseam.language_model import LanguageModel
from byteseam.strategies import Gumbel, HNet, ScoreFunction, Strategy
from byteseam.strategies.score_function import Learned
from byteseam.training.objective import draw_uniforms, objective
from byteseam.types import Batch, Decision, Encoded

MODEL = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=1,
    token_layers=1,
    decoder_layers=1,
    byte_mlp_width=16,
    token_mlp_width=16,
    window=4,
)

GAMMAS = (1.0, 0.9, 0.5)

BATCH_ROWS = 4
"""Rows that the batch-relative baseline compares; all hold the one text, which flatters it."""

MOST_STANDARD_ERRORS = 5.0
"""A mean further than this from its aim, at some byte, is no accident."""

QUIETER = 0.75
"""Share of the likelihood's own error that an estimator with an early exit may have at most."""

TIMED_ROWS, TIMED_STEPS = 64, 6

PAPER = "early exit, batch-relative (paper)"

SCORE_FUNCTIONS: dict[str, dict[str, Any]] = {
    "likelihood, no baseline": {"baseline": "none", "early_exit": False},
    "early exit, no baseline": {"baseline": "none"},
    PAPER: {"baseline": "batch"},
    "early exit, learned value": {"baseline": "value"},
    "early exit, leave-one-out of 2": {"baseline": "leave_one_out", "samples": 2},
    "early exit, leave-one-out of 4": {"baseline": "leave_one_out", "samples": 4},
}

STRAIGHT_THROUGH: dict[str, Strategy] = {
    "gumbel, temperature 0.5": Gumbel(bytes_per_token=2.0),
    "gumbel, temperature 1": Gumbel(bytes_per_token=2.0, temperature=1.0),
    "hnet, drawn": HNet(bytes_per_token=2.0),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One estimator. Errors and biases are relative: squared ones over the squared norm of the true gradient."""

    estimator: str
    gamma: float | None
    aim: str
    """What it estimates: ``gradient``, ``discounted gradient``, or ``a relaxation's``."""
    standard_errors: float | None
    """How far the mean of the samples is from the aim, at the byte where it is furthest."""
    bias: float
    """Distance of the expectation from the true gradient over its norm."""
    predicted_bias: float | None
    """The same for the aim; None where nothing predicts it."""
    cosine: float
    """Of the expectation with the true gradient."""
    variance: float
    """Of one estimate."""
    error: float
    """Expected squared error of one estimate: variance and squared bias."""
    rollouts: int
    """Segmentations of a text that one estimate takes."""
    seconds: float
    """Of a training step, a row, measured here."""
    verdict: str
    """``unbiased``, ``biased by design``, or ``WRONG``."""

    @property
    def error_rollouts(self) -> float:
        """Error times rollouts: what an estimate costs that is averaged down to an error of one."""
        return self.error * self.rollouts


def check_all(text: bytes, draws: int, seed: int, only: Callable[[str], bool] = lambda name: True) -> Iterator[Row]:
    """The rows of the table, one after the other.

    Args:
        text: at most 15 bytes; every segmentation of it is scored.
        draws: estimates that are drawn of every score-function estimator.
        only: whether an estimator of that name is checked.

    Raises:
        ValueError: for a text with more segmentations than can be enumerated.
    """
    loud: dict[float, float] = {}
    for name, settings in SCORE_FUNCTIONS.items():
        if only(name):
            for gamma in GAMMAS:
                strategy = ScoreFunction(bytes_per_token=2.0, gamma=gamma, sample_rows=1.0, **settings)
                row = score_function_row(name, strategy, text, draws, seed)
                if not strategy.early_exit:
                    loud[gamma] = row.error
                elif row.error > QUIETER * loud.get(gamma, math.inf):
                    # The early exit biases nothing, so that only the noise tells whether it is there.
                    row = replace(row, verdict="WRONG")
                yield row
    for name, rival in STRAIGHT_THROUGH.items():
        if only(name):
            yield straight_through_row(name, rival, text, draws, seed)


def score_function_row(name: str, strategy: ScoreFunction, text: bytes, draws: int, seed: int) -> Row:
    """Samples of the training code's own estimates against the enumeration."""
    model, batch = lively_model(strategy, seed), text_batch_with_mark(text)
    table = enumerate_segmentations(model, strategy, batch)
    policy = model.policy
    assert isinstance(policy, Learned)
    rows = BATCH_ROWS if strategy.needs_returns else 1
    generator = torch.Generator().manual_seed(seed)
    # A batch of rows is drawn one by one, and each row counts as an estimate.
    number = max(2, draws // 20 if rows > 1 else draws)
    samples = sampled_estimates(policy, strategy, [table] * rows, number, generator)
    found = samples.flatten(0, 1)
    gamma = float(strategy.gamma) if not isinstance(strategy.gamma, tuple) else 1.0
    true = exact_gradient(policy, table)
    aim = exact_gradient(policy, table, gamma)
    furthest = largest_standard_errors(found, aim)
    size = true.square().sum().item()
    predicted = relative(aim - true, size)
    wrong = furthest > MOST_STANDARD_ERRORS
    return Row(
        estimator=name,
        gamma=gamma,
        aim="gradient" if gamma == 1 else "discounted gradient",
        standard_errors=furthest,
        bias=relative(found.mean(0) - true, size),
        predicted_bias=predicted,
        cosine=cosine(found.mean(0), true),
        variance=(found - found.mean(0)).square().sum((1, 2)).mean().item() / size,
        error=(found - true).square().sum((1, 2)).mean().item() / size,
        rollouts=strategy.rollouts,
        seconds=seconds_a_row(strategy, batch, seed),
        verdict="WRONG" if wrong else "unbiased" if gamma == 1 else "biased by design",
    )


class Given(nn.Module):
    """A policy of which nothing is left but its outputs."""

    def __init__(self, outputs: Float[Tensor, "B L"]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, hidden: Tensor, starts: Tensor | None = None) -> Tensor:
        """Log-odds; where document starts are told apart (`byteseam.strategies.hnet.Routing`), probabilities."""
        return self.outputs if starts is None else torch.sigmoid(self.outputs).masked_fill(starts, 1.0)


def straight_through_row(name: str, strategy: Strategy, text: bytes, draws: int, seed: int) -> Row:
    """What back-propagation makes of drawn boundaries, against the gradient of the expected log-likelihood.

    H-Net decides by a threshold in training, where there is no expectation to differentiate; here its boundaries are
    drawn with its probabilities, so that what it back-propagates has something to be compared with.
    """
    model, batch = lively_model(strategy, seed), text_batch_with_mark(text)
    with torch.no_grad():
        encoded = model.encode(batch)
        outputs = model.decide(strategy, encoded, batch, torch.full(batch.mask.shape, 0.5)).logits.clamp(-3, 3)
    true = exact_of(model, strategy, batch, encoded, outputs)
    drawn = torch.rand(draws, batch.mask.shape[1], generator=torch.Generator().manual_seed(seed))
    parts = []
    for uniforms in drawn.split(512):
        leaf = outputs.expand(len(uniforms), -1).clone().requires_grad_()
        likelihood = log_likelihood(model, strategy, batch, encoded, leaf, uniforms)[0]
        parts.append(torch.autograd.grad(likelihood.sum(), leaf)[0].double())
    found = torch.cat(parts)
    size = true.square().sum().item()
    return Row(
        estimator=name,
        gamma=None,
        aim="a relaxation's",
        standard_errors=None,
        bias=relative(found.mean(0) - true, size),
        predicted_bias=None,
        cosine=cosine(found.mean(0), true),
        variance=(found - found.mean(0)).square().sum(1).mean().item() / size,
        error=(found - true).square().sum(1).mean().item() / size,
        rollouts=1,
        seconds=seconds_a_row(strategy, batch, seed),
        verdict="biased by design",
    )


def log_likelihood(
    model: LanguageModel,
    strategy: Strategy,
    batch: Batch,
    encoded: Encoded,
    outputs: Float[Tensor, "M L"],
    uniforms: Float[Tensor, "M L"],
) -> tuple[Float[Tensor, " M"], Decision]:
    """Of the text, for each row of policy outputs, with boundaries drawn by these numbers; and the decisions."""
    ids = torch.zeros(len(outputs), dtype=torch.int64)
    many, copies = batch.rows(ids), Encoded(encoded.hidden[ids], encoded.early_logits[ids])
    decision = strategy.decide(Given(outputs), copies, many, uniforms)
    return -model.rollout(copies, decision, many).nll.sum(1), decision


def exact_of(
    model: LanguageModel, strategy: Strategy, batch: Batch, encoded: Encoded, outputs: Float[Tensor, "1 L"]
) -> Float[Tensor, " L"]:
    """The gradient of the expected log-likelihood over all segmentations, float64.

    ``sum_a p(a) L(a, p)``: through the probabilities of the draws, and through the log-likelihood where it depends on
    the probabilities forward too, as H-Net's average does. Its straight-through confidence, which is 1 forward, is none
    of it: that part is taken by finite differences of the forward pass.
    """
    free = (batch.mask & (torch.arange(batch.mask.shape[1]) > 0))[0]
    (places,) = free.nonzero(as_tuple=True)
    if len(places) > 15:
        raise ValueError(f"{len(places)} bytes have too many segmentations; at most 15")
    number = torch.arange(2 ** len(places))
    cut: Bool[Tensor, "N L"] = torch.zeros(len(number), len(free), dtype=torch.bool)
    cut[:, places] = (number[:, None] >> torch.arange(len(places)) & 1).bool()
    # Numbers that force the cut, whatever the probability: 0 is below every one, 1 below none.
    forced = 1.0 - cut.float()

    @torch.no_grad()
    def costs(at: Float[Tensor, "1 L"]) -> Float[Tensor, " N"]:
        parts = [
            log_likelihood(model, strategy, batch, encoded, at.expand(len(part), -1), part)[0].double()
            for part in forced.split(1024)
        ]
        return torch.cat(parts)

    leaf = outputs[0].double().clone().requires_grad_()
    yes = torch.sigmoid(leaf)
    odds = torch.where(cut, yes, 1 - yes).where(free, 1.0).prod(1)
    (gradient,) = torch.autograd.grad(odds @ costs(outputs), leaf)
    step = 1e-2
    fixed = odds.detach()
    for place in places.tolist():
        moved = torch.zeros_like(outputs)
        moved[0, place] = step
        gradient[place] += (fixed @ (costs(outputs + moved) - costs(outputs - moved))) / (2 * step)
    return gradient


def lively_model(strategy: Strategy, seed: int) -> LanguageModel:
    """Random weights, larger where a fresh model has none: boundaries matter to it, and the policy has opinions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LanguageModel(MODEL, strategy)
        with torch.no_grad():
            for head in (model.unet.head, model.unet.early_head):
                head.linear.weight.mul_(10)
            model.unet.token_norm.weight.mul_(3)
            torch.manual_seed(seed + 1)  # the same policy whatever else was drawn before
            for name, each in model.policy.named_parameters():
                if name.startswith("policy.linear"):
                    each.normal_(std=0.4 * 16)
                elif name.startswith("outer.weight"):
                    each.mul_(10)
    return model.eval()


def text_batch_with_mark(text: bytes) -> Batch:
    """One document, whole, whose mark counts."""
    batch = text_batch(text, torch.device("cpu"))
    return replace(batch, mask=torch.ones_like(batch.mask))


def seconds_a_row(strategy: Strategy, batch: Batch, seed: int) -> float:
    """The median of some training steps on copies of the text, backward included, by the row."""
    model = lively_model(strategy, seed)
    rows = batch.rows(torch.zeros(TIMED_ROWS, dtype=torch.int64))
    length, times = batch.mask.shape[1], []
    for step in range(TIMED_STEPS + 1):
        uniforms = draw_uniforms(seed, step, strategy.rollouts, TIMED_ROWS, length, torch.device("cpu"))
        began = time.perf_counter()
        objective(model, strategy, rows, uniforms, 0.1)[0].backward()
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[TIMED_STEPS // 2] / TIMED_ROWS


def largest_standard_errors(samples: Float[Tensor, "M *N"], aim: Float[Tensor, "*N"]) -> float:
    """How many standard errors the mean of the samples is off, where it is furthest; infinite where nothing varies."""
    error = samples.std(0) / math.sqrt(len(samples))
    off = (samples.mean(0) - aim).abs()
    # Where every sample is the same, rounding is all that may lie between it and its aim.
    certain = torch.where(off > 1e-6 + 1e-4 * aim.abs(), math.inf, 0.0)
    return torch.where(error > 1e-9, off / error.clamp(min=1e-9), certain).max().item()


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two gradients."""
    return torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0).item()


def relative(difference: Tensor, size: float) -> float:
    """The norm of a difference over that of the gradient, whose square is given."""
    return math.sqrt(difference.square().sum().item() / size)

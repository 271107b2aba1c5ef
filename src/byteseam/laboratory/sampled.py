"""Every gradient estimator on a trained model and real text, where segmentations can only be sampled.

A pool of segmentations of some held-out rows is drawn and scored once. One half gives the reference, the mean of many
leave-one-out estimates with its own standard error; from the other half each estimator draws its rollouts. Estimates
come from the training code (`byteseam.laboratory.enumeration.estimates`). They are compared byte by byte (with
respect to the policy's raw outputs) and as what the optimiser gets (with respect to the policy's parameters).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from byteseam.data.batches import Batches
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.laboratory.enumeration import Segmentations, estimates
from byteseam.laboratory.exact import PAPER, SCORE_FUNCTIONS, Given
from byteseam.laboratory.timing import TimedStep, ratio, step_seconds
from byteseam.language_model import LanguageModel
from byteseam.model.pooling import MeanPooling
from byteseam.rl.losses import bernoulli_entropy, masked_mean
from byteseam.strategies import Gumbel, ScoreFunction
from byteseam.strategies.score_function import Learned
from byteseam.strategies.value import ValueHead
from byteseam.trained import Trained
from byteseam.training.loop import to_device
from byteseam.training.objective import learning_rows
from byteseam.training.precision import Precision
from byteseam.types import DOCUMENT_MARK, Batch, Encoded

GROUP = 64
"""Rollouts that are compared with each other in one estimate of the reference."""

ROWS_AT_ONCE = 256
"""Segmentations of one forward pass."""

MOST_TRIALS = 128
"""Estimates of each estimator: their mean error is then known to a few percent."""

GUMBEL_TRIALS = 32
TIMED_ROUNDS = 7

ESTIMATORS: dict[str, dict[str, Any]] = {
    **SCORE_FUNCTIONS,
    "early exit, leave-one-out of 8": {"baseline": "leave_one_out", "samples": 8},
    "leave-one-out of 2, a quarter of the rows": {"baseline": "leave_one_out", "samples": 2, "sample_rows": 0.25},
    "leave-one-out of 4, a quarter of the rows": {"baseline": "leave_one_out", "samples": 4, "sample_rows": 0.25},
    "leave-one-out of 4, an eighth of the rows": {"baseline": "leave_one_out", "samples": 4, "sample_rows": 0.125},
    "leave-one-out of 8, an eighth of the rows": {"baseline": "leave_one_out", "samples": 8, "sample_rows": 0.125},
}
"""By name, settings of `ScoreFunction`."""

VALUE_BATCHES, VALUE_STEPS, VALUE_LEARNING_RATE = 8, 400, 3e-3
"""Other held-out batches that the learned value is fitted on, and how."""

Bar = Callable[[int, int], None]
"""(done, in all)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One estimator at one discount. Errors and biases are squared or plain distances over the reference's norm."""

    estimator: str
    gamma: float
    trials: int
    error_bytes: float
    """Squared error of one estimate, byte by byte, over the squared norm of the reference."""
    error: float
    """The same of the policy's parameters: what the optimiser gets."""
    cosine: float
    """Of one estimate with the reference, on average; parameters."""
    bias: float
    """Distance of the estimates' mean from the reference over its norm; parameters."""
    bias_noise: float
    """What that distance would be on average without any bias: noise of the mean and of the reference."""
    milliseconds: float
    """A whole training step, median."""
    against_paper: float | None
    """Error (parameters) times seconds, over the paper's estimator's with the same discount; medians within rounds."""
    against_paper_bytes: float | None
    """The same with the error by bytes."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The gradient at one discount, from many rollouts."""

    gamma: float
    taps: Float[Tensor, "B L w"]
    parameters: Float[Tensor, " P"]
    squared: tuple[float, float]
    """Squared norms (bytes, parameters), less what noise adds to them."""
    noise: tuple[float, float]
    """Squared standard errors of the same."""

    @property
    def error(self) -> tuple[float, float]:
        """Relative squared error (bytes, parameters): how well the reference itself is known."""
        return (self.noise[0] / self.squared[0], self.noise[1] / self.squared[1])


@dataclass(frozen=True, slots=True)
class Laboratory:
    """A trained model, rows of held-out text, and many segmentations of each."""

    trained: Trained
    strategy: ScoreFunction
    policy: Learned
    batch: Batch
    tables: list[Segmentations]
    others: list[Batch]
    """Further rows, which a learned value is fitted on."""
    seed: int

    @staticmethod
    def open(trained: Trained, corpus: Corpus, rows: int, rollouts: int, seed: int, bar: Bar) -> "Laboratory":
        """Draw the pool.

        Raises:
            UserError: if the run's strategy is not `ScoreFunction`, or the text is shorter than a row.
        """
        strategy = trained.strategy
        if not isinstance(strategy, ScoreFunction):
            raise UserError(
                f"{trained.checkpoint} was trained with the strategy {type(strategy).name}; its gradient is no "
                "score-function estimate: give a run of score_function"
            )
        policy = trained.model.policy
        assert isinstance(policy, Learned)
        batches = Batches(corpus, length_bytes=trained.config.training.length_bytes, seed=seed)
        device = trained.precision.device
        batch = to_device(batches.batch(0, rows), device)
        generator = torch.Generator().manual_seed(seed)
        tables = draw_segmentations(
            trained.model, strategy, batch, rollouts, generator=generator, precision=trained.precision, bar=bar
        )
        others = [to_device(batches.batch(number, rows), device) for number in range(1, VALUE_BATCHES + 1)]
        return Laboratory(trained, replace(strategy, policy_weight=1.0), policy, batch, tables, others, seed)

    @property
    def half(self) -> int:
        """Segmentations of a row that the reference is made of; the rest is for the estimators."""
        return len(self.tables[0].boundary) // 2 // GROUP * GROUP

    @property
    def entropy(self) -> float:
        """Of the policy, nats a free decision."""
        taps = torch.stack([table.taps for table in self.tables])
        boundary = torch.stack([table.boundary[0] for table in self.tables])
        logits = self.policy.policy.log_odds_given(taps, boundary, self.batch.document_ids)
        return masked_mean(bernoulli_entropy(logits), torch.cat([table.free for table in self.tables])).item()

    def reference(self, gamma: float) -> Reference:
        """The mean over groups of leave-one-out estimates, from the first half of the pool."""
        strategy = replace(self.strategy, gamma=gamma, baseline="leave_one_out", samples=GROUP, sample_rows=1.0)
        number = torch.arange(self.half).view(-1, GROUP)
        found = self.estimates(strategy, self.policy, number[..., None].expand(-1, -1, len(self.tables)))
        parameters = self.parameters(found)
        count = len(found)
        noise = (
            (found.var(0).sum() / count).item(),
            (parameters.var(0).sum() / count).item(),
        )
        taps, mean = found.mean(0), parameters.mean(0)
        squared = (
            max(taps.square().sum().item() - noise[0], 1e-30),
            max(mean.square().sum().item() - noise[1], 1e-30),
        )
        return Reference(gamma, taps, mean, squared, noise)

    def rows(
        self, gammas: list[float], only: Callable[[str], bool] = lambda name: True
    ) -> Iterator[tuple[Reference, list[Row]]]:
        """The table, one discount after the other."""
        times = self.times([name for name in (*ESTIMATORS, *self.gumbels()) if only(name) or name == PAPER])
        gumbel = {name: self.gumbel_estimates(strategy) for name, strategy in self.gumbels().items() if only(name)}
        for gamma in gammas:
            reference = self.reference(gamma)
            found = {
                name: self.compare(name, self.drawn(settings, gamma), reference, times)
                for name, settings in ESTIMATORS.items()
                if only(name) or name == PAPER
            }
            found |= {name: self.compare(name, samples, reference, times) for name, samples in gumbel.items()}
            paper = found[PAPER]
            rows = [
                replace(
                    row,
                    against_paper=row.error / paper.error * ratio(times[name], times[PAPER]),
                    against_paper_bytes=row.error_bytes / paper.error_bytes * ratio(times[name], times[PAPER]),
                )
                for name, row in found.items()
                if only(name)
            ]
            yield reference, rows

    def drawn(self, settings: dict[str, Any], gamma: float) -> Float[Tensor, "M B L w"]:
        """Estimates of the whole batch's gradient by one estimator, from the second half of the pool.

        Where only some rows get rollouts, they are drawn anew for each estimate, and stand for the others.
        """
        strategy = replace(self.strategy, **{"sample_rows": 1.0, **settings, "gamma": gamma})
        policy = self.policy
        if strategy.baseline == "value":
            policy = Learned(self.policy.policy, self.fitted_value(strategy))
        rows, number = len(self.tables), torch.arange(self.half, len(self.tables[0].boundary))
        count = min(MOST_TRIALS, len(number) // strategy.rollouts)
        drawn = number[: count * strategy.rollouts].view(count, strategy.rollouts, 1).expand(-1, -1, rows)
        found = self.estimates(strategy, policy, drawn)
        taken = len(learning_rows(strategy, rows))
        if taken < rows:
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.rand(count, rows, generator=generator).argsort(1)
            # Ranks below `taken` are the rows that are drawn.
            weight = (order.argsort(1) < taken).double() * (rows / taken)
            found = found * weight.to(found.device)[:, :, None, None]
        return found

    def estimates(
        self, strategy: ScoreFunction, policy: Learned, drawn: Int[Tensor, "M K B"]
    ) -> Float[Tensor, "M B L w"]:
        """Many estimates by number of segmentation."""
        rows = torch.arange(len(self.tables))
        if strategy.needs_returns:
            return torch.stack([estimates(policy, strategy, self.tables, rows, each) for each in drawn])
        found = []
        # Rows do not see each other, so that several estimates fit into one call; not all, for memory's sake.
        for part in drawn.split(max(1, 512 // (len(rows) * strategy.rollouts))):
            together = part.transpose(0, 1).flatten(1)
            each = estimates(policy, strategy, self.tables, rows.repeat(len(part)), together)
            found.append(each.unflatten(0, (len(part), len(rows))))
        return torch.cat(found)

    def parameters(self, taps: Float[Tensor, "M B L w"]) -> Float[Tensor, "M P"]:
        """The gradients with respect to the policy's parameters that belong to those of its raw outputs."""
        policy = self.policy.policy
        found = []
        with torch.enable_grad():
            out = policy.taps(torch.cat([table.encoded.hidden for table in self.tables]))
            for part in taps.to(out).split(ROWS_AT_ONCE):
                gradients = torch.autograd.grad(
                    out, list(policy.parameters()), part, retain_graph=True, is_grads_batched=True
                )
                found.append(torch.cat([each.flatten(1) for each in gradients], dim=1))
        return torch.cat(found).double()

    def compare(
        self, name: str, found: Float[Tensor, "M B L w"], reference: Reference, times: dict[str, list[float]]
    ) -> Row:
        """One row of the table; what compares it with the paper's is still missing."""
        parameters = self.parameters(found)
        off = parameters.mean(0) - reference.parameters
        noise = parameters.var(0).sum().item() / len(found) + reference.noise[1]
        return Row(
            estimator=name,
            gamma=reference.gamma,
            trials=len(found),
            # The reference's own error is in these distances, and taken out.
            error_bytes=relative_error(found, reference.taps, reference.noise[0], reference.squared[0]),
            error=relative_error(parameters, reference.parameters, reference.noise[1], reference.squared[1]),
            cosine=torch.cosine_similarity(parameters, reference.parameters[None], dim=1).mean().item(),
            bias=math.sqrt(off.square().sum().item() / reference.squared[1]),
            bias_noise=math.sqrt(noise / reference.squared[1]),
            milliseconds=1000 * sorted(times[name])[len(times[name]) // 2],
            against_paper=None,
            against_paper_bytes=None,
        )

    def fitted_value(self, strategy: ScoreFunction) -> ValueHead:
        """A learned value after some hundred steps on other text of the same kind: what training would make of it."""
        model, precision = self.trained.model, self.trained.precision
        generator = torch.Generator().manual_seed(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            value = ValueHead(self.trained.config.model.width, strategy.value_width).to(precision.device)
        seen = []
        for batch in self.others:
            tables = draw_segmentations(model, strategy, batch, 1, generator=generator, precision=precision)
            hidden = torch.cat([table.encoded.hidden for table in tables])
            early = torch.cat([table.early_nll for table in tables])
            free = torch.cat([table.free for table in tables])
            boundary, nll = (torch.cat([getattr(table, name) for table in tables]) for name in ("boundary", "nll"))
            seen.append((hidden, early, boundary, free, strategy.returns(nll, early, batch.document_ids), batch))
        optimiser = torch.optim.Adam(value.parameters(), lr=VALUE_LEARNING_RATE)
        gamma = float(strategy.gamma) if not isinstance(strategy.gamma, tuple) else 1.0
        with torch.enable_grad():
            for number in range(VALUE_STEPS):
                hidden, early, boundary, free, returns, batch = seen[number % len(seen)]
                predicted = value(hidden, early, boundary, batch.document_ids, gamma)
                masked_mean((predicted - returns).square(), free).backward()
                optimiser.step()
                optimiser.zero_grad()
        return value

    def gumbels(self) -> dict[str, Gumbel]:
        """Straight-through estimators that this model can take: tokens must be means, decisions without history."""
        if not isinstance(self.trained.model.pooling, MeanPooling) or self.strategy.history > 1:
            return {}
        rate = self.strategy.bytes_per_token
        return {
            f"Gumbel, straight-through, temperature {temperature:g}": Gumbel(
                bytes_per_token=rate, temperature=temperature
            )
            for temperature in (0.5, 1.0)
        }

    def gumbel_estimates(self, strategy: Gumbel) -> Float[Tensor, "M B L w"]:
        """What relaxed draws from the run's policy back-propagate: an estimate of the undiscounted gradient."""
        model, policy, batch = self.trained.model, self.policy.policy, self.batch
        encoded = together([table.encoded for table in self.tables])
        generator = torch.Generator().manual_seed(self.seed)
        found = []
        for _ in range(GUMBEL_TRIALS):
            taps = torch.stack([table.taps for table in self.tables]).float().requires_grad_()
            uniforms = torch.rand(batch.mask.shape, generator=generator).to(taps.device)
            with torch.enable_grad(), self.trained.precision.autocast():
                decision = strategy.decide(Given(policy.squash(taps[..., 0])), encoded, batch, uniforms)
                likelihood = -model.rollout(encoded, decision, batch).nll.sum()
            (gradient,) = torch.autograd.grad(likelihood, taps)
            free = decision.free[..., None]
            found.append(gradient.where(free, torch.zeros_like(gradient)).double())
        return torch.stack(found)

    def times(self, names: list[str]) -> dict[str, list[float]]:
        """Seconds of training steps by estimator, side by side."""
        config = self.trained.config
        strategies = {
            name: self.gumbels()[name]
            if name in self.gumbels()
            else replace(self.strategy, **{"sample_rows": 1.0, **ESTIMATORS[name]})
            for name in names
        }
        steps = {name: TimedStep(replace(config, strategy=each), self.batch) for name, each in strategies.items()}
        return step_seconds(steps, TIMED_ROUNDS)


@torch.no_grad()
def draw_segmentations(
    model: LanguageModel,
    strategy: ScoreFunction,
    batch: Batch,
    count: int,
    *,
    generator: torch.Generator,
    precision: Precision,
    bar: Bar = lambda done, total: None,
) -> list[Segmentations]:
    """So many segmentations of every row, drawn from the policy and scored; one table a row."""
    policy = model.policy
    assert isinstance(policy, Learned)
    rows, length = batch.mask.shape
    with precision.autocast():
        encoded = model.encode(batch)
        early = model.early_nll(encoded, batch)
    taps = policy.policy.taps(encoded.hidden)
    boundary, nll, free = [], [], torch.zeros_like(batch.mask)
    at_once = max(1, ROWS_AT_ONCE // rows)
    for first in range(0, count, at_once):
        copies = min(at_once, count - first)
        ids = torch.arange(rows).repeat(copies)
        many = Encoded(encoded.hidden[ids], encoded.early_logits[ids])
        uniforms = torch.rand(len(ids), length, generator=generator).to(batch.mask.device)
        with precision.autocast():
            decision = model.decide(strategy, many, batch.rows(ids), uniforms)
            rollout = model.rollout(many, decision, batch.rows(ids))
        boundary.append(decision.boundary.unflatten(0, (copies, rows)))
        nll.append(rollout.nll.double().unflatten(0, (copies, rows)))
        free = decision.free[:rows]
        bar(first + copies, count)
    cut, cost = torch.cat(boundary), torch.cat(nll)
    return [
        Segmentations(
            batch=batch.rows(slice(row, row + 1)),
            encoded=Encoded(encoded.hidden[row : row + 1], encoded.early_logits[row : row + 1]),
            early_nll=early[row : row + 1].double(),
            taps=taps[row].double(),
            free=free[row : row + 1],
            boundary=cut[:, row],
            nll=cost[:, row],
        )
        for row in range(rows)
    ]


def together(parts: list[Encoded]) -> Encoded:
    """Rows side by side."""
    return Encoded(torch.cat([each.hidden for each in parts]), torch.cat([each.early_logits for each in parts]))


def relative_error(found: Float[Tensor, "M *N"], aim: Float[Tensor, "*N"], noise: float, squared: float) -> float:
    """The mean squared distance from the aim, less the aim's own noise, over its squared norm."""
    return (((found - aim).square().flatten(1).sum(1).mean()).item() - noise) / squared


def row_texts(batch: Batch) -> list[bytes]:
    """The longest piece of a document in each row."""
    texts = []
    for row in batch.byte_ids.tolist():
        pieces: list[list[int]] = [[]]
        for each in row:
            if each == DOCUMENT_MARK:
                pieces.append([])
            else:
                pieces[-1].append(each)
        texts.append(bytes(max(pieces, key=len)))
    return texts

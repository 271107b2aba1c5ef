"""The training loop. It names no strategy."""

import math
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from byteseam.config import RunConfig
from byteseam.data.batches import Batches, evaluation_batches
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.evaluation.decide import Decider, calibrate
from byteseam.evaluation.evaluate import Evaluation, NotFiniteError, evaluate, rate_warning
from byteseam.evaluation.segment import segment
from byteseam.inspect import Record
from byteseam.language_model import LanguageModel
from byteseam.strategies import Strategy
from byteseam.training.checkpoint import State, checkpoints_of, prune_checkpoints, save_checkpoint
from byteseam.training.metrics import Window, peak_memory_bytes
from byteseam.training.objective import LOSS_TERMS, Metrics, draw_uniforms
from byteseam.training.optimiser import (
    Optimiser,
    clip,
    learning_rate_factor,
    model_parameters,
    policy_parameters,
    set_learning_rates,
)
from byteseam.training.precision import Precision
from byteseam.training.run import Run, append_json
from byteseam.training.step import accumulate_gradients
from byteseam.types import Batch


class Listener:
    """What the loop tells whoever watches; every method does nothing by default."""

    def step(self, state: State, summary: dict[str, float]) -> None:
        """After every step, with the averages since the last line of metrics."""

    def sample(self, state: State, record: Record) -> None:
        """The held-out passage as the model cuts it now."""

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        """Held-out text was scored."""

    def notice(self, message: str) -> None:
        """One sentence worth reading."""


@dataclass(slots=True)
class Trainer:
    """All that a training loop needs; made by `byteseam.training.start`."""

    config: RunConfig
    run: Run
    model: LanguageModel
    optimiser: Optimiser
    precision: Precision
    batches: Batches
    validation: Corpus
    passage: bytes
    state: State
    listener: Listener
    stopped_by: int | None = None
    """The signal that asked to stop."""

    @property
    def total_steps(self) -> int:
        """Steps that the budget pays for; at least one."""
        training = self.config.training
        return max(1, math.ceil(training.total_bytes / (training.batch_rows * training.length_bytes)))

    @property
    def progress(self) -> float:
        """Share of the training done, in [0, 1]."""
        return min(self.state.step / self.total_steps, 1.0)

    def train(self) -> Evaluation | None:
        """Train to the end of the budget; the final evaluation, or None if a signal asked to stop.

        Raises:
            UserError: at a loss or gradient that is not finite; the last good state is saved first.
        """
        window = Window.from_state(self.state.window)
        with stop_requests() as signal_asked:
            try:
                return self.take_steps(window, signal_asked)
            except NotFiniteError as error:
                raise self.last_words(error, window) from error

    def take_steps(self, window: Window, signal_asked: Callable[[], int | None]) -> Evaluation | None:
        """All steps that are left, and what is due between them."""
        if self.state.step == 0:
            self.show_sample()
        began, before = time.monotonic(), self.state.seconds
        finished_before = self.state.step >= self.total_steps
        while self.state.step < self.total_steps:
            self.take_step(window)
            self.state.seconds = before + time.monotonic() - began
            self.after_step(window)
            if (number := signal_asked()) and self.state.step < self.total_steps:
                self.stopped_by = number
                self.checkpoint(window)
                return None
        final = self.measure(max_bytes=None, written=finished_before)
        self.state.seconds = before + time.monotonic() - began
        self.checkpoint(window)
        return final

    def take_step(self, window: Window) -> None:
        """One optimiser step on the next batch."""
        training, state = self.config.training, self.state
        strategy = self.config.strategy.at(self.progress)
        batch = to_device(self.batches.batch(state.step, training.batch_rows), self.precision.device)
        uniforms = draw_uniforms(
            self.config.seed,
            state.step,
            strategy.rollouts,
            training.batch_rows,
            training.length_bytes,
            batch.mask.device,
        )
        set_learning_rates(self.optimiser, learning_rate_factor(state.bytes_seen + batch.mask.numel(), training))
        metrics = accumulate_gradients(self.model, strategy, batch, uniforms, training, self.precision)
        metrics["gradient_norm"] = once(clip(model_parameters(self.model), training.clip_gradient))
        if policy := policy_parameters(self.model):
            metrics["policy_gradient_norm"] = once(clip(policy, training.clip_policy_gradient))
        self.refuse_non_finite(metrics)
        self.optimiser.step()
        self.optimiser.zero_grad()
        window.add(metrics)
        state.step += 1
        state.bytes_seen += batch.mask.numel()
        state.window_bytes += batch.mask.numel()

    def refuse_non_finite(self, metrics: Metrics) -> None:
        """Stop before a broken update is applied, naming what broke."""
        names = [*LOSS_TERMS, *(name for name in ("gradient_norm", "policy_gradient_norm") if name in metrics)]
        finite = torch.isfinite(torch.stack([metrics[name][0].float().cpu() for name in names]))
        if not bool(finite.all()):
            broken = next(name for name, good in zip(names, finite.tolist(), strict=True) if not good)
            raise NotFiniteError(f"{broken} is not finite at step {self.state.step + 1}")

    def last_words(self, error: NotFiniteError, window: Window) -> UserError:
        """What to say when training broke. The state at hand is saved, unless it is broken; nothing is pruned."""
        self.optimiser.zero_grad()
        if self.broken_parameter() is None:
            self.save(window)
        good = checkpoints_of(self.run.checkpoints)
        return UserError(
            f"{error}; {f'the last good checkpoint is {good[-1]}' if good else 'there is no good checkpoint yet'}; "
            "lower training.learning_rate or training.clip_gradient and train again"
        )

    def broken_parameter(self) -> str | None:
        """The name of a parameter that is not finite."""
        parameters = self.model.named_parameters()
        return next((name for name, parameter in parameters if not bool(parameter.isfinite().all())), None)

    def after_step(self, window: Window) -> None:
        """Whatever is due: a line of metrics, a sample, an evaluation, a checkpoint."""
        training, state = self.config.training, self.state
        summary = window.summary()
        self.tell(self.listener.step, state, summary)
        if state.step % training.log_every_steps == 0:
            self.log(window, summary)
        per_step = training.batch_rows * training.length_bytes
        if due(state.bytes_seen, per_step, training.sample_every_bytes):
            self.show_sample()
        if due(state.bytes_seen, per_step, training.evaluate_every_bytes) and state.step < self.total_steps:
            self.measure(self.config.evaluation.max_bytes)
        if due(state.bytes_seen, per_step, training.checkpoint_every_bytes) and state.step < self.total_steps:
            self.checkpoint(window)

    def log(self, window: Window, summary: dict[str, float]) -> None:
        """Write a line of metrics and begin a new window."""
        state = self.state
        seconds = state.seconds - state.window_seconds
        record = {
            "kind": "train",
            "step": state.step,
            "bytes_seen": state.bytes_seen,
            "epoch": self.batches.epoch(state.step, self.config.training.batch_rows),
            "seconds": state.seconds,
            "bytes_per_second": state.window_bytes / seconds if seconds > 0 else None,
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "peak_memory_bytes": peak_memory_bytes(self.precision.device),
            **summary,
        }
        append_json(self.run.metrics_path, record)
        if summary.get("rate") is not None and (warning := self.rate_notice(summary["rate"])):
            self.tell(self.listener.notice, f"step {state.step}: {warning}")
        window.means.clear()
        state.window_bytes, state.window_seconds = 0, state.seconds

    def rate_notice(self, rate: float) -> str | None:
        """A warning about the rate, once the first tenth of training is over and if the strategy steers it."""
        strategy = self.config.strategy
        return rate_warning(rate, strategy.rate) if strategy.steered and self.progress > 0.1 else None

    def show_sample(self) -> None:
        """Cut the held-out passage, keep it, show it."""
        record = segment(
            self.model,
            self.config.strategy.at(self.progress),
            self.passage,
            name="held-out passage",
            length_bytes=self.config.training.length_bytes,
            decider=Decider("sample", seed=self.config.seed),
            precision=self.precision,
        )
        line = {"step": self.state.step, "bytes_seen": self.state.bytes_seen, "record": record.to_json()}
        append_json(self.run.samples_path, line)
        self.tell(self.listener.sample, self.state, record)

    def tell(self, listen: Callable[..., None], *news: Any) -> None:
        """Tell the listener. One that fails (its terminal may be gone) hears no more, and training goes on."""
        try:
            listen(*news)
        except (Exception, SystemExit) as error:  # rich leaves the program when its pipe breaks
            self.listener = Listener()
            text = f"training goes on unwatched: {type(error).__name__}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def measure(self, max_bytes: float | None, written: bool = False) -> Evaluation:
        """Score held-out text and write the line of metrics, unless that was done already."""
        evaluation = evaluate_corpus(
            self.model, self.config, self.config.strategy.at(self.progress), self.validation, self.precision, max_bytes
        )
        line: dict[str, Any] = {"kind": "evaluation", "step": self.state.step, "bytes_seen": self.state.bytes_seen}
        line |= {"seconds": self.state.seconds, "decide": self.config.evaluation.decide}
        if not written:
            append_json(self.run.metrics_path, line | finite(evaluation.to_dict()))
        self.tell(self.listener.evaluated, self.state, evaluation)
        return evaluation

    def checkpoint(self, window: Window) -> None:
        """Save the state at hand, and delete what is too old."""
        if broken := self.broken_parameter():
            raise NotFiniteError(f"{broken} is not finite after step {self.state.step}")
        self.save(window)
        prune_checkpoints(self.run.checkpoints, self.config.training.keep_checkpoints)

    def save(self, window: Window) -> None:
        """Write a checkpoint."""
        self.state.window = window.to_state()
        save_checkpoint(self.run.checkpoints, self.config, self.model, self.optimiser, self.state)


def evaluate_corpus(
    model: LanguageModel,
    config: RunConfig,
    strategy: Strategy,
    corpus: Corpus,
    precision: Precision,
    max_bytes: float | None,
    decider: Decider | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Evaluate on a corpus, by the configuration's way to decide unless another is given."""
    length = config.training.length_bytes
    if decider is None:
        decider = Decider(config.evaluation.decide, seed=config.seed)
        if decider.mode == "rate" and strategy.learned:
            held_out = scoring_batches(corpus, length, precision.device, config.evaluation.max_bytes)
            decider = calibrated(model, strategy, held_out, precision, strategy.rate, config.seed)
    batches = scoring_batches(corpus, length, precision.device, max_bytes)
    return evaluate(model, strategy, batches, decider, precision, progress)


def scoring_batches(
    corpus: Corpus, length_bytes: int, device: torch.device, max_bytes: float | None
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """`evaluation_batches` of a fair size, where the model is."""
    for batch, documents in evaluation_batches(corpus, length_bytes, max(1, 8192 // length_bytes), max_bytes):
        yield to_device(batch, device), documents.to(device)


def calibrated(
    model: LanguageModel,
    strategy: Strategy,
    held_out: Iterable[tuple[Batch, torch.Tensor]],
    precision: Precision,
    rate: float,
    seed: int,
) -> Decider:
    """The decider whose threshold gives this rate on held-out text, in the arithmetic that it will be used in."""
    with precision.autocast():
        threshold, _ = calibrate(model, strategy, [batch for batch, _ in held_out], rate)
    return Decider("rate", threshold, seed)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch where the model is."""
    if device.type == "cpu":
        return batch
    return Batch(*(getattr(batch, name).to(device) for name in ("byte_ids", "targets", "mask", "document_ids")))


def once(value: torch.Tensor) -> torch.Tensor:
    """A value as a metric that counts once."""
    return torch.stack((value.detach(), torch.ones_like(value)))


def due(bytes_seen: int, per_step: int, every: float) -> bool:
    """True if a multiple of `every` was passed in the last step."""
    return math.floor(bytes_seen / every) > math.floor((bytes_seen - per_step) / every)


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Without numbers that JSON cannot hold."""
    return {key: value for key, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """SIGINT and SIGTERM ask to stop after the step at hand; a second one stops at once. Yields: which one asked."""
    asked: int | None = None

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked is not None:
            raise KeyboardInterrupt
        asked = number

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, ask)
    except ValueError:
        pass  # not the main thread: whoever runs us there stops us some other way
    try:
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""What a training step costs, strategies side by side."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from byteseam.config import RunConfig
from byteseam.language_model import LanguageModel
from byteseam.training.objective import draw_uniforms
from byteseam.training.optimiser import build_optimiser
from byteseam.training.precision import choose_precision
from byteseam.training.start import build_model, default_device
from byteseam.training.step import accumulate_gradients
from byteseam.types import Batch

WARM_UP_ROUNDS = 2


class TimedStep:
    """A fresh model and its optimiser, whose steps on one batch are timed. It learns; nobody looks at what."""

    def __init__(self, config: RunConfig, batch: Batch, kind: type[LanguageModel] = LanguageModel) -> None:
        rows, length = batch.mask.shape
        strategy = config.strategy.settled(config.model, length)
        self.config, self.batch = replace(config, strategy=strategy), batch
        self.precision = choose_precision(config.training.precision, default_device())
        self.model = build_model(self.config, self.precision, kind)
        self.optimiser = build_optimiser(self.model, config.training)
        self.strategy = strategy.at(0.5)
        self.uniforms = draw_uniforms(0, 0, self.strategy.rollouts, rows, length, self.precision.device)

    def seconds(self) -> float:
        """Of one whole step: forward, backward, optimiser."""
        began = time.perf_counter()
        training = self.config.training
        accumulate_gradients(self.model, self.strategy, self.batch, self.uniforms, training, self.precision)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.precision.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began


def step_seconds(steps: Mapping[str, TimedStep], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step by name, one a round.

    Every round times each of them once, in turn, so that a machine that slows down slows all: compare within rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP_ROUNDS + rounds):
        for name, step in steps.items():
            seconds = step.seconds()
            if number >= WARM_UP_ROUNDS:
                times[name].append(seconds)
    return times


def ratio(times: list[float], reference: list[float]) -> float:
    """The median over rounds of the time against the reference's in the same round."""
    return statistics.median(own / other for own, other in zip(times, reference, strict=True))

"""One run of a comparison in a process of its own: ``python -m byteseam.comparison.worker OUT LABEL SEED``.

It trains or goes on training, measures, and writes the result last. ``--time`` in place of the seed: how fast it
trains, a number of bytes a second on standard output.
"""

import fcntl
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from byteseam.comparison.layout import Layout
from byteseam.comparison.measure import RunResult, measure
from byteseam.comparison.plan import Entry, Plan
from byteseam.config import ModelConfig
from byteseam.console import notice
from byteseam.errors import UserError
from byteseam.language_model import LanguageModel
from byteseam.strategies import Strategy
from byteseam.training.loop import Listener, Trainer
from byteseam.training.metrics import Window
from byteseam.training.optimiser import build_optimiser
from byteseam.training.run import write_atomically
from byteseam.training.start import build_model, resume_run, start_run
from byteseam.types import Batch, Decision, Encoded

WARM_UP_STEPS = 8
TIMED_STEPS = 24


def run(out: Path, label: str, seed: int) -> int:
    """Train and measure one run; exit code 128 + the signal that asked to stop."""
    layout = Layout(out)
    plan = layout.plan()
    with layout.log(plan.entry(label), seed).open("ab") as lock:
        # A killed comparison leaves its workers at work; the next one's wait here, and find the result.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return train_and_measure(layout, plan, plan.entry(label), seed)


def train_and_measure(layout: Layout, plan: Plan, entry: Entry, seed: int) -> int:
    """See `run`."""
    directory, result = layout.run(entry, seed), layout.result(entry, seed)
    known = RunResult.from_json(result.read_text(encoding="utf-8")) if result.exists() else None
    if known is None:
        config = plan.run_config(entry, seed)
        trainer = resume_run(directory, Says()) if directory.exists() else start_run(config, directory, Says())
        if trainer.state.step < trainer.total_steps and trainer.train() is None:
            return 128 + (trainer.stopped_by or 0)
    write_atomically(result, measure(directory, entry, seed, plan, known).to_json() + "\n")
    return 0


class Says(Listener):
    """Notices go to standard error, which is the run's log."""

    def notice(self, message: str) -> None:
        notice(message)


def timed(out: Path, label: str) -> float:
    """Bytes trained a second, after some steps to warm up; the run is thrown away.

    A strategy that learns to hold its rate is timed at that rate, not at the one it has in its first steps.
    """
    plan = Layout(out).plan()
    config = plan.run_config(plan.entry(label), plan.seeds[0])
    with tempfile.TemporaryDirectory() as scratch:
        trainer = start_run(config, Path(scratch) / "run", Says())
        if config.strategy.learned and config.strategy.steered:
            model = build_model(trainer.config, trainer.precision, AtTheRate)
            trainer = replace(trainer, model=model, optimiser=build_optimiser(model, config.training))
        for _ in range(WARM_UP_STEPS):
            step(trainer)
        began = time.perf_counter()
        for _ in range(TIMED_STEPS):
            step(trainer)
        seconds = time.perf_counter() - began
    return TIMED_STEPS * config.training.batch_rows * config.training.length_bytes / seconds


class AtTheRate(LanguageModel):
    """A model whose free boundaries are drawn at random, at the rate that its strategy steers to."""

    def __init__(self, config: ModelConfig, strategy: Strategy) -> None:
        super().__init__(config, strategy)
        self.generator = torch.Generator().manual_seed(0)

    def decide(self, strategy: Strategy, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """The strategy's decision, which costs what it costs, with other boundaries."""
        decision = super().decide(strategy, encoded, batch, uniforms)
        # Not the numbers at hand: they are constant where a strategy draws nothing.
        drawn = torch.rand(uniforms.shape, generator=self.generator).to(uniforms.device)
        return replace(decision, boundary=torch.where(decision.free, drawn < strategy.rate, decision.boundary))


def step(trainer: Trainer) -> None:
    """One optimiser step, and nothing of what is due between steps."""
    trainer.take_step(Window())


def main(arguments: list[str]) -> int:
    """Exit code 2 and one sentence for what a user can mend."""
    out, label, seed = arguments
    try:
        if seed == "--time":
            print(timed(Path(out), label))
            return 0
        return run(Path(out), label, int(seed))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    from byteseam.threads import calm_threads

    calm_threads()
    sys.exit(main(sys.argv[1:]))

"""One run of a comparison in a process of its own: ``python -m byteseam.comparison.worker OUT LABEL SEED``.

It trains or goes on training, measures, and writes the result last. ``--time`` in place of the seed: how fast it
trains, a number of bytes a second on standard output.
"""

import fcntl
import sys
import tempfile
import time
from pathlib import Path

from byteseam.comparison.layout import Layout
from byteseam.comparison.measure import RunResult, measure
from byteseam.comparison.plan import Entry, Plan
from byteseam.console import notice
from byteseam.errors import UserError
from byteseam.training.loop import Listener, Trainer
from byteseam.training.metrics import Window
from byteseam.training.run import write_atomically
from byteseam.training.start import resume_run, start_run

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
    """Bytes trained a second, after some steps to warm up; the run is thrown away."""
    plan = Layout(out).plan()
    config = plan.run_config(plan.entry(label), plan.seeds[0])
    with tempfile.TemporaryDirectory() as scratch:
        trainer = start_run(config, Path(scratch) / "run", Says())
        for _ in range(WARM_UP_STEPS):
            step(trainer)
        began = time.perf_counter()
        for _ in range(TIMED_STEPS):
            step(trainer)
        seconds = time.perf_counter() - began
    return TIMED_STEPS * config.training.batch_rows * config.training.length_bytes / seconds


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

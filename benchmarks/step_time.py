"""What a training step costs: against fixed boundaries, and against the length of the row.

    python benchmarks/step_time.py [--repeats 7] [--threads 1]

Every repeat times each setting once, in turn, so that a machine that slows down slows all of them; ratios are medians
of the repeats' ratios. Rows x length is the same for every length.
"""

import argparse
import statistics
import time

import torch

from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.language_model import LanguageModel
from byteseam.training.objective import draw_uniforms
from byteseam.training.optimiser import Optimiser, build_optimiser
from byteseam.training.precision import choose_precision
from byteseam.training.step import accumulate_gradients
from byteseam.types import Batch


class Setting:
    """A model, its optimiser, and text-like rows: letters with white space every fifth byte or so."""

    def __init__(self, config: RunConfig, rows: int, length: int) -> None:
        self.config, self.rows, self.length = config, rows, length
        self.model = LanguageModel(config.model, config.strategy)
        self.optimiser: Optimiser = build_optimiser(self.model, config.training)
        self.precision = choose_precision(config.training.precision, torch.device("cpu"))
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(97, 123, (rows, length), generator=generator)
        ids[torch.rand(rows, length, generator=generator) < 0.2] = 32
        self.batch = Batch(ids, ids.roll(-1, 1), torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))

    def seconds(self) -> float:
        """One optimiser step."""
        began = time.perf_counter()
        strategy = self.config.strategy
        uniforms = draw_uniforms(0, 0, strategy.rollouts, self.rows, self.length, torch.device("cpu"))
        accumulate_gradients(self.model, strategy, self.batch, uniforms, self.config.training, self.precision)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return time.perf_counter() - began


def measure(settings: dict[str, Setting], repeats: int) -> dict[str, list[float]]:
    """Seconds of a step, setting by setting, in turn; two rounds of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in settings}
    for repeat in range(repeats + 2):
        for name, setting in settings.items():
            seconds = setting.seconds()
            if repeat >= 2:
                times[name].append(seconds)
    return times


def show(times: dict[str, list[float]], settings: dict[str, Setting], reference: str) -> None:
    """A Markdown table with ratios to the reference."""
    print("| setting | bytes/s (median) | time against the first, median (range) |\n|---|---|---|")
    for name, setting in settings.items():
        ratios = [own / other for own, other in zip(times[name], times[reference], strict=True)]
        speed = setting.rows * setting.length / statistics.median(times[name])
        print(f"| {name} | {speed:,.0f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="configs/laptop.toml")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = load(arguments.config)
    fixed = load(arguments.config, ["--strategy.name", "whitespace", "--strategy.rule", "whitespace"])
    paper = load(arguments.config, ["--strategy.baseline", "batch"])
    rows, length = config.training.batch_rows, config.training.length_bytes
    settings = {
        "white space given": Setting(fixed, rows, length),
        "paper's estimator": Setting(paper, rows, length),
        "leave-one-out, 4 rollouts on a quarter of the rows": Setting(config, rows, length),
    }
    show(measure(settings, arguments.repeats), settings, next(iter(settings)))
    print()
    total = 8192
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    # One rollout a row, so that few rows do not get more of them than many.
    settings = {f"{total // size} x {size}": Setting(paper, total // size, size) for size in lengths}
    show(measure(settings, arguments.repeats), settings, next(iter(settings)))


if __name__ == "__main__":
    main()

"""What a training step costs: against fixed boundaries, with every strategy, and against the length of the row.

    python benchmarks/step_time.py [--repeats 7] [--threads 1]

Every repeat times each setting once, in turn, so that a machine that slows down slows all of them; ratios are medians
of the repeats' ratios. Rows x length is the same for every length.
"""

import argparse
import statistics
import time
from dataclasses import replace

import torch

from byteseam.comparison.worker import AtTheRate
from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.data.batches import Batches
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.language_model import LanguageModel
from byteseam.strategies import STRATEGIES
from byteseam.training.loop import Listener
from byteseam.training.objective import draw_uniforms
from byteseam.training.optimiser import Optimiser, build_optimiser
from byteseam.training.precision import choose_precision
from byteseam.training.start import build_model, fit_strategy
from byteseam.training.step import accumulate_gradients


class Setting:
    """A model, its optimiser, and rows of the configuration's training text.

    Strategies that learn to hold their rate have the boundaries of that rate (`AtTheRate`).
    """

    def __init__(self, config: RunConfig, rows: int, length: int) -> None:
        strategy = config.strategy.settled(config.model, length)
        self.config, self.rows, self.length = replace(config, strategy=strategy), rows, length
        corpus = resolve(config.data)
        batches = Batches(Corpus.open(corpus, "train"), length_bytes=length)
        self.batch = batches.batch(0, rows)
        self.precision = choose_precision(config.training.precision, torch.device("cpu"))
        kind = AtTheRate if strategy.learned and strategy.steered else LanguageModel
        self.model = build_model(self.config, self.precision, kind)
        fit_strategy(self.config, self.model, batches.corpus, Listener())
        self.optimiser: Optimiser = build_optimiser(self.model, config.training)

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
    """The three tables."""
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
    settings = {
        name: Setting(load(arguments.config, ["--strategy.name", name]), rows, length)
        for name in sorted(STRATEGIES, key=lambda name: name != "score_function")
    }
    show(measure(settings, arguments.repeats), settings, "score_function")
    print()
    total = 8192
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    # One rollout a row, so that few rows do not get more of them than many.
    settings = {f"{total // size} x {size}": Setting(paper, total // size, size) for size in lengths}
    show(measure(settings, arguments.repeats), settings, next(iter(settings)))


if __name__ == "__main__":
    main()

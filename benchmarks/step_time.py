"""What a training step costs: against fixed boundaries, with every strategy, and against the length of the row.

    python benchmarks/step_time.py [--repeats 7] [--threads 1]

Every repeat times each setting once, in turn, so that a machine that slows down slows all of them; ratios are medians
of the repeats' ratios. Rows x length is the same for every length.
"""

import argparse
import statistics

import torch

from byteseam.comparison.worker import AtTheRate
from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.data.batches import Batches
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.laboratory.timing import TimedStep, step_seconds
from byteseam.language_model import LanguageModel
from byteseam.strategies import STRATEGIES
from byteseam.training.loop import Listener
from byteseam.training.start import fit_strategy


def setting(config: RunConfig, rows: int, length: int) -> TimedStep:
    """Steps on rows of the configuration's training text.

    Strategies that learn to hold their rate have the boundaries of that rate (`AtTheRate`).
    """
    batches = Batches(Corpus.open(resolve(config.data), "train"), length_bytes=length)
    kind = AtTheRate if config.strategy.learned and config.strategy.steered else LanguageModel
    timed = TimedStep(config, batches.batch(0, rows), kind)
    fit_strategy(timed.config, timed.model, batches.corpus, Listener())
    return timed


def show(times: dict[str, list[float]], settings: dict[str, TimedStep], reference: str) -> None:
    """A Markdown table with ratios to the reference."""
    print("| setting | bytes/s (median) | time against the first, median (range) |\n|---|---|---|")
    for name, timed in settings.items():
        ratios = [own / other for own, other in zip(times[name], times[reference], strict=True)]
        speed = timed.batch.mask.numel() / statistics.median(times[name])
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
        "white space given": setting(fixed, rows, length),
        "paper's estimator": setting(paper, rows, length),
        "leave-one-out, 4 rollouts on a quarter of the rows": setting(config, rows, length),
    }
    show(step_seconds(settings, arguments.repeats), settings, next(iter(settings)))
    print()
    settings = {
        name: setting(load(arguments.config, ["--strategy.name", name]), rows, length)
        for name in sorted(STRATEGIES, key=lambda name: name != "score_function")
    }
    show(step_seconds(settings, arguments.repeats), settings, "score_function")
    print()
    total = 8192
    lengths = (256, 512, 1024, 2048, 4096, 8192)
    # One rollout a row, so that few rows do not get more of them than many.
    settings = {f"{total // size} x {size}": setting(paper, total // size, size) for size in lengths}
    show(step_seconds(settings, arguments.repeats), settings, next(iter(settings)))


if __name__ == "__main__":
    main()

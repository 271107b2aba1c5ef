"""``byteseam demo``: the main job on real text, from nothing to a passage cut by a model of one's own."""

import argparse
from pathlib import Path

HELP = "train the laptop configuration on English prose and watch tokens form"
TAKES_OVERRIDES = True

CONFIG = "laptop.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--out", metavar="RUN", type=Path, help="the run's directory (runs/demo, or demo-2 and so on)")
    parser.add_argument("--config", metavar="CONFIG.toml", type=Path, help="another configuration than laptop.toml")


def run(args: argparse.Namespace) -> int:
    """Train, then show what was learned and what to try next.

    Raises:
        UserError: if no corpus can be had, or what training raises.
    """
    from dataclasses import replace

    from byteseam.commands.prepare import progress_bar
    from byteseam.commands.train import finish
    from byteseam.commands.watch import Watcher
    from byteseam.config_file import load
    from byteseam.console import notice
    from byteseam.data.cache import DEMO_CORPORA, resolve, resolve_with_fallback
    from byteseam.evaluation.decide import Decider
    from byteseam.evaluation.segment import segment
    from byteseam.inspect import legend, render_terminal
    from byteseam.training.start import start_run

    config = load(args.config or default_config(), args.overrides)
    with Watcher() as watcher:
        with progress_bar("fetching and preparing the corpus") as bar:
            data = config.data
            if data.source == DEMO_CORPORA[0]:
                fraction = data.validation_fraction
                name, directory, message = resolve_with_fallback(validation_fraction=fraction, progress=bar)
                if message:
                    notice(f"note: {message}")
                    config = replace(config, data=replace(data, source=name))
            else:
                directory = resolve(data, progress=bar)
            trainer = start_run(config, args.out or fresh_directory(Path("runs")), watcher, data=directory)
        notice(f"training on {config.data.source}; the passage below is held out, its cuts are drawn by the policy")
        code = finish(trainer, watcher, as_json=False)
    run_directory = trainer.run.directory
    if code:
        return code
    record = segment(
        trainer.model,
        trainer.config.strategy.at(1.0),
        trainer.passage,
        name="held-out passage",
        length_bytes=config.training.length_bytes,
        decider=Decider("sample", seed=config.seed),
        precision=trainer.precision,
    )
    print(f"\n{render_terminal(record)}\n{legend()}\n")
    print(
        "try next:\n"
        f"  byteseam segment {run_directory} 'any text you like'\n"
        f"  byteseam segment {run_directory} --decide threshold --format html --out tokens.html\n"
        f"  byteseam generate {run_directory} --prompt 'It was a dark'\n"
        f"  byteseam eval {run_directory}\n"
        f"  byteseam train {args.config or default_config()} --data.source python-stdlib"
    )
    return 0


def default_config() -> Path:
    """The laptop configuration: of the checkout, or as installed with the package."""
    package = Path(__file__).resolve().parent.parent
    places = (Path("configs"), package.parent.parent / "configs", package / "configs")
    return next((place / CONFIG for place in places if (place / CONFIG).is_file()), places[0] / CONFIG)


def fresh_directory(parent: Path) -> Path:
    """``demo``, or the first of ``demo-2``, ``demo-3``... that does not exist."""
    number = 1
    while (path := parent / ("demo" if number == 1 else f"demo-{number}")).exists():
        number += 1
    return path

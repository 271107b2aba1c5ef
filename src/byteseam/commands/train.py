"""``byteseam train``: a configuration, or a run to go on with, to a trained run."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.evaluation.evaluate import Evaluation
    from byteseam.training.loop import Trainer

HELP = "train a model; override any setting with --TABLE.KEY VALUE"
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG.toml", type=Path, nargs="?", help="the run's configuration")
    parser.add_argument("--out", metavar="RUN", type=Path, help="the run's directory; it must not exist")
    parser.add_argument("--resume", metavar="RUN", type=Path, help="go on with a run, as if never interrupted")
    parser.add_argument("--quiet", action="store_true", help="no progress and no samples, only notices")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(args: argparse.Namespace) -> int:
    """Train; exit code 0 at the end of the budget, 130 or 143 when SIGINT or SIGTERM asked to stop.

    Raises:
        UserError: for a bad configuration, run, or corpus, or a loss that is not finite.
    """
    from byteseam.errors import UserError

    if args.resume is not None and (args.config is not None or args.overrides or args.out is not None):
        raise UserError("--resume RUN goes on with the run's own configuration; leave CONFIG, --out and overrides out")
    if args.resume is None and args.config is None:
        raise UserError("byteseam train needs a CONFIG.toml, or --resume RUN; configs/laptop.toml is a good start")
    from byteseam.commands.prepare import progress_bar
    from byteseam.commands.watch import Watcher
    from byteseam.config_file import load
    from byteseam.training.start import resume_run, start_run, wall_clock_name

    with Watcher(quiet=args.quiet) as watcher:
        with progress_bar("preparing the corpus") as bar:
            if args.resume is not None:
                trainer = resume_run(args.resume, watcher, progress=bar)
            else:
                config = load(args.config, args.overrides)
                directory = args.out or Path("runs") / wall_clock_name(config)
                trainer = start_run(config, directory, watcher, progress=bar)
        return finish(trainer, watcher, as_json=args.json)


def finish(trainer: "Trainer", watcher: Any, *, as_json: bool) -> int:
    """Run the training and report."""
    from byteseam.console import stdout_json

    watcher.begin(trainer)
    evaluation = trainer.train()
    watcher.end()
    stopped = evaluation is None
    answer = {
        "run": str(trainer.run.directory),
        "finished": not stopped,
        "steps": trainer.state.step,
        "bytes_seen": trainer.state.bytes_seen,
        "epochs": trainer.batches.epoch(trainer.state.step, trainer.config.training.batch_rows),
        "seconds": trainer.state.seconds,
        "evaluation": None if evaluation is None else evaluation.to_dict(),
    }
    if as_json:
        stdout_json(answer)
    elif evaluation is None:
        print(f"stopped at step {trainer.state.step}; continue with: byteseam train --resume {trainer.run.directory}")
    else:
        print("\n".join(summary_lines(trainer, evaluation)))
    sys.stdout.flush()
    return 128 + trainer.stopped_by if trainer.stopped_by else 0


def summary_lines(trainer: "Trainer", evaluation: "Evaluation") -> list[str]:
    """What a finished training has to say."""
    from byteseam.commands.evaluate import report_lines, target_of

    seen = trainer.batches.epoch(trainer.state.step, trainer.config.training.batch_rows)
    lines = report_lines(evaluation, target_of(trainer.config.strategy))
    lines.append(
        f"read                {trainer.state.bytes_seen:,} bytes ({seen:.2f} times the corpus) "
        f"in {trainer.state.seconds:,.0f} s"
    )
    lines.append(f"run                 {trainer.run.directory}")
    return lines

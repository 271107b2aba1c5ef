"""``byteseam eval``: bits per byte of held-out text, the rate, and where the boundaries fall."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byteseam.evaluation.evaluate import Evaluation
    from byteseam.strategies import Strategy

HELP = "score held-out text: bits per byte, bytes per token, where the boundaries fall"


def add_decide_arguments(parser: argparse.ArgumentParser) -> None:
    """The ways to decide boundaries, alike for every command."""
    parser.add_argument(
        "--decide",
        choices=("sample", "threshold", "rate"),
        default=None,
        help="draw boundaries as in training, where p exceeds a threshold, or at a rate calibrated on held-out text",
    )
    parser.add_argument("--threshold", type=float, metavar="P", help="for --decide threshold (0.5)")
    parser.add_argument(
        "--bytes-per-token", type=float, metavar="N", help="for --decide rate (what the run was trained for)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of whatever is drawn at random (0)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="a run, or one of its checkpoints")
    parser.add_argument("--data", metavar="SOURCE", help="score the held-out split of other data")
    parser.add_argument("--max-bytes", type=float, metavar="N", help="score about so many bytes (all)")
    add_decide_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Evaluate and report.

    Raises:
        UserError: for a bad run, checkpoint, source or number.
    """
    from byteseam.commands.prepare import progress_bar
    from byteseam.console import notice, stdout_json
    from byteseam.errors import UserError
    from byteseam.evaluation.evaluate import rate_warning
    from byteseam.trained import Trained
    from byteseam.training.loop import evaluate_corpus

    if args.max_bytes is not None and not args.max_bytes >= 1:
        raise UserError(f"--max-bytes is {args.max_bytes:g}, but at least 1 byte is scored")
    trained = Trained.open(args.run)
    corpus = trained.corpus(args.data)
    mode = args.decide or trained.config.evaluation.decide
    decider = trained.decider(mode, args.threshold, args.bytes_per_token, args.seed)
    with progress_bar("scoring") as bar:
        done = 0
        total = min(corpus.total_bytes, args.max_bytes or corpus.total_bytes)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar(done, int(total))

        evaluation = evaluate_corpus(
            trained.model, trained.config, trained.strategy, corpus, trained.precision, args.max_bytes, decider, advance
        )
    threshold = decider.threshold if mode != "sample" and trained.strategy.learned else None
    wanted = 1 / args.bytes_per_token if args.bytes_per_token else trained.strategy.rate
    warning = rate_warning(evaluation.rate, wanted) if trained.strategy.steered else None
    if args.json:
        answer = {"run": str(args.run), "step": trained.state.step, "decide": mode, "threshold": threshold}
        stdout_json(answer | evaluation.to_dict() | {"warning": warning})
    else:
        print("\n".join(report_lines(evaluation, args.bytes_per_token or target_of(trained.strategy))))
    if warning:
        notice(f"note: {warning}")
    return 0


def target_of(strategy: "Strategy") -> float | None:
    """The bytes per token that a strategy steers to; None for rules, whose rate is what the text makes of it."""
    return strategy.bytes_per_token if strategy.steered else None


def report_lines(evaluation: "Evaluation", target_bytes_per_token: float | None) -> list[str]:
    """An evaluation for people."""
    interval = evaluation.interval
    spread = f"  (95 % over documents: {interval.low:.3f} to {interval.high:.3f})" if interval else ""
    target = f"  (target {target_bytes_per_token:.2f})" if target_bytes_per_token else ""
    share = evaluation.agreement.values()

    def percent(name: str) -> str:
        value = share[name]
        return "    -" if value != value else f"{100 * value:5.1f} %"

    lines = [
        f"bits per byte       {evaluation.bits_per_byte:.3f}{spread}",
        f"early exit          {evaluation.early_bits_per_byte:.3f}",
        f"bytes per token     {evaluation.bytes_per_token:.2f}{target}",
        f"white space that is a boundary     {percent('whitespace_boundary_share')}",
        f"word ends that carry a boundary    {percent('word_end_share')}  (on the last byte or the space after it)",
        f"boundaries on white space          {percent('boundary_whitespace_share')}",
        f"boundaries at a word end           {percent('boundary_word_end_share')}",
        f"boundaries inside a character      {percent('boundary_inside_character_share')}",
        f"policy entropy      {evaluation.policy_entropy_nats:.3f} nats",
        f"scored              {evaluation.bytes_scored:,} bytes of {evaluation.documents:,} documents",
    ]
    return lines

"""``byteseam gradcheck``: every gradient estimator against the exact gradient, by enumerating all segmentations."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.laboratory.exact import Row

HELP = "check every gradient estimator against the exact gradient of a short text; exit code 1 if one is wrong"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--text", default="not to be", metavar="TEXT", help="at most 12 bytes ('not to be')")
    parser.add_argument("--draws", type=int, default=20_000, metavar="N", help="estimates drawn of each (20000)")
    parser.add_argument("--only", default="", metavar="WORD", help="only estimators whose name has this in it")
    parser.add_argument("--seed", type=int, default=3, help="of the model and the draws (3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Check and report.

    Raises:
        UserError: for a text that is too long or empty, too few draws, or a word that no estimator has.
    """
    from byteseam.commands.prepare import progress_bar
    from byteseam.console import stdout_json
    from byteseam.errors import UserError
    from byteseam.laboratory.exact import GAMMAS, SCORE_FUNCTIONS, STRAIGHT_THROUGH, check_all

    text = args.text.encode()
    if not 2 <= len(text) <= 12:
        raise UserError(f"--text has {len(text)} bytes, but every segmentation is scored: give 2 to 12")
    if args.draws < 100:
        raise UserError(f"--draws is {args.draws}, but a mean of fewer than 100 says nothing")
    names = [name for name in (*SCORE_FUNCTIONS, *STRAIGHT_THROUGH) if args.only in name]
    if not names:
        raise UserError(f"--only {args.only!r} is in the name of no estimator: {', '.join(SCORE_FUNCTIONS)}")
    total = sum(len(GAMMAS) if name in SCORE_FUNCTIONS else 1 for name in names)
    rows: list[Row] = []
    with progress_bar("checking") as bar:
        for row in check_all(text, args.draws, args.seed % 2**32, lambda name: args.only in name):
            rows.append(row)
            bar(len(rows), total)
    wrong = [row for row in rows if row.verdict == "WRONG"]
    if args.json:
        stdout_json({"text": args.text, "draws": args.draws, "wrong": len(wrong), "estimators": describe(rows)})
    else:
        print_table(rows)
    return 1 if wrong else 0


def describe(rows: "list[Row]") -> list[dict[str, Any]]:
    """Plain numbers, with errors against the paper's estimator at the same discount."""
    from dataclasses import asdict

    return [
        asdict(row) | {"error_rollouts": row.error_rollouts, "error_seconds_against_paper": against_paper(row, rows)}
        for row in rows
    ]


def against_paper(row: "Row", rows: "list[Row]") -> float | None:
    """Error times seconds, over that of the paper's estimator with the same discount; None without it."""
    from byteseam.laboratory.exact import PAPER

    gamma = 1.0 if row.gamma is None else row.gamma
    paper = [other for other in rows if other.estimator == PAPER and other.gamma == gamma]
    return row.error * row.seconds / (paper[0].error * paper[0].seconds) if paper else None


def print_table(rows: "list[Row]") -> None:
    """For people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from byteseam.console import stdout_width

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("estimator", no_wrap=True)
    for title in (
        "gamma",
        "estimates",
        "z",
        "bias",
        "predicted",
        "cosine",
        "variance",
        "error",
        "* rollouts",
        "* s / paper",
        "verdict",
    ):
        table.add_column(title, justify="right" if title != "verdict" else "left", no_wrap=title == "verdict")
    for row in rows:
        paper = against_paper(row, rows)
        table.add_row(
            row.estimator,
            "" if row.gamma is None else f"{row.gamma:g}",
            row.aim,
            "" if row.standard_errors is None else f"{row.standard_errors:.1f}",
            f"{row.bias:.2f}",
            "" if row.predicted_bias is None else f"{row.predicted_bias:.2f}",
            f"{row.cosine:.2f}",
            f"{row.variance:.1f}",
            f"{row.error:.1f}",
            f"{row.error_rollouts:.1f}",
            "" if paper is None else f"{paper:.2f}",
            row.verdict,
        )
    Console(highlight=False, markup=False, width=stdout_width(150)).print(table)
    print(
        "z: standard errors between the mean of the draws and what the estimator aims at, at the byte where it is\n"
        "furthest. Bias: distance from the true gradient over its norm; predicted: by the discount alone. Cosine: of\n"
        "the mean with the true gradient. Variance and error: of one estimate, over the squared norm of the gradient;\n"
        "the error also times rollouts, and times the seconds of a training step against the paper's estimator."
    )

"""``byteseam estimators``: every gradient estimator on a trained model and real text."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.inspect import Record
    from byteseam.laboratory.sampled import Laboratory, Reference, Row
    from byteseam.trained import Trained

HELP = "measure every gradient estimator on a trained model and real text: error, bias, cost"

WELL_KNOWN = 0.1
"""Relative squared error of the reference (parameters) above which the table says so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="a run of score_function, or one of its checkpoints")
    parser.add_argument(
        "--rollouts", type=int, default=1024, metavar="N", help="segmentations drawn of each row (1024)"
    )
    parser.add_argument("--rows", type=int, metavar="N", help="rows of held-out text (as many as in a training batch)")
    parser.add_argument("--gammas", metavar="LIST", help="discounts, commas between (the run's own, and 0.99)")
    parser.add_argument("--only", default="", metavar="WORD", help="only estimators whose name has this in it")
    parser.add_argument("--data", metavar="SOURCE", help="held-out text of another corpus than the run's")
    parser.add_argument(
        "--advantages",
        metavar="FILE",
        type=Path,
        help="also measure what a boundary after each byte of the rows is worth; written there, as a page if the name "
        "ends with .html, else as records in JSON lines",
    )
    parser.add_argument("--seed", type=int, default=0, help="of rows and draws (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and report.

    Raises:
        UserError: for a bad run, numbers out of range, or a word that no estimator has.
    """
    from byteseam.commands.prepare import progress_bar
    from byteseam.commands.segment import write_whole
    from byteseam.console import stdout_json
    from byteseam.errors import UserError
    from byteseam.inspect import render_html
    from byteseam.laboratory.sampled import ESTIMATORS, GROUP, Laboratory
    from byteseam.trained import Trained

    if args.rollouts < 4 * GROUP:
        raise UserError(
            f"--rollouts is {args.rollouts}, but a reference and its error take at least {4 * GROUP}; raise it"
        )
    if args.rows is not None and args.rows < 2:
        raise UserError(f"--rows is {args.rows}, but the batch-relative baseline compares rows: give 2 or more")
    trained = Trained.open(args.run)
    gammas = parse_gammas(args.gammas, trained)
    if not any(args.only in name for name in ESTIMATORS) and args.only not in "Gumbel, straight-through":
        raise UserError(f"--only {args.only!r} is in the name of no estimator: {', '.join(ESTIMATORS)}")
    rows = args.rows or max(2, trained.config.training.batch_rows)
    with progress_bar("drawing") as bar:
        laboratory = Laboratory.open(
            trained, trained.corpus(args.data), rows, args.rollouts, args.seed % 2**32, lambda a, b: bar(a, b)
        )
    found: list[tuple[Reference, list[Row]]] = []
    with progress_bar("estimating") as bar:
        for each in laboratory.rows(gammas, lambda name: args.only in name):
            found.append(each)
            bar(len(found), len(gammas))
    records = [] if args.advantages is None else advantage_records(laboratory, args.seed)
    if args.advantages is not None:
        page = args.advantages.suffix == ".html"
        text = render_html(records, "byteseam: what a boundary is worth") if page else ""
        write_whole(args.advantages, text or "".join(record.to_json() + "\n" for record in records))
    if args.json:
        stdout_json(describe(laboratory, found, records))
    else:
        print_tables(laboratory, found, records)
    return 0


def parse_gammas(text: str | None, trained: "Trained") -> list[float]:
    """What was asked for; else the run's own discount and 0.99."""
    from byteseam.errors import UserError

    if text is None:
        own = getattr(trained.strategy, "gamma", 0.99)
        return list(dict.fromkeys((own, 0.99)))
    try:
        gammas = [float(part) for part in text.split(",")]
    except ValueError:
        gammas = []
    if not gammas or not all(0 <= gamma <= 1 for gamma in gammas):
        raise UserError(f"--gammas {text!r} is no list of discounts in [0, 1]; write 0.9,0.99")
    return list(dict.fromkeys(gammas))


def advantage_records(laboratory: "Laboratory", seed: int) -> "list[Record]":
    """The rows with what a boundary after each byte is worth, at the run's discount."""
    from byteseam.commands.prepare import progress_bar
    from byteseam.commands.segment import FLIPS
    from byteseam.evaluation.segment import segment
    from byteseam.laboratory.advantages import with_advantages
    from byteseam.laboratory.sampled import row_texts

    trained, texts, records = laboratory.trained, row_texts(laboratory.batch), []
    with progress_bar("flipping") as bar:
        for number, text in enumerate(texts):
            record = segment(
                trained.model,
                trained.strategy,
                text,
                name=f"row {number}",
                length_bytes=trained.config.training.length_bytes,
                decider=trained.decider("sample", None, None, seed),
                precision=trained.precision,
            )
            records.append(with_advantages(trained, record, FLIPS, seed))
            bar(number + 1, len(texts))
    return records


def describe(
    laboratory: "Laboratory", found: "list[tuple[Reference, list[Row]]]", records: "list[Record]"
) -> dict[str, Any]:
    """Plain numbers."""
    from dataclasses import asdict

    answer: dict[str, Any] = {
        "checkpoint": str(laboratory.trained.checkpoint),
        "rows": len(laboratory.tables),
        "rollouts": len(laboratory.tables[0].boundary),
        "policy_entropy_nats": laboratory.entropy,
        "discounts": [
            {
                "gamma": reference.gamma,
                "reference_rollouts": laboratory.half,
                "reference_error_bytes": reference.error[0],
                "reference_error": reference.error[1],
                "estimators": [asdict(row) for row in rows],
            }
            for reference, rows in found
        ],
    }
    if records:
        from byteseam.laboratory.advantages import by_kind

        answer["advantages"] = [asdict(kind) for kind in by_kind(records)]
    return answer


def print_tables(laboratory: "Laboratory", found: "list[tuple[Reference, list[Row]]]", records: "list[Record]") -> None:
    """For people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from byteseam.console import stdout_width

    console = Console(highlight=False, markup=False, width=stdout_width(150))
    print(
        f"{laboratory.trained.checkpoint}: {len(laboratory.tables)} rows of held-out text, "
        f"{len(laboratory.tables[0].boundary)} segmentations of each, policy entropy {laboratory.entropy:.3f} nats"
    )
    for reference, rows in found:
        known = reference.error[1]
        hint = "" if known <= WELL_KNOWN else "; that is much: raise --rollouts"
        print(
            f"\ngamma {reference.gamma:g}; reference: {laboratory.half} rollouts, itself off by "
            f"{known:.2g} (by bytes {reference.error[0]:.2g}) of its squared norm{hint}"
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("estimator", no_wrap=True)
        for title in ("error", "by bytes", "cosine", "bias", "(noise)", "ms a step", "error * s / paper", "by bytes"):
            table.add_column(title, justify="right")
        for row in rows:
            table.add_row(
                row.estimator,
                f"{row.error:.4g}",
                f"{row.error_bytes:.4g}",
                f"{row.cosine:.3f}",
                f"{row.bias:.2f}",
                f"({row.bias_noise:.2f})",
                f"{row.milliseconds:.0f}",
                "" if row.against_paper is None else f"{row.against_paper:.3g}",
                "" if row.against_paper_bytes is None else f"{row.against_paper_bytes:.3g}",
            )
        console.print(table)
    print(
        "Error: of one estimate, squared, over the squared norm of the reference; of the gradient of the policy's\n"
        "parameters, and of that of its outputs byte by byte. Cosine: of one estimate with the reference. Bias: the\n"
        "distance of the estimates' mean from the reference over its norm, beside what noise alone makes of it.\n"
        "Gumbel's estimates know no discount. Times are of a whole training step, estimators in turn."
    )
    if records:
        print_kinds(console, records)


def print_kinds(console: Any, records: "list[Record]") -> None:
    """What a boundary is worth, by kind of byte."""
    from rich import box
    from rich.table import Table

    from byteseam.laboratory.advantages import by_kind

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("a boundary after", no_wrap=True)
    for title in ("bytes", "probability", "is worth, nats", "standard error"):
        table.add_column(title, justify="right")
    for kind in by_kind(records):
        probability = "" if kind.probability is None else f"{kind.probability:.3f}"
        table.add_row(kind.name, str(kind.bytes), probability, f"{kind.advantage_nats:+.4f}", f"{kind.error_nats:.4f}")
    console.print(table)

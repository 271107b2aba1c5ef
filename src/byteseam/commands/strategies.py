"""``byteseam strategies``: every way of placing boundaries, what it learns, what holds its rate, its source."""

import argparse
from typing import Any

HELP = "list the strategies: what each learns, what holds its rate, its source; settings with --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, with all settings")


def run(args: argparse.Namespace) -> int:
    """List."""
    from byteseam.console import stdout_json

    rows = describe()
    if args.json:
        stdout_json({"strategies": rows})
    else:
        print_table(rows)
        print("Choose one with --strategy.name NAME, or several with byteseam compare.")
    return 0


def describe() -> list[dict[str, Any]]:
    """One row a strategy, in the order of the table."""
    from dataclasses import asdict

    from byteseam.strategies import STRATEGIES

    return [
        {
            "name": name,
            "learns": strategy.learns,
            "rate_control": strategy.rate_control,
            "source": strategy.source,
            "settings": asdict(strategy()),
        }
        for name, strategy in STRATEGIES.items()
    ]


def print_table(rows: list[dict[str, Any]]) -> None:
    """For people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("strategy", no_wrap=True)
    for title in ("learns", "rate", "source"):
        table.add_column(title)
    for row in rows:
        table.add_row(row["name"], row["learns"], row["rate_control"], row["source"])
    Console(highlight=False, markup=False).print(table)

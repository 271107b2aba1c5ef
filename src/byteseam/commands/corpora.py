"""``byteseam corpora``: the named corpora, and what is missing to use them."""

import argparse
from typing import Any

HELP = "list the named corpora with size, licence and what is missing to use them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """List; nothing is fetched."""
    from byteseam.console import stdout_json
    from byteseam.data.archives import cache_directory

    corpora = _corpora()
    if args.json:
        stdout_json({"cache": cache_directory(), "corpora": corpora})
    else:
        _print_table(corpora)
        print(f"Use one as a source: byteseam prepare NAME OUT. Downloads are kept in {cache_directory()}.")
    return 0


def _corpora() -> list[dict[str, Any]]:
    from dataclasses import asdict

    from byteseam.data.recipes import RECIPES, status

    rows = []
    for recipe in RECIPES.values():
        now = status(recipe)
        archive = recipe.archive
        rows.append(
            {
                "name": recipe.name,
                "description": recipe.description,
                "licence": recipe.licence,
                "text_bytes": recipe.text_bytes,
                "archive": None if archive is None else {**asdict(archive), "tool": archive.tool},
                "cached": now.cached,
                "usable": now.usable,
                "missing": list(now.missing),
            }
        )
    return rows


def _print_table(corpora: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("corpus", "text", "licence", "ready", "what it is"):
        table.add_column(title, justify="right" if title == "text" else "left", no_wrap=title == "corpus")
    for row in corpora:
        table.add_row(
            row["name"], f"{row['text_bytes'] / 1e6:.1f} MB", row["licence"], _readiness(row), row["description"]
        )
    Console(highlight=False, markup=False).print(table)


def _readiness(row: dict[str, Any]) -> str:
    """In a few words: is it here, and if not, what does it take?"""
    if row["cached"]:
        return "in the cache"
    if row["archive"] is None:
        return "in Python"
    lacking = [what for what in row["missing"] if what != "download"]
    if lacking:
        return "no " + ", no ".join(lacking)
    return f"download of {row['archive']['size_bytes'] / 1e6:.0f} MB by {row['archive']['tool']}"

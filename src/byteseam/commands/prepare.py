"""``byteseam prepare``: any source to a directory of memory-mapped shards."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.data.documents import Progress

HELP = "turn text, code or any bytes into memory-mapped shards with a held-out split"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a file, folder, glob, .jsonl[.gz|.zst], .parquet, hf:NAME[:CONFIG], a named corpus, or - for stdin",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the directory to make; it must not exist")
    parser.add_argument(
        "--text-field", default="text", metavar="NAME", help="column of the text in jsonl, parquet and datasets (text)"
    )
    parser.add_argument("--hf-split", default="train", metavar="NAME", help="split of a Hugging Face dataset (train)")
    parser.add_argument(
        "--validation-fraction", type=float, default=0.05, metavar="X", help="share of the documents held out (0.05)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prepare and report.

    Raises:
        UserError: see `byteseam.data.prepare.prepare`.
    """
    from byteseam.console import stdout_json
    from byteseam.data.cache import find_source
    from byteseam.data.prepare import prepare

    source = find_source(args.source, text_field=args.text_field, hf_split=args.hf_split)
    with progress_bar(f"preparing {args.source}") as progress:
        manifest = prepare(source, args.out, validation_fraction=args.validation_fraction, progress=progress)
    answer = {"out": args.out, **manifest.summary()}
    if args.json:
        stdout_json(answer)
    else:
        print("\n".join(_report(answer)))
    return 0


@contextmanager
def progress_bar(title: str) -> "Iterator[Progress]":
    """A bar of bytes on stderr, and the function that moves it; shown on a terminal only."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from byteseam.console import stderr_console

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = stderr_console()
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int | None) -> None:
            # Expected sizes may be approximate: a bar never stands at more than all.
            bar.update(task, completed=done, total=None if total is None else max(total, done))

        yield advance


def _report(answer: dict[str, Any]) -> Iterator[str]:
    yield f"read        {_printable(answer['description'])}"
    for split in ("train", "validation"):
        counts = answer[split]
        yield f"{split:<11} {counts['documents']:>12,} documents {counts['bytes']:>18,} bytes"
    yield f"split by    {answer['split_rule']}"
    for kind in ("malformed", "skipped"):
        items = answer[kind]
        if items["count"]:
            yield f"{kind:<11} {items['count']:>12,}"
        for name, reason in items["named"]:
            yield f"            {_printable(name)}: {_printable(reason)}"
        if items["count"] > len(items["named"]):
            yield "            ..."
    if answer["empty"]:
        yield f"empty       {answer['empty']:>12,} documents left out"
    yield f"wrote       {answer['out']}"


def _printable(text: str) -> str:
    """Names come from strangers: control characters are spelled out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)

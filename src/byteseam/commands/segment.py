"""``byteseam segment``: any bytes to tokens, as colour, JSON lines, HTML or SVG."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

HELP = "cut text or any bytes into learned tokens: colour, JSON lines, HTML or SVG"


FLIPS = 4
"""Drawn segmentations in which every decision is flipped, unless another number is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    from byteseam.commands.evaluate import add_decide_arguments

    parser.add_argument("run", metavar="RUN", type=Path, help="a run, or one of its checkpoints")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="a text, a file, or - for standard input (held-out text)"
    )
    parser.add_argument("--file", metavar="FILE", type=Path, help="read this file, whatever TEXT could mean")
    parser.add_argument(
        "--format", choices=("colour", "jsonl", "html", "svg"), default="colour", help="what comes out (colour)"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write there instead of to standard output")
    add_decide_arguments(parser)
    parser.add_argument(
        "--advantages",
        nargs="?",
        type=int,
        const=FLIPS,
        metavar="N",
        help=f"also measure what a boundary after each byte is worth, in N drawn segmentations ({FLIPS}); "
        "coloured by --format html",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: the record of the text")


def run(args: argparse.Namespace) -> int:
    """Segment and show.

    Raises:
        UserError: for a bad run or number, or a file that cannot be read or written.
    """
    from byteseam.commands.prepare import progress_bar
    from byteseam.errors import UserError
    from byteseam.evaluation.segment import segment
    from byteseam.inspect import render_html, render_jsonl, render_svg, render_terminal
    from byteseam.laboratory.advantages import with_advantages
    from byteseam.trained import Trained

    if args.json and args.format != "colour":
        raise UserError(f"--json prints the record; leave out --format {args.format}")
    if args.advantages is not None and args.advantages < 2:
        raise UserError(f"--advantages is {args.advantages}, but an error takes at least 2 segmentations; raise it")
    trained = Trained.open(args.run)
    name, data = read_text(args, trained.checkpoint)
    mode = args.decide or trained.config.evaluation.decide
    record = segment(
        trained.model,
        trained.strategy,
        data,
        name=name,
        length_bytes=trained.config.training.length_bytes,
        decider=trained.decider(mode, args.threshold, args.bytes_per_token, args.seed),
        precision=trained.precision,
    )
    if args.advantages is not None:
        with progress_bar("flipping") as bar:
            record = with_advantages(trained, record, args.advantages, args.seed, bar)
    if args.json:
        answer = record.to_json() + "\n"
    elif args.format == "jsonl":
        answer = render_jsonl(record)
    elif args.format == "html":
        answer = render_html([record], f"byteseam: {name}")
    elif args.format == "svg":
        answer = render_svg(record)
    else:
        answer = render_terminal(record, colour="none" if args.out else "auto") + "\n"
    if args.out is None:
        sys.stdout.write(answer if answer.endswith("\n") or not answer else answer + "\n")
    else:
        write_whole(args.out, answer)
    return 0


def read_text(args: argparse.Namespace, checkpoint: Path) -> tuple[str, bytes]:
    """(name, bytes) of what was asked for: a file if there is one of that name, else the text itself."""
    from byteseam.errors import UserError

    if args.file is not None and args.text is not None:
        raise UserError("give a TEXT or a --file, not both")
    if args.text == "-":
        return "standard input", sys.stdin.buffer.read()
    if args.file is None and args.text is None:
        passage = checkpoint.parent.parent / "passage.bin"
        if not passage.is_file():
            raise UserError("there is no TEXT: give a text, a file, or - for standard input")
        return "held-out passage", passage.read_bytes()
    path = args.file
    if path is None:
        path = Path(args.text)
        try:
            found = path.is_file()
        except (OSError, ValueError):
            found = False
        if not found:
            return "text", os.fsencode(args.text)
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    from byteseam.errors import UserError

    partial = path.parent / f".{path.name}.{os.getpid()}.partial"
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink()

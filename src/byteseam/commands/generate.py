"""``byteseam generate``: continue a prompt."""

import argparse
import os
import sys
from pathlib import Path

HELP = "continue a prompt, byte by byte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    from byteseam.commands.evaluate import add_decide_arguments

    parser.add_argument("run", metavar="RUN", type=Path, help="a run, or one of its checkpoints")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what to continue; - reads standard input")
    parser.add_argument("--max-bytes", type=int, default=200, metavar="N", help="at most so many bytes (200)")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0 takes the likeliest byte (0.8)")
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest bytes only")
    parser.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest bytes of mass P only")
    add_decide_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Generate; streams to the terminal.

    Raises:
        UserError: for a bad run or number.
    """
    check(args.temperature >= 0, f"--temperature is {args.temperature:g}, but it is at least 0")
    check(args.max_bytes >= 1, f"--max-bytes is {args.max_bytes}, but it is at least 1")
    check(args.top_k is None or args.top_k >= 1, f"--top-k is {args.top_k}, but it is at least 1")
    check(args.top_p is None or 0 < args.top_p <= 1, f"--top-p is {args.top_p}, but it lies in (0, 1]")
    from byteseam.console import stdout_json
    from byteseam.generation.generate import Sampling, generate
    from byteseam.text import Utf8Stream
    from byteseam.trained import Trained

    trained = Trained.open(args.run)
    prompt = sys.stdin.buffer.read() if args.prompt == "-" else os.fsencode(args.prompt)
    mode = args.decide or trained.config.evaluation.decide
    decider = trained.decider(mode, args.threshold, args.bytes_per_token, args.seed)
    decoder = Utf8Stream()
    produced, tokens = bytearray(), 0
    if not args.json:
        sys.stdout.write(decoder.feed(prompt))
    for byte, boundary in generate(
        trained.model,
        trained.strategy,
        prompt,
        max_bytes=args.max_bytes,
        length_bytes=trained.config.training.length_bytes,
        decider=decider,
        sampling=Sampling(args.temperature, args.top_k, args.top_p, args.seed),
        precision=trained.precision,
    ):
        produced.append(byte)
        tokens += boundary
        if not args.json:
            sys.stdout.write(decoder.feed(bytes([byte])))
            sys.stdout.flush()
    if args.json:
        stdout_json(
            {
                "prompt": prompt.decode("utf-8", "replace"),
                "text": bytes(produced).decode("utf-8", "replace"),
                "hex": produced.hex(),
                "bytes": len(produced),
                "tokens": tokens,
            }
        )
    else:
        sys.stdout.write(decoder.flush() + "\n")
    return 0


def check(good: bool, sentence: str) -> None:
    """Refuse a bad number.

    Raises:
        UserError: the sentence.
    """
    from byteseam.errors import UserError

    if not good:
        raise UserError(sentence)

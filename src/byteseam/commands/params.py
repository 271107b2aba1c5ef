"""``byteseam params``: how large a configuration's model is, and what a byte costs, part by part."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.config import RunConfig

HELP = "count the parameters and FLOPs per byte of a configuration, part by part; nothing is read or trained"
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG.toml", type=Path, help="the run's configuration")
    parser.add_argument("--rate", type=float, metavar="R", help="count at so many tokens a byte (the target)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Count and report.

    Raises:
        UserError: for a bad configuration or rate.
    """
    from byteseam.config_file import load
    from byteseam.console import stdout_json
    from byteseam.errors import UserError

    if args.rate is not None and not 0 < args.rate <= 1:
        raise UserError(f"--rate is {args.rate:g}, but tokens per byte lie in (0, 1]")
    answer = {"config": args.config, **describe(load(args.config, args.overrides), args.rate)}
    if args.json:
        stdout_json(answer)
    else:
        print("\n".join(report_lines(answer)))
    return 0


def count_parameters(config: "RunConfig") -> dict[str, int]:
    """Numbers that are learned: part (`byteseam.model.flops.PARTS`) -> count. The model takes no memory."""
    import torch

    from byteseam.language_model import LanguageModel
    from byteseam.model.flops import PARTS

    with torch.device("meta"):
        model = LanguageModel(config.model, config.strategy)
    counts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        part = name.removeprefix("unet.").partition(".")[0]
        counts["token_model" if part == "token_norm" else part] += parameter.numel()
    return counts


def describe(given: "RunConfig", rate: float | None = None) -> dict[str, Any]:
    """The answer: whole numbers by part with their totals, and what they hold for."""
    from dataclasses import asdict, replace

    from byteseam.model.flops import forward_flops, token_model_share, training_flops

    training = given.training
    strategy = given.strategy.settled(given.model, training.length_bytes)
    config = replace(given, strategy=strategy)
    rate = strategy.rate if rate is None else rate
    micro_batches = training.batch_rows // (training.micro_batch_rows or training.batch_rows)
    columns = {
        "parameters": count_parameters(config),
        "forward_flops_per_byte": forward_flops(config.model, strategy, training.length_bytes, rate),
        "training_flops_per_byte": training_flops(config.model, strategy, training.length_bytes, micro_batches, rate),
    }
    return {
        **{name: {"total": sum(by_part.values()), "by_part": by_part} for name, by_part in columns.items()},
        "token_model_share": {name: token_model_share(by_part) for name, by_part in columns.items()},
        "strategy": {"name": type(strategy).name, **asdict(strategy)},
        "rate": rate,
        "bytes_per_token": 1 / rate,
        "length_bytes": training.length_bytes,
        "rollouts": strategy.rollouts,
        "rollout_rows": strategy.rollout_rows,
        "micro_batches": micro_batches,
    }


def report_lines(answer: dict[str, Any]) -> list[str]:
    """The answer for people: a table of parts and columns."""
    columns = [answer[name] for name in ("parameters", "forward_flops_per_byte", "training_flops_per_byte")]
    rows = [(part.replace("_", " "), [column["by_part"][part] for column in columns]) for part in columns[0]["by_part"]]
    totals = [column["total"] for column in columns]
    lines = [f"{'':11} {'parameters':>22}   {'FLOPs/byte forward':>22}   {'FLOPs/byte training':>22}"]
    for title, numbers in [*rows, ("total", totals)]:
        cells = [f"{number:>14,} {100 * number / total:5.1f} %" for number, total in zip(numbers, totals, strict=True)]
        lines.append(f"{title:11} " + "   ".join(cells))
    lines += [
        "",
        f"counted at {answer['bytes_per_token']:g} bytes per token, in rows of {answer['length_bytes']:,} bytes",
    ]
    step = "forward and, at twice its cost, backward"
    if answer["rollouts"] > 1:
        step += f", {answer['rollouts'] - 1} more rollouts forward on {100 * answer['rollout_rows']:g} % of the rows"
    if answer["micro_batches"] > 1:
        step += f", a pass for the statistics of {answer['micro_batches']} micro-batches"
    lines.append(f"training: {step}")
    return lines

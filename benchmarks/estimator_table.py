"""The runs of benchmarks/estimators.sh as Markdown: python benchmarks/estimator_table.py OUT."""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

FOUND = 0.9
"""Share of white space with a sampled boundary that counts as words found."""


def read(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(training lines, evaluation lines) of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [x for x in lines if x["kind"] == "train"], [x for x in lines if x["kind"] == "evaluation"]


def first_found(evaluations: list[dict[str, Any]], key: str) -> str:
    """``bytes / seconds`` at the first evaluation past `FOUND`."""
    for line in evaluations:
        if line[key] >= FOUND:
            return f"{line['bytes_seen'] / 1e6:.2f} MB / {line['seconds']:.0f} s"
    return "never"


def spread(values: list[float]) -> str:
    """Mean and the range over seeds."""
    mean = statistics.mean(values)
    return f"{mean:.3f} ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else f"{mean:.3f}"


def main() -> None:
    """Print a table a corpus and run, then means over seeds."""
    groups: dict[tuple[str, str], list[list[dict[str, Any]]]] = defaultdict(list)
    print(
        "| run | bits/byte at 0.5 / 1.0 / end | bytes/token | white space cut at 0.5 / 1.0 / end | "
        "entropy (nats) at end | 0.9 of white space after | seconds |\n|---|---|---|---|---|---|---|"
    )
    for run in sorted(path.parent for path in Path(sys.argv[1]).glob("*/metrics.jsonl")):
        train, evaluations = read(run)
        if not evaluations or not train or run.name.count("-") < 2:
            continue  # not (yet) a run of the series: CORPUS-STRATEGY-SEED
        corpus, strategy, _ = run.name.rsplit("-", 2)
        groups[corpus, strategy].append(evaluations)
        marks = [min(evaluations, key=lambda line: abs(line["bytes_seen"] - mark)) for mark in (0.5e6, 1e6, 9e9)]
        end = marks[-1]
        bits = " / ".join(f"{mark['bits_per_byte']:.3f}" for mark in marks)
        cut = " / ".join(f"{mark['whitespace_boundary_share']:.2f}" for mark in marks)
        found = first_found(evaluations, "whitespace_boundary_share")
        cells = [run.name, bits, f"{end['bytes_per_token']:.2f}", cut, f"{end['policy_entropy_nats']:.3f}", found]
        print("| " + " | ".join([*cells, f"{end['seconds']:.0f}"]) + " |")
    print("\n| corpus | strategy | seeds | bits/byte at the end | rate | white space cut | entropy |")
    print("|---|---|---|---|---|---|---|")
    for (corpus, strategy), runs in sorted(groups.items()):
        ends = [evaluations[-1] for evaluations in runs]
        columns = ("bits_per_byte", "rate", "whitespace_boundary_share", "policy_entropy_nats")
        cells = " | ".join(spread([end[column] for end in ends]) for column in columns)
        print(f"| {corpus} | {strategy} | {len(runs)} | {cells} |")


if __name__ == "__main__":
    main()

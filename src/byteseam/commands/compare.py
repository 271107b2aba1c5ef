"""``byteseam compare``: strategies side by side on the same data, at the same cost, in one table and one page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byteseam.comparison.plan import Entry, Plan

HELP = "train several strategies on the same data at the same cost, and put them into one table"
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG.toml", type=Path, help="what all runs start from")
    parser.add_argument(
        "--strategies",
        metavar="LIST",
        required=True,
        help="LABEL:NAME[SETTING=VALUE;...] or NAME, commas between; see byteseam strategies",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="a new directory, or one to go on with")
    parser.add_argument("--seeds", metavar="N", default="1", help="so many, from 0, or a list such as 4,7 (1)")
    parser.add_argument(
        "--budget", metavar="KIND=N", help="of each run: bytes=20M, flops=3e15, minutes=5 (the configuration's bytes)"
    )
    parser.add_argument("--reference", metavar="LABEL", help="what differences are taken to (the first)")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="runs side by side (1)")
    parser.add_argument("--match-rate", action="store_true", help="also score at thresholds that bring the rate there")
    parser.add_argument(
        "--probe",
        metavar="NAME",
        action="append",
        default=[],
        help="also score noisy or other text: case, drop, double, swap, nospace, noise (all five), text=SOURCE",
    )
    parser.add_argument("--max-bytes", type=float, metavar="N", help="held-out bytes that are scored (all)")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compare; exit code 0 if a run has finished, 1 if all failed, 130 or 143 when a signal asked to stop.

    Raises:
        UserError: for a bad configuration, list, budget or directory.
    """
    from dataclasses import replace

    from byteseam.commands.prepare import progress_bar
    from byteseam.comparison.layout import Layout
    from byteseam.comparison.plan import check, open_plan, save_plan
    from byteseam.comparison.rates import rates_of_rules
    from byteseam.comparison.runner import Stopped, measure_speed, run_all
    from byteseam.comparison.tables import heading, to_terminal
    from byteseam.console import notice, stdout_json
    from byteseam.data.cache import resolve
    from byteseam.errors import UserError

    if args.jobs < 1:
        raise UserError(f"--jobs is {args.jobs}, but at least 1 run is at work")
    if args.max_bytes is not None and not 2 <= args.max_bytes < float("inf"):
        raise UserError(f"--max-bytes is {args.max_bytes:g}, but a finite number of at least 2 bytes is scored")
    plan = open_plan(args.out, wanted(args))
    with progress_bar("preparing the corpus") as bar:
        data = plan.base().data
        for source in (data.source, *(probe[5:] for probe in plan.probes if probe.startswith("text="))):
            resolve(replace(data, source=source), progress=bar)
    if plan.budget.kind == "flops":
        plan = check(replace(plan, rates=rates_of_rules(plan)))
    layout = Layout(args.out)
    layout.make()
    save_plan(args.out, plan)
    if plan.budget.kind == "minutes":
        notice("timing each strategy for a few seconds")
        plan = measure_speed(args.out, plan, args.jobs)
    report: dict[str, Any] = {}

    def report_anew() -> None:
        nonlocal report
        report = write_report(layout, plan)

    with Progress(plan) as watcher:
        try:
            run_all(args.out, plan, args.jobs, watcher, report_anew)
        except Stopped as stopped:
            notice(f"stopped; the same command goes on with {args.out}")
            return 128 + stopped.number
    report_anew()
    if args.json:
        stdout_json(report)
    else:
        print(heading(report))
        print(to_terminal(report))
        print(f"page                {layout.report('html')}")
    return 0 if any(entry["seeds"] for entry in report["entries"]) else 1


def wanted(args: argparse.Namespace) -> "Plan":
    """What the command line asks for.

    Raises:
        UserError: for a bad configuration, list or budget.
    """
    from byteseam.comparison.plan import Budget, Plan, base_text, parse_budget, parse_entries, parse_seeds
    from byteseam.comparison.probes import parse_probes
    from byteseam.config_file import load
    from byteseam.training.start import portable

    config = portable(load(args.config, args.overrides))
    entries = parse_entries(args.strategies)
    return Plan(
        config=base_text(config),
        entries=entries,
        seeds=parse_seeds(args.seeds),
        budget=parse_budget(args.budget) if args.budget else Budget("bytes", config.training.total_bytes),
        reference=args.reference or "",
        probes=parse_probes(args.probe),
        match_rate=args.match_rate,
        max_bytes=args.max_bytes,
    )


def write_report(layout: Any, plan: "Plan") -> dict[str, Any]:
    """Read all results, and write the report in every form."""
    from byteseam.comparison.bpe import reference_boundaries
    from byteseam.comparison.page import to_html
    from byteseam.comparison.report import build_report, to_json
    from byteseam.comparison.runner import read_result
    from byteseam.comparison.tables import to_csv, to_markdown
    from byteseam.training.run import write_atomically

    jobs = list(plan.jobs())
    results = [read_result(path) for entry, seed in jobs if (path := layout.result(entry, seed)).exists()]
    failures = {
        (entry.label, seed): path.read_text(encoding="utf-8").strip()
        for entry, seed in jobs
        if (path := layout.failure(entry, seed)).exists()
    }
    report = build_report(plan, results, failures, reference_boundaries(layout, plan))
    for kind, text in (
        ("json", to_json(report)),
        ("md", to_markdown(report)),
        ("csv", to_csv(report)),
        ("html", to_html(report)),
    ):
        write_atomically(layout.report(kind), text)
    return report


class Progress:
    """Bars on a terminal, a line at the start and end of each run elsewhere; all on stderr."""

    def __init__(self, plan: "Plan") -> None:
        from byteseam.console import stderr_console

        self.plan = plan
        self.console = stderr_console()
        self.bars: Any = None
        self.tasks: dict[tuple[str, int], Any] = {}

    def __enter__(self) -> "Progress":
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
            )
            self.bars = Bars(*columns, TimeRemainingColumn(), console=self.console)
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def began(self, entry: "Entry", seed: int) -> None:
        """A run has started, or goes on."""
        name = f"{entry.label}, seed {seed}"
        if self.bars is None:
            self.console.print(f"{name}: training", markup=False)
        else:
            total = self.plan.total_bytes(entry)
            self.tasks[entry.label, seed] = self.bars.add_task(name, total=total)

    def at(self, entry: "Entry", seed: int, bytes_seen: float, bits_per_byte: float | None) -> None:
        """Where it stands."""
        if self.bars is not None:
            bits = "" if bits_per_byte is None else f", {bits_per_byte:.3f} bits/byte"
            self.bars.update(
                self.tasks[entry.label, seed], completed=bytes_seen, description=f"{entry.label}, seed {seed}{bits}"
            )

    def ended(self, entry: "Entry", seed: int, failure: str | None) -> None:
        """It has ended, well or not."""
        if self.bars is not None:
            self.bars.remove_task(self.tasks.pop((entry.label, seed)))
        what = "done" if failure is None else f"failed: {failure}"
        self.console.print(f"{entry.label}, seed {seed}: {what}", markup=False, soft_wrap=True)

"""Runs of a comparison one after another or side by side, each in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from byteseam.comparison.layout import Layout
from byteseam.comparison.measure import RunResult
from byteseam.comparison.plan import Entry, Plan, save_plan
from byteseam.errors import UserError
from byteseam.training.run import read_jsonl

POLL_SECONDS = 0.2
GRACE_SECONDS = 120.0
"""How long a run that was asked to stop may take to save its checkpoint."""


class Watcher(Protocol):
    """What the runner tells whoever watches."""

    def began(self, entry: Entry, seed: int) -> None:
        """A run has started, or goes on."""

    def at(self, entry: Entry, seed: int, bytes_seen: float, bits_per_byte: float | None) -> None:
        """Where a running one stands."""

    def ended(self, entry: Entry, seed: int, failure: str | None) -> None:
        """A run has its result, or one sentence says why not."""


class Stopped(Exception):
    """A signal asked to stop; its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class Job:
    """A process at work."""

    entry: Entry
    seed: int
    process: "subprocess.Popen[bytes]"
    offset: int = field(default=0)


def unfinished(layout: Layout, plan: Plan) -> list[tuple[Entry, int]]:
    """Runs without a result, or whose result lacks a probe."""
    return [(entry, seed) for entry, seed in plan.jobs() if not done(layout, plan, entry, seed)]


def done(layout: Layout, plan: Plan, entry: Entry, seed: int) -> bool:
    """Whether the result is there, with all probes."""
    path = layout.result(entry, seed)
    return path.exists() and set(plan.probes) <= set(read_result(path).probes)


def read_result(path: Path) -> RunResult:
    """A result from its file.

    Raises:
        UserError: if it is damaged.
    """
    try:
        return RunResult.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it, and the run is measured again") from error


def run_all(out: Path, plan: Plan, jobs: int, watcher: Watcher, finished: Callable[[], None]) -> None:
    """Run whatever is not finished; `finished` is called after every run.

    Raises:
        Stopped: if a signal asked to; the runs at work have saved a checkpoint.
    """
    layout = Layout(out)
    waiting = unfinished(layout, plan)
    working: list[Job] = []
    with stop_requests() as asked:
        try:
            while waiting or working:
                while waiting and len(working) < jobs:
                    entry, seed = waiting.pop(0)
                    working.append(Job(entry, seed, start_worker(layout, entry, seed, jobs)))
                    watcher.began(entry, seed)
                time.sleep(POLL_SECONDS)
                for job in list(working):
                    tell_progress(layout, job, watcher)
                    if (code := job.process.poll()) is not None and not asked():
                        working.remove(job)
                        watcher.ended(job.entry, job.seed, settle(layout, job, code))
                        finished()
                if number := asked():
                    raise Stopped(number)
        finally:
            stop(working)


def start_worker(layout: Layout, entry: Entry, seed: int, jobs: int) -> "subprocess.Popen[bytes]":
    """A process that trains and measures one run; it has no terminal's signals of its own."""
    command = [sys.executable, "-m", "byteseam.comparison.worker", str(layout.directory), entry.label, str(seed)]
    with layout.log(entry, seed).open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(jobs),
            start_new_session=True,
        )


def worker_environment(jobs: int) -> dict[str, str]:
    """The processor's cores shared out; a configuration's own number of threads goes before."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return {"OMP_NUM_THREADS": str(threads), **os.environ, "OMP_WAIT_POLICY": "PASSIVE"}


def settle(layout: Layout, job: Job, code: int) -> str | None:
    """Keep why a run failed; None if it did not."""
    path = layout.failure(job.entry, job.seed)
    if code == 0 and layout.result(job.entry, job.seed).exists():
        path.unlink(missing_ok=True)
        return None
    lines = layout.log(job.entry, job.seed).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("error: ") if lines else ""
    reason = f"killed by signal {-code}" if code < 0 else last or f"exit code {code}"
    path.write_text(reason + "\n", encoding="utf-8")
    return reason


def tell_progress(layout: Layout, job: Job, watcher: Watcher) -> None:
    """Read what the run has written since the last look."""
    path = layout.run(job.entry, job.seed) / "metrics.jsonl"
    if not path.exists() or (size := path.stat().st_size) == job.offset:
        return
    job.offset = size
    lines = [line for line in read_jsonl(path)[-3:] if line.get("kind") == "train"]
    if lines:
        watcher.at(job.entry, job.seed, lines[-1]["bytes_seen"], lines[-1].get("bits_per_byte"))


def stop(jobs: Iterable[Job]) -> None:
    """Ask to stop, wait for the checkpoints, and kill what will not end."""
    working = [job for job in jobs if job.process.poll() is None]
    for job in working:
        job.process.send_signal(signal.SIGTERM)
    limit = time.monotonic() + GRACE_SECONDS
    for job in working:
        try:
            job.process.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            job.process.kill()
            job.process.wait()


def measure_speed(out: Path, plan: Plan, jobs: int) -> Plan:
    """The plan with the speed of every entry that has none, measured with as many side by side as will run later.

    Raises:
        UserError: if one cannot be trained at all, or not for one step.
    """
    speeds = dict(plan.bytes_per_second)
    for entry in plan.entries:
        if entry.label in speeds:
            continue
        command = [sys.executable, "-m", "byteseam.comparison.worker", str(out), entry.label, "--time"]
        workers = [
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=worker_environment(jobs), text=True
            )
            for _ in range(jobs)
        ]
        answers = [(*worker.communicate(), worker.returncode) for worker in workers]
        for _, said, code in answers:
            if code:
                last = (said.strip().splitlines() or [f"exit code {code}"])[-1].removeprefix("error: ")
                raise UserError(f"{entry.label} cannot be timed: {last}")
        # The slowest: all are to have finished within the minutes.
        speeds[entry.label] = min(float(answer) for answer, _, _ in answers)
        plan = replace(plan, bytes_per_second=dict(speeds))
        plan.total_bytes(entry)  # refuses minutes that do not pay for a step
        save_plan(out, plan)
    return plan


@contextmanager
def stop_requests() -> Iterator[Callable[[], int]]:
    """SIGINT and SIGTERM are noted, and end the waiting. Yields: the signal, or 0."""
    asked = 0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

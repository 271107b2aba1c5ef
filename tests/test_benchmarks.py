"""The scripts behind docs/results.md that are quick enough to run, and the commands of those that are not."""

import json
import os
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from byteseam import cli
from byteseam.commands import compare
from byteseam.comparison.plan import check
from byteseam.strategies import STRATEGIES

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_table_holds_the_runs_of_the_series_and_passes_over_others(python, tiny_run, tmp_path):
    for name in ("prose-leave_one_out-0", "prose-leave_one_out-1", "demo"):
        shutil.copytree(tiny_run, tmp_path / name)
    (tmp_path / "prose-paper-0").mkdir()
    done = python(str(BENCHMARKS / "estimator_table.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[0].removeprefix("| ") for line in done.stdout.splitlines() if line.startswith("| prose")]
    assert rows == ["prose-leave_one_out-0", "prose-leave_one_out-1", "prose"]
    assert "demo" not in done.stdout


def test_steps_of_every_strategy_and_length_are_timed(python, tiny_toml, tmp_path):
    words = random.Random(0).choices(["to", "be", "or", "not", "that", "is", "the", "question"], k=8000)
    text = tmp_path / "words.txt"
    text.write_text(" ".join(words))
    config = tmp_path / "words.toml"
    config.write_text(re.sub(r"(?m)^source = .*", f'source = "{text}"', tiny_toml.read_text()))
    done = python(str(BENCHMARKS / "step_time.py"), "--config", str(config), "--repeats", "1")
    assert done.returncode == 0, done.stderr
    names = [line.split(" | ")[0].removeprefix("| ") for line in done.stdout.splitlines() if " to " in line]
    assert set(names[3:14]) == set(STRATEGIES)
    assert names[14:] == [f"{8192 // length} x {length}" for length in (256, 512, 1024, 2048, 4096, 8192)]


def test_every_comparison_of_the_rivals_could_run(tmp_path):
    """The script calls what stands in for the command line; what it asks for is then planned by the real one."""
    fake = tmp_path / "byteseam"
    fake.write_text("#!/bin/sh\npython3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \"$@\"\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [BENCHMARKS / "rivals.sh", tmp_path / "out"],
        cwd=BENCHMARKS.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(calls) == 8
    for call in calls:
        assert call[0] == "compare"
        arguments = cli._parse("compare", compare, call[1:])
        arguments.config = BENCHMARKS.parent / arguments.config
        plan = compare.wanted(arguments)
        # A later call's reference may be an entry of an earlier one.
        check(replace(plan, reference=plan.entries[0].label))

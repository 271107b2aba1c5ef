"""Beginning and resuming: a run that was interrupted, however and whenever, ends as one that never was."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from byteseam.cli import main
from byteseam.config_file import load
from byteseam.data.corpus import Corpus
from byteseam.data.recipes import RECIPES
from byteseam.errors import UserError
from byteseam.strategies import STRATEGIES
from byteseam.training.checkpoint import checkpoints_of
from byteseam.training.loop import Listener
from byteseam.training.run import open_run, read_jsonl
from byteseam.training.start import (
    build_model,
    choose_passage,
    documents_for_fitting,
    portable,
    resume_run,
    set_up,
    start_run,
)

TIMES = ("seconds", "bytes_per_second", "peak_memory_bytes", "window_seconds")


class StopAt(Listener):
    """Asks to stop, as Ctrl-C does, after one of these steps."""

    def __init__(self, *steps):
        self.steps = steps

    def step(self, state, summary):
        if state.step in self.steps:
            signal.raise_signal(signal.SIGINT)


class Snapshots(Listener):
    """Copies of the run as a kill would leave it, right after some steps, samples and evaluations."""

    def __init__(self, run, *moments):
        self.run, self.moments = run, moments

    def take(self, state, what):
        if (moment := f"{what}-{state.step}") in self.moments:
            shutil.copytree(self.run, self.run.with_name(moment))

    def step(self, state, summary):
        self.take(state, "step")

    def sample(self, state, record):
        self.take(state, "sample")

    def evaluated(self, state, evaluation):
        self.take(state, "evaluated")


def result(directory):
    """All that a run leaves, times aside: tensors and samples byte for byte."""
    run = open_run(directory)
    checkpoint = checkpoints_of(run.checkpoints)[-1]
    state = json.loads((checkpoint / "state.json").read_text())
    return {
        "checkpoint": checkpoint.name,
        "model": (checkpoint / "model.safetensors").read_bytes(),
        "optimiser": (checkpoint / "optimiser.safetensors").read_bytes(),
        "state": {key: value for key, value in state.items() if key not in TIMES},
        "metrics": [
            {key: value for key, value in line.items() if key not in TIMES} for line in read_jsonl(run.metrics_path)
        ],
        "samples": run.samples_path.read_bytes(),
    }


def finish(directory):
    assert resume_run(directory, Listener()).train() is not None
    return result(directory)


@pytest.fixture(scope="module")
def uninterrupted(tiny_run):
    return result(tiny_run)


def test_a_run_leaves_what_the_schedule_says(uninterrupted):
    metrics = uninterrupted["metrics"]
    assert [line["step"] for line in metrics if line["kind"] == "train"] == [3, 6, 9, 12, 15, 18]
    assert [line["step"] for line in metrics if line["kind"] == "evaluation"] == [5, 10, 15, 20]
    samples = [json.loads(line)["step"] for line in uninterrupted["samples"].splitlines()]
    assert samples == [0, 4, 8, 12, 16, 20]
    assert uninterrupted["checkpoint"] == "step-00000020"
    assert uninterrupted["state"]["bytes_seen"] == 20 * 4 * 32


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("strategy.history=3", "strategy.baseline=value", "strategy.random_fraction=0.3", "data.layout=prefix"),
        ("training.optimiser=muon", "training.micro_batch_rows=2", "strategy.gamma=[[0, 0], [1, 1]]", "seed=5"),
        *((f"strategy.name={name}",) for name in sorted(STRATEGIES)),
    ],
    ids=["default", "value", "muon", *sorted(STRATEGIES)],
)
def test_stopped_and_resumed_is_uninterrupted(tmp_path, tiny_config, uninterrupted, overrides):
    config = tiny_config(*overrides)
    stops = (1, 5, 11, 19)  # 5: all is due but a line of metrics; 11: no multiple of anything
    if overrides:
        config, stops = tiny_config(*overrides, "training.total_bytes=1536"), stops[:3]
        start_run(config, tmp_path / "straight", Listener()).train()
        uninterrupted = result(tmp_path / "straight")
    trainer = start_run(config, tmp_path / "stopped", StopAt(1))
    for step in stops:
        assert trainer.train() is None
        assert (trainer.stopped_by, trainer.state.step) == (signal.SIGINT, step)
        trainer = resume_run(tmp_path / "stopped", StopAt(*stops[1:]))
        assert trainer.state.step == step
    assert trainer.train() is not None
    assert result(tmp_path / "stopped") == uninterrupted


def test_killed_between_any_two_things_and_resumed_is_uninterrupted(tmp_path, tiny_config, uninterrupted):
    moments = ("sample-4", "evaluated-15", "step-18", "evaluated-20")  # 4: before the first checkpoint
    start_run(tiny_config(), tmp_path / "run", Snapshots(tmp_path / "run", *moments)).train()
    assert result(tmp_path / "run") == uninterrupted
    for moment in moments:
        assert finish(tmp_path / moment) == uninterrupted


def test_what_a_kill_left_half_written_is_ignored_and_cleaned(tmp_path, tiny_config, uninterrupted):
    trainer = start_run(tiny_config(), tmp_path / "run", StopAt(16))
    trainer.train()
    run = open_run(tmp_path / "run")
    partial = run.checkpoints / ".step-00000017.1.partial"
    shutil.copytree(run.checkpoints / "step-00000016", partial)
    (partial / "state.json").unlink()
    own = run.checkpoints / f".step-00000020.{os.getpid()}.partial"  # numbers of processes come back
    own.mkdir()
    (own / "state.json").write_text("{")
    for path in (run.metrics_path, run.samples_path):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines, lines[-1][: len(lines[-1]) // 2], b"\xc3"]))
    run.metrics_path.with_suffix(".partial").write_text('{"kind"')
    assert finish(tmp_path / "run") == uninterrupted
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-00000016", "step-00000020"]
    assert not list((tmp_path / "run").glob("*.partial"))


def test_a_finished_run_resumes_to_itself(tmp_path, tiny_run, uninterrupted):
    shutil.copytree(tiny_run, tmp_path / "run")
    evaluation = resume_run(tmp_path / "run", Listener()).train()
    assert evaluation.bits_per_byte == uninterrupted["metrics"][-1]["bits_per_byte"]
    assert result(tmp_path / "run") == uninterrupted


def test_a_killed_process_resumes_to_the_same_end(tmp_path, tiny_toml, capsys):
    """A real one, by kill -9, at a moment that nobody chose."""
    command = ["train", str(tiny_toml), "--training.total_bytes", "6400", "--quiet", "--out"]
    # On a busy machine a run can be over before we look again: another one, then, and sooner.
    waits = (random.SystemRandom().randint(1, 12), 1, 1)
    killed = next((run for wanted in waits if (run := kill(command, tmp_path, wanted))), None)
    assert killed is not None, "three runs ended before they could be killed"
    assert main([*command, str(tmp_path / "straight")]) == 0
    assert main(["train", "--resume", str(killed), "--quiet"]) == 0
    assert result(killed) == result(tmp_path / "straight")


def kill(command: list[str], place: Path, wanted: int) -> Path | None:
    """A run killed once it has written so many lines of metrics; None if it ended first."""
    run = Path(tempfile.mkdtemp(dir=place)) / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "byteseam", *command, str(run)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    metrics = run / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= wanted:
            break
        time.sleep(0.002)
    process.kill()
    return run if process.wait() != 0 else None


def test_a_moved_run_goes_on(tmp_path, tiny_config, uninterrupted):
    start_run(tiny_config(), tmp_path / "run", StopAt(18)).train()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "renamed")
    assert finish(tmp_path / "elsewhere" / "renamed") == uninterrupted


@pytest.mark.parametrize("source", ["texts", "./texts", "texts/*.txt", "*/a.txt"])
def test_a_relative_source_is_found_from_anywhere(tmp_path, monkeypatch, tiny_config, source):
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "texts" / name).write_text(f"{name} to be or not to be " * 20)
    monkeypatch.chdir(tmp_path)
    config = tiny_config(f"data.source={source}", "training.total_bytes=256")
    start_run(config, Path("run"), StopAt(1)).train()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert resume_run(Path("..") / "run", Listener()).train() is not None


@pytest.mark.parametrize("source", [next(iter(RECIPES)), "hf:some/name", "gutenbrg", "-", "", "/absolute", "~/texts"])
def test_what_is_no_relative_path_stays_as_it_is(tmp_path, monkeypatch, tiny_config, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / next(iter(RECIPES))).touch()  # a corpus' name wins over a file
    config = tiny_config(f'data.source="{source}"')
    assert portable(config) == config


def test_another_corpus_is_refused(tmp_path, tiny_run, tiny_corpus):
    shutil.copytree(tiny_run, tmp_path / "run")
    shutil.copytree(tiny_corpus, tmp_path / "corpus")
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text())
    manifest["train"][0]["sha256"] = "0" * 64
    (tmp_path / "corpus" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"is not the one that .* was trained on \(fingerprint"):
        resume_run(tmp_path / "run", Listener(), data=tmp_path / "corpus")


@pytest.mark.parametrize(
    ("name", "content"), [("environment.json", "["), ("environment.json", None), ("passage.bin", None)]
)
def test_a_run_that_lacks_a_part_is_refused_and_left_alone(tmp_path, tiny_run, name, content):
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    if content is not None:
        (tmp_path / "run" / name).write_text(content)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=f"{name}.*restore it, or start a new run"):
        resume_run(tmp_path / "run", Listener())
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_run_without_its_metrics_goes_on(tmp_path, tiny_run):
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    assert resume_run(tmp_path / "run", Listener()).state.step == 20


def test_parameters_are_drawn_from_the_seed_alone(tiny_config):
    precision = set_up(tiny_config())

    def parameters(*overrides):
        torch.rand(int(torch.randint(1, 9, ())))  # whatever was drawn before
        return torch.cat([p.flatten() for p in build_model(tiny_config(*overrides), precision).parameters()])

    before = torch.get_rng_state()
    first = parameters()
    assert torch.equal(parameters(), first)
    assert not torch.equal(parameters("seed=1"), first)
    torch.set_rng_state(before)
    build_model(tiny_config("seed=99999999999999999999"), precision)
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_are_set(tiny_config):
    assert torch.get_num_threads() == 1
    try:
        set_up(tiny_config("training.threads=2"))
        assert torch.get_num_threads() == 2
        set_up(tiny_config())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


class Held:
    """A validation split of some documents."""

    def __init__(self, *documents):
        import numpy as np

        self.documents = [np.frombuffer(document, np.uint8) for document in documents]
        self.byte_starts = np.cumsum([0, *map(len, documents)])

    def document(self, index):
        return self.documents[index]


def test_the_passage_is_from_the_middle_of_the_longest_document():
    assert choose_passage(Held(b"short", b"the longest", b"mid")) == b"the longest"
    text = b"".join(b"line %04d\n" % number for number in range(200))
    passage = choose_passage(Held(b"x", text))
    assert len(passage) == 480
    assert passage.startswith(b"line 0077\n")
    assert choose_passage(Held(b"a" * 999 + b"b")) == b"a" * 480


def test_the_configuration_in_the_run_is_the_resolved_one(tiny_run, tiny_config):
    assert load(tiny_run / "config.toml") == tiny_config()


def test_what_is_learned_by_counting_is_learned_once_and_also_when_a_kill_came_first(
    tmp_path, tiny_config, monkeypatch
):
    config = tiny_config("strategy.name=bpe", "strategy.vocabulary=262", "training.total_bytes=256")
    trainer = start_run(config, tmp_path / "run", Listener())
    merges = trainer.model.policy.merges.clone()
    assert int((merges[:, 0] >= 0).sum()) == 6
    # Killed before the first checkpoint: learned again, to the same.
    again = resume_run(tmp_path / "run", Listener())
    assert torch.equal(again.model.policy.merges, merges)
    again.train()
    # From a checkpoint it is read.
    monkeypatch.setattr(type(config.strategy), "fit", lambda *_: pytest.fail("learned again"))
    assert torch.equal(resume_run(tmp_path / "run", Listener()).model.policy.merges, merges)


def test_documents_for_fitting_are_spread_and_about_as_many_bytes_as_wanted():
    corpus = Corpus.of([bytes([number]) * 100 for number in range(50)])
    found = documents_for_fitting(corpus, 1000)
    assert [text[0] for text in found] == list(range(0, 50, 5))
    assert len(documents_for_fitting(corpus, 10**9)) == 50
    assert documents_for_fitting(Corpus.of([b"x" * 5000]), 100) == [b"x" * 100]

"""Whole comparisons of some steps: finished once, gone on with after a kill, a failure in its own row."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from byteseam.comparison.layout import Layout
from byteseam.comparison.measure import RunResult, agreement_texts, cut, own_decider
from byteseam.comparison.plan import Budget, Plan, base_text, check, parse_entries, save_plan
from byteseam.comparison.runner import read_result, run_all, unfinished
from byteseam.comparison.worker import AtTheRate, timed
from byteseam.comparison.worker import run as run_one
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.evaluation.evaluate import rate_warning
from byteseam.trained import Trained
from byteseam.training.checkpoint import checkpoints_of
from byteseam.training.loop import evaluate_corpus
from byteseam.types import Batch

STEP_BYTES = 4 * 32


class Notes:
    """What the runner said."""

    def __init__(self) -> None:
        self.said: list[tuple] = []

    def began(self, entry, seed) -> None:
        self.said.append(("began", entry.label, seed))

    def at(self, entry, seed, bytes_seen, bits_per_byte) -> None:
        self.said.append(("at", entry.label, seed, bytes_seen, bits_per_byte))

    def ended(self, entry, seed, failure) -> None:
        self.said.append(("ended", entry.label, seed, failure))

    def endings(self) -> dict:
        return {said[1:3]: said[3] for said in self.said if said[0] == "ended"}


@pytest.fixture
def make(tiny_config, tmp_path):
    """``make("uniform,hnet")`` -> (plan, its directory), ready to run."""

    def prepared(words: str, **changes) -> tuple[Plan, Path]:
        entries = parse_entries(words)
        config = base_text(tiny_config("training.threads=1"))
        plan = Plan(config, entries, (0,), Budget("bytes", 6.0 * STEP_BYTES), entries[0].label)
        plan = check(dataclasses.replace(plan, **changes))
        out = tmp_path / "out"
        Layout(out).make()
        save_plan(out, plan)
        return plan, out

    return prepared


def test_runs_side_by_side_and_a_failure_stops_nothing(make):
    plan, out = make("uniform,broken:score_function[training.learning_rate=1e30],stride")
    notes, finished = Notes(), []
    Layout(out).failure(plan.entry("uniform"), 0).write_text("it failed the last time\n")
    run_all(out, plan, 2, notes, lambda: finished.append(1))
    endings = notes.endings()
    assert endings["uniform", 0] is endings["stride", 0] is None
    assert "is not finite at step" in endings["broken", 0]
    assert Layout(out).failure(plan.entry("broken"), 0).read_text().strip() == endings["broken", 0]
    assert not Layout(out).failure(plan.entry("uniform"), 0).exists(), "it did not fail this time"
    assert len(finished) == 3
    begun = [said[1] for said in notes.said if said[0] == "began"]
    assert begun == ["uniform", "broken", "stride"]
    assert any(said[0] == "at" and said[3] == 6 * STEP_BYTES for said in notes.said)
    # Only what failed is tried again.
    assert [entry.label for entry, _ in unfinished(Layout(out), plan)] == ["broken"]
    result = read_result(Layout(out).result(plan.entry("uniform"), 0))
    assert result.bytes_trained == 6 * STEP_BYTES


def test_a_worker_measures_what_byteseam_eval_would(make):
    plan, out = make("uniform", probes=("case", "nospace"), match_rate=True)
    assert run_one(out, "uniform", 0) == 0
    layout, entry = Layout(out), plan.entries[0]
    found = read_result(layout.result(entry, 0))
    trained = Trained.open(layout.run(entry, 0))
    corpus = trained.corpus()
    expected = evaluate_corpus(trained.model, trained.config, trained.strategy, corpus, trained.precision, None)
    assert found.bits_per_byte == expected.bits_per_byte
    assert sum(found.document_bits) / sum(found.document_bytes) == pytest.approx(expected.bits_per_byte)
    assert len(found.document_bits) == len(corpus)
    assert (found.rate, found.target_rate) == (expected.rate, 1 / 3)
    assert set(found.probes) == {"case", "nospace"}
    assert found.matched is None, "a rule that draws whatever the bytes has no threshold"
    cuts = [cut(trained, text, own_decider(trained)).boundary for text in agreement_texts(corpus)]
    assert found.boundary(sum(map(len, cuts))).tolist() == [each for boundary in cuts for each in boundary.tolist()]
    assert [point["held_out"] for point in found.curve if point["held_out"]] == [1.0] * 4


def test_a_learned_strategy_is_matched_to_the_rate(make):
    plan, out = make("hnet", match_rate=True, max_bytes=700.0)
    assert run_one(out, "hnet", 0) == 0
    found = read_result(Layout(out).result(plan.entries[0], 0))
    assert rate_warning(found.matched["rate"], 1 / 3) is None
    assert sum(found.matched["document_bits"]) / sum(found.document_bytes) == pytest.approx(
        found.matched["bits_per_byte"]
    )
    assert sum(found.document_bytes) <= 700


def test_a_finished_run_is_only_measured_and_new_probes_only_added(make, monkeypatch):
    plan, out = make("uniform")
    assert run_one(out, "uniform", 0) == 0
    path = Layout(out).result(plan.entries[0], 0)
    before = read_result(path)
    from byteseam.comparison import worker

    monkeypatch.setattr(worker.Trainer, "train", lambda self: pytest.fail("trained again"))
    path.unlink()
    assert run_one(out, "uniform", 0) == 0
    assert read_result(path) == before
    save_plan(out, dataclasses.replace(plan, probes=("drop",)))
    monkeypatch.setattr(
        "byteseam.comparison.measure.evaluate_corpus", lambda *_: pytest.fail("scored again"), raising=True
    )
    monkeypatch.setattr("byteseam.comparison.measure.probe_one", lambda *_: 1.25)
    assert run_one(out, "uniform", 0) == 0
    assert read_result(path) == dataclasses.replace(before, probes={"drop": 1.25})


def test_after_a_kill_a_run_goes_on_and_ends_as_if_nothing_had_been(make, tmp_path):
    words = "score_function"
    steps = {"budget": Budget("bytes", 60.0 * STEP_BYTES)}
    plan, out = make(words, **steps)
    layout, entry = Layout(out), plan.entries[0]
    command = [sys.executable, "-m", "byteseam.comparison.worker", str(out), words, "0"]
    worker = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    checkpoints = layout.run(entry, 0) / "checkpoints"
    limit = time.monotonic() + 120
    while not (checkpoints.is_dir() and checkpoints_of(checkpoints)):
        assert worker.poll() is None, "it was over before it could be killed"
        assert time.monotonic() < limit
        time.sleep(0.005)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert not layout.result(entry, 0).exists()
    assert run_one(out, words, 0) == 0
    killed = read_result(layout.result(entry, 0))
    other = tmp_path / "other"
    Layout(other).make()
    save_plan(other, plan)
    assert run_one(other, words, 0) == 0
    whole = read_result(Layout(other).result(entry, 0))

    def but_time(result: RunResult) -> RunResult:
        return dataclasses.replace(result, seconds=0.0, curve=[])

    assert but_time(killed) == but_time(whole)


def test_every_strategy_runs_through(make):
    words = "every_byte,whitespace,regex,entropy,bpe[vocabulary=270],gumbel,flat"
    plan, out = make(words, budget=Budget("bytes", 2.0 * STEP_BYTES))
    for entry in plan.entries:
        assert run_one(out, entry.label, 0) == 0
    assert unfinished(Layout(out), plan) == []


def test_how_fast_a_strategy_trains_is_measured_and_nothing_left(make):
    _, out = make("uniform")
    assert timed(out, "uniform") > 0
    assert not any((out / "runs").iterdir())


@pytest.mark.parametrize("name", ["entropy", "hnet", "gumbel", "score_function"])
def test_a_strategy_is_timed_at_the_rate_that_it_steers_to(make, name):
    plan, out = make(name)
    strategy = plan.run_config(plan.entries[0], 0).strategy
    torch.manual_seed(0)
    model = AtTheRate(plan.base().model, strategy)
    ids = torch.randint(0, 256, (8, 400))
    documents = (torch.arange(400) // 100).expand(8, -1)
    batch = Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool), documents)
    found = [model.decide(strategy, model.encode(batch), batch, torch.full((8, 400), 0.5)) for _ in range(2)]
    for decision in found:
        assert abs(decision.boundary[decision.free].float().mean().item() - strategy.rate) < 0.03
        assert decision.boundary[:, ::100].all()
    assert (found[0].boundary != found[1].boundary).any(), "every step has tokens of its own"
    assert timed(out, name) > 0


def test_a_damaged_result_is_named(make):
    plan, out = make("uniform")
    path = Layout(out).result(plan.entries[0], 0)
    path.write_text("{")
    with pytest.raises(UserError, match=r"uniform-0.json is damaged .* delete it"):
        unfinished(Layout(out), plan)


def test_agreement_texts_are_the_first_documents_the_last_cut(make):
    plan, _ = make("uniform")
    corpus = Corpus.open(resolve(plan.base().data), "validation")
    texts = list(agreement_texts(corpus, 150))
    assert sum(map(len, texts)) == 150
    assert texts[0] == corpus.document(0).tobytes()

"""A trained model, from a run or from a checkpoint."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from byteseam.errors import UserError
from byteseam.strategies import Uniform
from byteseam.trained import Trained
from byteseam.training.checkpoint import latest_checkpoint


@pytest.fixture(scope="module")
def trained(tiny_run):
    return Trained.open(tiny_run)


@pytest.fixture
def copy(tmp_path, tiny_run):
    """A run that may be broken."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_its_newest_checkpoint(trained, tiny_run, tiny_config):
    assert trained.checkpoint == tiny_run / "checkpoints" / "step-00000020"
    assert trained.state.step == 20
    assert trained.config == tiny_config()
    assert not trained.model.training
    alone = Trained.open(trained.checkpoint)
    for mine, theirs in zip(trained.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert Trained.open(trained.checkpoint.with_name("step-00000015")).state.step == 15


def test_schedules_stand_at_their_end(copy):
    for path in (copy / "config.toml", latest_checkpoint(copy / "checkpoints") / "config.toml"):
        path.write_text(path.read_text().replace("gamma = 0.9", "gamma = [[0.0, 0.1], [1.0, 0.7]]"))
    assert Trained.open(copy).strategy.gamma == 0.7


def test_the_corpus_is_the_run_s_held_out_split_or_another_s(trained, tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    own = trained.corpus()
    assert (own.directory, own.split) == (tiny_corpus, "validation")
    (tmp_path / "other.txt").write_text("another text " * 50)
    other = trained.corpus(str(tmp_path / "other.txt"))
    assert (other.split, other.total_bytes) == ("validation", 130)


def test_deciders(trained):
    sample = trained.decider("sample", None, None, 7)
    assert (sample.mode, sample.seed) == ("sample", 7)
    assert trained.decider("threshold", None, None, 0).threshold == 0.5
    assert trained.decider("threshold", 0.0, None, 0).threshold == 0.0
    rate = trained.decider("rate", None, None, 3)
    assert (rate.mode, rate.seed) == ("rate", 3)
    assert rate == trained.decider("rate", None, 3.0, 3)  # what it was trained for
    assert rate.threshold < trained.decider("rate", None, 9.0, 3).threshold


def test_a_rule_has_no_threshold_and_no_rate(trained):
    fixed = replace(trained, strategy=Uniform())
    assert fixed.decider("rate", None, None, 0).mode == "rate"  # and calibrates nothing
    for mode, threshold, rate in (("threshold", 0.3, None), ("rate", None, 3.0)):
        with pytest.raises(UserError, match="the strategy uniform has no threshold and no rate to set; leave them out"):
            fixed.decider(mode, threshold, rate, 0)


def test_a_newer_format_is_told_before_its_unknown_keys(copy):
    checkpoint = latest_checkpoint(copy / "checkpoints")
    state = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps(state | {"format_version": 2}))
    (checkpoint / "config.toml").write_text("[news]\nkey = 1\n")
    with pytest.raises(UserError, match="has checkpoint format 2, but this byteseam reads up to 1; upgrade byteseam"):
        Trained.open(copy)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("none", r"there is no run at .*none; train one with: byteseam train CONFIG.toml --out"),
        ("run/checkpoints", r"is no run: it has no config.toml; name the directory that byteseam train made"),
        ("run/config.toml", r"is no run"),
    ],
)
def test_what_is_no_run_is_refused(copy, place, says):
    with pytest.raises(UserError, match=says):
        Trained.open(copy.parent / place)


def test_a_run_before_its_first_checkpoint_is_refused(copy):
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match=r"there is no checkpoint in .*; the run has not reached its first one yet"):
        Trained.open(copy)
    (copy / "checkpoints").mkdir()
    (copy / "checkpoints" / ".step-00000001.7.partial").mkdir()
    with pytest.raises(UserError, match=r"there is no checkpoint in"):
        Trained.open(copy)


@pytest.mark.parametrize("name", ["config.toml", "model.safetensors"])
def test_a_checkpoint_that_lacks_a_part_is_refused(copy, name):
    (latest_checkpoint(copy / "checkpoints") / name).unlink()
    with pytest.raises(UserError, match=f"{name}"):
        Trained.open(copy)

"""Checkpoints: whole or not there, refused in one sentence when they are not what they should be, never unpickled."""

import errno
import json
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import byteseam
from byteseam.errors import UserError
from byteseam.language_model import LanguageModel
from byteseam.training import checkpoint as module
from byteseam.training.checkpoint import (
    State,
    checkpoints_of,
    latest_checkpoint,
    load_model,
    load_optimiser,
    name_of,
    prune_checkpoints,
    read_state,
    save_checkpoint,
)
from byteseam.training.optimiser import build_optimiser
from byteseam.training.run import open_run


@pytest.fixture
def parts_of(tiny_config):
    """``parts_of("model.width=24")``: (configuration, fresh model, fresh optimiser)."""

    def make(*overrides):
        config = tiny_config(*overrides)
        model = LanguageModel(config.model, config.strategy)
        return config, model, build_optimiser(model, config.training)

    return make


@pytest.fixture
def checkpoint(tmp_path, tiny_run):
    """A copy of a real one."""
    return Path(shutil.copytree(latest_checkpoint(tiny_run / "checkpoints"), tmp_path / "step-00000020"))


def step(model, optimiser):
    """Some gradients, and an update by them."""
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimiser.step()
    optimiser.zero_grad()


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("overrides", [(), ("training.optimiser=muon",), ("strategy.name=whitespace",)])
def test_a_round_trip_keeps_every_bit(tmp_path, parts_of, overrides):
    config, model, optimiser = parts_of(*overrides)
    step(model, optimiser)
    state = State(step=7, bytes_seen=99, seconds=1.5, window={"nll": [0.1, 3.0]}, window_seconds=0.25, window_bytes=9)
    path = save_checkpoint(tmp_path, config, model, optimiser, state)
    assert path == tmp_path / "step-00000007"
    assert names(path) == ["config.toml", "model.safetensors", "optimiser.safetensors", "state.json"]
    _, other, other_optimiser = parts_of(*overrides)
    load_model(path, other)
    load_optimiser(path, other, other_optimiser)
    assert read_state(path) == state
    torch.manual_seed(3)
    step(model, optimiser)
    torch.manual_seed(3)
    step(other, other_optimiser)
    for (name, mine), (other_name, theirs) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert name == other_name
        assert torch.equal(mine, theirs)


def test_before_the_first_step_there_are_no_moments(tmp_path, parts_of):
    config, model, optimiser = parts_of()
    path = save_checkpoint(tmp_path, config, model, optimiser, State())
    load_optimiser(path, model, optimiser)
    assert optimiser.moments() == {}


def test_one_that_exists_is_left_as_it_is(tmp_path, parts_of):
    parts = parts_of()
    path = save_checkpoint(tmp_path, *parts, State())
    (path / "mine").touch()
    assert save_checkpoint(tmp_path, *parts, State(seconds=9.0)) == path
    assert (path / "mine").exists()


# What is not whole, or something else


FILES = ("model.safetensors", "optimiser.safetensors", "state.json")


def load_all(checkpoint, parts):
    _, model, optimiser = parts
    read_state(checkpoint)
    load_model(checkpoint, model)
    load_optimiser(checkpoint, model, optimiser)


def refused(checkpoint, parts, match):
    with pytest.raises(UserError, match=match) as error:
        load_all(checkpoint, parts)
    assert "\n" not in str(error.value)
    assert str(checkpoint) in str(error.value)
    return str(error.value)


def test_the_real_one_loads(checkpoint, parts_of):
    load_all(checkpoint, parts_of())


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused_at_every_length(checkpoint, parts_of, name):
    parts, path = parts_of(), checkpoint / name
    data = path.read_bytes()
    whole = len(data.rstrip())
    for length in {0, 1, 7, 8, 9, *range(10, whole, whole // 25 + 1), whole - 1}:
        path.write_bytes(data[:length])
        refused(checkpoint, parts, "use another checkpoint of the run")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(checkpoint, parts_of, name):
    (checkpoint / name).unlink()
    refused(checkpoint, parts_of(), f"{name} is missing.*No such file.*use another checkpoint")


@pytest.mark.parametrize("name", FILES)
def test_noise_is_refused(checkpoint, parts_of, name):
    (checkpoint / name).write_bytes(os.urandom(5000))
    refused(checkpoint, parts_of(), "use another checkpoint of the run")


class Trap:
    """A pickle of it creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["pickle", "torch.save"])
def test_a_pickle_in_its_place_is_refused_unread(tmp_path, checkpoint, parts_of, name, how):
    trap = Trap(tmp_path / "sprung")
    if how == "pickle":
        (checkpoint / name).write_bytes(pickle.dumps(trap))
    else:
        torch.save({"unet.embedding.weight": trap}, checkpoint / name)
    refused(checkpoint, parts_of(), "use another checkpoint of the run")
    assert not (tmp_path / "sprung").exists()
    if how == "pickle":
        pickle.loads((checkpoint / name).read_bytes()).close()
        assert (tmp_path / "sprung").exists()  # it was a trap


def test_no_module_can_unpickle():
    forbidden = re.compile(
        r"torch\.load\b|\bpickle\.|import\s+(pickle|dill|shelve|marshal|joblib)|allow_pickle\s*=\s*True"
    )
    sources = sorted(Path(byteseam.__file__).parent.rglob("*.py"))
    assert len(sources) > 50
    assert [path for path in sources if forbidden.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "override", ["model.width=24", "model.token_layers=2", "strategy.history=2", "strategy.name=uniform"]
)
def test_another_model_is_refused(checkpoint, parts_of, override):
    sentence = refused(checkpoint, parts_of(override), "does not fit the configuration beside it")
    assert "use the config.toml that the checkpoint was made with" in sentence


def change(path, edit):
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("model", "extra", torch.zeros(3), r"extra has shape \(3,\) of float32 in the file and no place in the model"),
        ("model", "unet.head.linear.bias", None, r"bias has no place in the file and shape \(257,\) of float32 in"),
        (
            "model",
            "unet.head.linear.bias",
            torch.zeros(256),
            r"shape \(256,\) of float32 in the file and shape \(257,\)",
        ),
        ("model", "unet.head.linear.bias", torch.zeros(257, dtype=torch.int64), "of int64 in the file"),
        ("model", "unet.head.linear.bias", torch.full((257,), torch.nan), "unet.head.linear.bias is not finite"),
        ("optimiser", "extra.step", torch.zeros(()), "extra.step has shape"),
        ("optimiser", "unet.head.linear.bias.extra", torch.zeros(257), "bias.extra has shape"),
        ("optimiser", "unet.head.linear.bias.step", None, "bias.step has no place in the file"),
        ("optimiser", "unet.head.linear.bias.exp_avg", None, "bias.exp_avg has no place in the file"),
        ("optimiser", "unet.head.linear.bias.exp_avg", torch.zeros(1), r"shape \(1,\)"),
        ("optimiser", "unet.head.linear.bias.step", torch.zeros(257), r"shape \(257,\)"),
        ("optimiser", "unet.head.linear.bias.exp_avg_sq", torch.zeros(257, dtype=torch.float16), "of float16"),
    ],
)
def test_tensors_that_do_not_fit_are_named(checkpoint, parts_of, name, key, value, says):
    def edit(tensors):
        tensors.pop(key, None)
        if value is not None:
            tensors[key] = value

    change(checkpoint / f"{name}.safetensors", edit)
    refused(checkpoint, parts_of(), says)


def test_moments_of_another_optimiser_are_refused(checkpoint, parts_of):
    refused(checkpoint, parts_of("training.optimiser=muon"), "does not fit the configuration")


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": None},
        {"format_version": "1"},
        {"format_version": 0},
        {"format_version": True},
        {"step": "7"},
        {"step": -1},
        {"step": 1.5},
        {"bytes_seen": None},
        {"window_bytes": True},
        {"seconds": "1"},
        {"window": []},
        {"window": {"nll": [1.0]}},
        {"window": {"nll": [1.0, "x"]}},
        {"window": {"nll": 3}},
        {"unknown": 1},
        {"step": ...},
        {"format_version": ...},
    ],
)
def test_a_state_of_another_form_is_refused(checkpoint, parts_of, changes):
    record = json.loads((checkpoint / "state.json").read_text()) | changes
    (checkpoint / "state.json").write_text(json.dumps({k: v for k, v in record.items() if v is not ...}))
    refused(checkpoint, parts_of(), r"state.json is missing or damaged \(.+\); use another checkpoint")


@pytest.mark.parametrize("text", ["[]", "7", "null", '"x"', "[" * 100_000, "{}", "\ud800"])
def test_a_state_that_is_no_table_is_refused(checkpoint, parts_of, text):
    (checkpoint / "state.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    refused(checkpoint, parts_of(), "state.json is missing or damaged")


def test_a_newer_format_asks_for_a_newer_byteseam(checkpoint, parts_of):
    record = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps(record | {"format_version": 2, "news": [1]}))
    refused(checkpoint, parts_of(), "has checkpoint format 2, but this byteseam reads up to 1; upgrade byteseam")


# Whole or not at all


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [Interrupted(), OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O")]
)
@pytest.mark.parametrize("when", ["model", "optimiser", "state", "rename"])
def test_what_fails_while_it_is_written_leaves_nothing(tmp_path, monkeypatch, parts_of, when, error):
    def fail(*arguments):
        raise error

    if when == "state":
        monkeypatch.setattr(module, "asdict", fail)
    elif when == "rename":
        monkeypatch.setattr(Path, "rename", fail)
    else:
        monkeypatch.setattr(
            module, "save_file", lambda tensors, path: fail() if when in path.name else save_file(tensors, path)
        )
    expected = Interrupted if isinstance(error, Interrupted) else UserError
    with pytest.raises(expected) as raised:
        save_checkpoint(tmp_path / "run" / "checkpoints", *parts_of(), State(step=3))
    assert names(tmp_path / "run" / "checkpoints") == []
    if expected is UserError:
        text = str(raised.value)
        assert text.startswith(f"cannot write the checkpoint {tmp_path / 'run' / 'checkpoints' / 'step-00000003'} (")
        assert text.endswith(f"go on with: byteseam train --resume {tmp_path / 'run'}")
        assert "\n" not in text


def test_what_a_killed_process_of_our_number_left_is_no_obstacle(tmp_path, parts_of):
    left = tmp_path / f".step-00000003.{os.getpid()}.partial"
    left.mkdir()
    (left / "junk").touch()
    path = save_checkpoint(tmp_path, *parts_of(), State(step=3))
    assert "junk" not in names(path)
    assert names(tmp_path) == [path.name]


# Many


def test_only_whole_ones_count_and_by_number(tmp_path):
    for name in ("step-00000009", "step-00000010", "step-100000000", ".step-00000011.5.partial", "step-backup"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000012").touch()
    assert [path.name for path in checkpoints_of(tmp_path)] == ["step-00000009", "step-00000010", "step-100000000"]
    assert latest_checkpoint(tmp_path).name == name_of(10**8)
    with pytest.raises(UserError, match=r"there is no checkpoint in .*; the run has not reached its first one yet"):
        latest_checkpoint(tmp_path / "none")


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_pruning_keeps_the_newest(tmp_path, keep):
    for number in (1, 2, 3):
        (tmp_path / name_of(number)).mkdir()
        (tmp_path / name_of(number) / "file").touch()
    for left in (".step-00000004.7.partial", ".step-00000001.partial", "step-mine"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "file").touch()
    prune_checkpoints(tmp_path, keep)
    assert names(tmp_path) == [*map(name_of, (1, 2, 3)[-keep:]), "step-mine"]


def test_a_kill_while_pruning_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    for number in (1, 2):
        (tmp_path / name_of(number)).mkdir()

    def killed(path, ignore_errors):
        raise Interrupted

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(Interrupted):
        prune_checkpoints(tmp_path, 1)
    assert [path.name for path in checkpoints_of(tmp_path)] == [name_of(2)]


def test_a_real_run_keeps_as_many_as_asked(tiny_run):
    assert [path.name for path in checkpoints_of(open_run(tiny_run).checkpoints)] == ["step-00000015", "step-00000020"]

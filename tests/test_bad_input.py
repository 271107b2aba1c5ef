"""All bad input at once: exit code 2, one sentence on stderr, no traceback, nothing half-written left behind."""

import builtins
import errno
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from byteseam.cli import main
from byteseam.training import checkpoint as checkpoint_module
from byteseam.training import run as run_module
from byteseam.training.checkpoint import latest_checkpoint


def content(path):
    with path.open("rb") as stream:  # not read_bytes, which may be made to fail
        return stream.read()


class Place:
    """A folder with what a user may have: texts, a configuration, a run; and what may go wrong with them."""

    def __init__(self, root, monkeypatch, toml, run):
        self.root, self.monkeypatch, self.toml, self.finished_run = root, monkeypatch, toml, run

    def train(self, *overrides, out="new"):
        """The arguments of a training that writes to a new folder."""
        return ["train", str(self.toml), "--out", str(self.root / out), "--quiet", *overrides]

    def file(self, name, content=b""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def run(self, name="run"):
        """A run of its own."""
        return Path(shutil.copytree(self.finished_run, self.root / name))

    def checkpoint(self):
        return latest_checkpoint(self.run() / "checkpoints")

    def fail(self, owner, name, error, when=lambda path: True):
        """That function fails as the system would make it fail."""
        real = getattr(owner, name)

        def failing(path, *arguments, **options):
            if when(Path(path)):
                raise OSError(error, os.strerror(error), str(path)) if isinstance(error, int) else error
            return real(path, *arguments, **options)

        self.monkeypatch.setattr(owner, name, failing)

    def listing(self):
        """Every file with its content, but for the cache, where whole prepared corpora may stay."""
        found = {path for path in self.root.rglob("*") if "cache" not in path.parts}
        assert not [path for path in self.root.rglob("*") if "partial" in path.name]
        return {path: content(path) if path.is_file() else None for path in found}


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_toml, tiny_run):
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, monkeypatch, tiny_toml, tiny_run)


BAD = {}
"""Name -> (what the sentence says, what prepares it and gives the arguments)."""


def bad(*says):
    def register(prepare):
        BAD[prepare.__name__.replace("_", " ")] = (says, prepare)
        return prepare

    return register


# Data


@bad("there is no file or folder '", "/no/such/text.txt'")
def missing_data(place):
    return place.train("--data.source", "no/such/text.txt")


@bad("there is no file or folder 'no/such/text.txt'")
def missing_data_to_prepare(place):
    return ["prepare", "no/such/text.txt", "out"]


@bad("the file '", "empty.txt' is empty")
def an_empty_file(place):
    return place.train("--data.source", str(place.file("empty.txt")))


@bad("the folder '", "' has no readable files")
def a_folder_without_readable_files(place):
    place.file("texts/.hidden", b"text")
    (place.root / "texts" / "deeper").mkdir()
    return place.train("--data.source", "./texts")


@bad("the train split of '", "' has ", " bytes, less than one row of 5000: lower training.length_bytes or give more")
def a_corpus_shorter_than_one_row(place):
    place.file("short.txt", b"to be or not to be " * 10)
    return place.train("--data.source", "short.txt", "--training.length_bytes", "5000")


@bad("there is no corpus, file or folder 'gutenbreg': did you mean gutenberg?")
def an_unknown_corpus(place):
    return place.train("--data.source", "gutenbreg")


@bad("a run cannot read standard input again when it resumes: first use byteseam prepare - DIRECTORY")
def standard_input_as_a_source(place):
    return place.train("--data.source", "-")


@bad("needs the package pyarrow: pip install 'byteseam[data]'")
def a_missing_optional_package(place):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.partition(".")[0] in ("pyarrow", "datasets", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    for name in list(sys.modules):
        if name.partition(".")[0] in ("pyarrow", "datasets"):
            place.monkeypatch.delitem(sys.modules, name)
    place.monkeypatch.setattr(builtins, "__import__", without)
    return place.train("--data.source", str(place.file("texts.parquet", b"PAR1 not really PAR1")))


@bad("needs the package datasets: pip install 'byteseam[data]'")
def a_missing_optional_package_for_a_hugging_face_data_set(place):
    a_missing_optional_package(place)
    return place.train("--data.source", "hf:some/name")


# Configuration


@bad("override: unknown key model.widht = 32; did you mean model.width?")
def a_typo_in_a_key(place):
    return place.train("--model.widht", "32")


@bad("mine.toml: unknown key training.learnign_rate = 0.1; did you mean training.learning_rate?")
def a_typo_in_a_key_of_the_file(place):
    place.file("mine.toml", b"[training]\nlearnign_rate = 0.1\n")
    return ["train", "mine.toml"]


@bad("override: model.width must be a whole number of at least 8, got 4")
def a_value_out_of_range(place):
    return place.train("--model.width", "4")


@bad("no-such.toml: no such file")
def a_missing_configuration(place):
    return ["train", "no-such.toml"]


@bad("broken.toml: not valid TOML")
def a_broken_configuration(place):
    place.file("broken.toml", b"[model\n")
    return ["train", "broken.toml"]


# Checkpoints


@bad("model.safetensors is missing, truncated or no safetensors file (", "); use another checkpoint of the run")
def a_truncated_model(place):
    path = place.checkpoint() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    return ["eval", "run"]


@bad("optimiser.safetensors is missing, truncated or no safetensors file (", "); use another checkpoint of the run")
def a_truncated_optimiser(place):
    path = place.checkpoint() / "optimiser.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    return ["train", "--resume", "run"]


@bad("state.json is missing or damaged (", "); use another checkpoint of the run")
def a_truncated_state(place):
    path = place.checkpoint() / "state.json"
    path.write_bytes(path.read_bytes()[:30])
    return ["generate", "run", "--prompt", "a"]


@bad(
    "does not fit the configuration beside it: ",
    " has shape (",
    "use the config.toml that the checkpoint was made with",
)
def a_checkpoint_of_another_shape(place):
    path = place.checkpoint() / "config.toml"
    path.write_text(path.read_text().replace("width = 16", "width = 24"))
    return ["segment", "run", "text"]


@bad("has checkpoint format 99, but this byteseam reads up to 1; upgrade byteseam")
def a_checkpoint_of_a_newer_format(place):
    path = place.checkpoint() / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 99}))
    return ["eval", "run"]


class Trap:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self):
        return open, ("sprung", "w")


@bad("model.safetensors is missing, truncated or no safetensors file (")
def a_hostile_checkpoint(place):
    (place.checkpoint() / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    return ["eval", "run"]


@bad("model.safetensors is broken: ", " is not finite; use another checkpoint of the run")
def a_checkpoint_of_no_numbers(place):
    path = place.checkpoint() / "model.safetensors"
    save_file({name: tensor * float("nan") for name, tensor in load_file(path).items()}, path)
    return ["eval", "run"]


# Runs


@bad("the run directory ", "new exists already; continue it with --resume ", ", or choose another place with --out")
def a_run_directory_that_exists(place):
    place.run("new")
    return place.train()


@bad("there is no run at nowhere; train one with: byteseam train CONFIG.toml --out nowhere")
def a_run_that_is_not_there(place):
    return ["eval", "nowhere"]


@bad("texts is no run: it has no config.toml; name the directory that byteseam train made")
def a_run_that_is_none(place):
    place.file("texts/a.txt", b"text")
    return ["segment", "texts", "a text"]


@bad("there is no checkpoint in run/checkpoints; the run has not reached its first one yet")
def a_run_without_a_checkpoint(place):
    shutil.rmtree(place.run() / "checkpoints")
    return ["generate", "run"]


@bad("is not the one that run was trained on (fingerprint ", "); restore it, or start a new run")
def a_run_whose_corpus_has_changed(place):
    path = place.run() / "environment.json"
    record = json.loads(path.read_text())
    record["corpus"]["fingerprint"] = "another"
    path.write_text(json.dumps(record))
    return ["train", "--resume", "run"]


# The system


@bad("cannot make the run directory ", "new (No space left on device); choose another with --out")
def no_space_for_the_run(place):
    place.fail(Path, "write_bytes", errno.ENOSPC)
    return place.train()


@bad("cannot make the run directory ", "new (Permission denied); choose another with --out")
def no_permission_for_the_run(place):
    place.fail(Path, "mkdir", errno.EACCES, lambda path: "partial" in path.name)
    return place.train()


@bad("cannot make the run directory ", "in/the/way/new (Not a directory); choose another with --out")
def a_file_where_the_run_should_be(place):
    place.file("in/the/way")
    return place.train(out="in/the/way/new")


@bad("no space left to write '", "': free some, or choose a directory on another disk")
def no_space_for_the_corpus(place):
    from byteseam.data import prepare as prepare_module

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.monkeypatch.setattr(prepare_module, "write_manifest", full)
    return ["prepare", str(place.file("text.txt", b"text " * 100)), "out"]


@bad("cannot write no/such/folder/x: No such file or directory")
def no_folder_for_a_picture(place):
    place.run()
    return ["segment", "run", "a text", "--format", "svg", "--out", "no/such/folder/x"]


@bad("cannot write x: No space left on device")
def no_space_for_a_picture(place):
    place.run()
    place.fail(Path, "write_text", errno.ENOSPC)
    return ["segment", "run", "a text", "--format", "svg", "--out", "x"]


@bad("cannot read secret: Permission denied")
def no_permission_to_read_a_text(place):
    place.run()
    place.file("secret")
    place.fail(Path, "read_bytes", errno.EACCES, lambda path: path.name == "secret")
    return ["segment", "run", "secret"]


@pytest.mark.parametrize("name", BAD)
def test_it_is_one_sentence_and_leaves_nothing(place, capsys, name):
    says, prepare = BAD[name]
    arguments = prepare(place)
    before = place.listing()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    place.monkeypatch.undo()
    assert out == ""
    assert err.startswith("byteseam: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    position = 0
    for words in says:  # in this order
        position = err.find(words, position)
        assert position >= 0, err
    assert place.listing() == before


SHORT = "training.total_bytes=1024"  # eight steps, a checkpoint after five


@pytest.mark.parametrize("error", [SafetensorError("I/O error: No space left on device (os error 28)"), errno.ENOSPC])
def test_no_space_in_the_midst_of_training_keeps_what_was_whole(place, capsys, error):
    """The second checkpoint does not fit: the first is there, the run can go on, and nothing else is left."""
    saved = []

    def full(tensors, path):
        saved.append(path)
        if len(saved) > 2:
            raise error if isinstance(error, Exception) else OSError(error, os.strerror(error), str(path))
        return save_file(tensors, path)

    with place.monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "save_file", full)
        assert main(place.train(SHORT)) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith(
        f"byteseam: cannot write the checkpoint {place.root / 'new' / 'checkpoints' / 'step-00000008'} ("
    )
    assert "No space left on device" in err
    assert err.endswith(f"go on with: byteseam train --resume {place.root / 'new'}")
    assert [path.name for path in (place.root / "new" / "checkpoints").iterdir()] == ["step-00000005"]
    assert main(["train", "--resume", str(place.root / "new"), "--quiet"]) == 0
    assert (place.root / "new" / "metrics.jsonl").read_text().count('"evaluation"') == 2


def test_no_space_for_a_line_of_metrics_is_one_sentence_and_can_be_gone_on_from(place, capsys):
    real = run_module.append_json

    def full(path, record):
        if record.get("step") == 6:
            with path.open("a") as stream:
                stream.write('{"kind": "tr')
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, record)

    from byteseam.training import loop

    with place.monkeypatch.context() as patch:
        patch.setattr(loop, "append_json", full)
        assert main(place.train(SHORT)) == 2
    err = capsys.readouterr().err
    assert "metrics.jsonl: no space is left on the device; free some, or write elsewhere\n" in err
    assert main(["train", "--resume", str(place.root / "new"), "--quiet"]) == 0
    lines = (place.root / "new" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines if '"train"' in line] == [3, 6]

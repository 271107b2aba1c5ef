"""A run's directory: made whole or not at all, found again, its lines written and read."""

import errno
import json
import os
from pathlib import Path

import pytest

from byteseam.config_file import load
from byteseam.errors import UserError
from byteseam.training.run import append_json, create_run, drop_after, open_run, read_jsonl


def test_what_a_run_holds(tmp_path, tiny_config):
    run = create_run(tmp_path / "runs" / "a", tiny_config(), {"python": "3"}, b"some \xff bytes")
    assert sorted(path.name for path in run.directory.iterdir()) == [
        "checkpoints",
        "config.toml",
        "environment.json",
        "metrics.jsonl",
        "passage.bin",
        "samples.jsonl",
    ]
    assert run.config() == load(run.config_path) == tiny_config()
    assert json.loads((run.directory / "environment.json").read_text()) == {"python": "3"}
    assert run.passage_path.read_bytes() == b"some \xff bytes"
    assert run.metrics_path.read_bytes() == run.samples_path.read_bytes() == b""
    assert [path.name for path in run.directory.parent.iterdir()] == ["a"]
    assert open_run(run.directory) == run


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_one_that_exists_is_refused_and_left_alone(tmp_path, tiny_config, kind):
    place = tmp_path / "run"
    if kind == "directory":
        place.mkdir()
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"run exists already; continue it with --resume .*run, or .* --out$"):
        create_run(place, tiny_config(), {}, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert kind != "file" or place.read_text() == "mine"


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("call", ["mkdir", "write_text", "write_bytes", "touch", "rename"])
@pytest.mark.parametrize("error", [Interrupted(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_what_fails_while_it_is_made_leaves_nothing(tmp_path, monkeypatch, tiny_config, call, error):
    config, real = tiny_config(), getattr(Path, call)

    def fail(path, *arguments, **options):
        if call != "mkdir" or path.name == "checkpoints":
            raise error
        real(path, *arguments, **options)

    monkeypatch.setattr(Path, call, fail)
    expected = Interrupted if isinstance(error, Interrupted) else UserError
    with pytest.raises(expected) as raised:
        create_run(tmp_path / "new" / "runs" / "a", config, {}, b"")
    assert list(tmp_path.iterdir()) == []
    if expected is UserError:
        place = tmp_path / "new" / "runs" / "a"
        assert str(raised.value) == (
            f"cannot make the run directory {place} (No space left on device); choose another with --out"
        )


def test_a_file_in_the_way_is_one_sentence(tmp_path, tiny_config):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the run directory .*Not a directory.*; choose another"):
        create_run(tmp_path / "file" / "run", tiny_config(), {}, b"")


def test_what_a_killed_process_of_our_number_left_is_no_obstacle(tmp_path, tiny_config):
    left = tmp_path / f".run.{os.getpid()}.partial"
    left.mkdir()
    (left / "junk").touch()
    run = create_run(tmp_path / "run", tiny_config(), {}, b"")
    assert not (run.directory / "junk").exists()
    assert not left.exists()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no run at .*; train one with: byteseam train CONFIG.toml --out "):
        open_run(tmp_path / "none")
    with pytest.raises(UserError, match=r"is no run: it has no config.toml; name the directory that"):
        open_run(tmp_path)
    (tmp_path / "config.toml").touch()
    assert open_run(tmp_path).directory == tmp_path


def test_lines_are_there_at_once_and_come_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = [{"step": 1, "value": 0.1 + 0.2}, {"step": 2, "text": "é 中\u2028\n\x85", "none": None}]
    for number, record in enumerate(records, 1):
        append_json(path, record)
        assert path.read_bytes().count(b"\n") == number
    assert read_jsonl(path) == records
    with pytest.raises(ValueError, match="JSON"):
        append_json(path, {"value": float("nan")})
    assert read_jsonl(path) == records


@pytest.mark.parametrize("rest", [b'{"step": 3', b'{"text": "\xc3', b"\x00\x00\x00", b"{", b"\n\n"])
def test_a_last_line_that_was_cut_is_left_out(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + rest)
    assert read_jsonl(path) == [{"step": 1}, {"step": 2}]
    assert read_jsonl(tmp_path / "none.jsonl") == []


def test_what_came_after_a_step_is_forgotten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for number in (0, 3, 5, 5, 6):
        append_json(path, {"step": number, "text": "é"})
    kept = path.read_bytes().splitlines(keepends=True)[:4]
    with path.open("ab") as stream:
        stream.write(b'{"step": 7')
    drop_after(path, 5)
    assert path.read_bytes() == b"".join(kept)
    drop_after(path, -1)
    assert path.read_bytes() == b""
    assert [item.name for item in tmp_path.iterdir()] == ["metrics.jsonl"]

"""What a run remembers of the machine it ran on."""

import getpass
import json
import platform
from pathlib import Path

import pytest
import torch

import byteseam
from byteseam.training import environment as module
from byteseam.training.environment import describe_environment, processor_name
from byteseam.training.precision import Precision


def test_what_figures_depend_on_is_there():
    record = describe_environment(Precision(torch.device("cpu"), bf16=True), {"source": "x"})
    assert json.loads(json.dumps(record)) == record
    assert record["byteseam"] == byteseam.__version__
    assert record["torch"] == torch.__version__
    assert record["python"] == platform.python_version()
    assert (record["device"], record["bf16"], record["threads"]) == ("cpu", True, torch.get_num_threads())
    assert record["cores"] >= 1
    assert record["corpus"] == {"source": "x"}


def test_nobody_is_named(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "a-machine-of-mine")
    text = json.dumps(describe_environment(Precision(torch.device("cpu"), bf16=False), {}))
    assert "a-machine-of-mine" not in text
    assert "/home" not in text
    if (user := getpass.getuser()) not in ("root", "user"):
        assert user not in text


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [("processor : 0\nmodel name\t: A Fast One @ 3 GHz\nmodel name\t: x\n", "A Fast One @ 3 GHz"), ("x: y\n", None)],
)
def test_the_processor_has_its_own_name_where_the_system_tells(monkeypatch, cpuinfo, name):
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: cpuinfo)
    assert processor_name() == (name or platform.processor() or platform.machine())


def test_a_system_that_tells_nothing_is_no_error(monkeypatch):
    def fail(path, encoding):
        raise FileNotFoundError(2, "No such file", "/proc/cpuinfo")

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    assert processor_name() == platform.machine()

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from byteseam.commands import watch as module
from byteseam.commands.watch import Watcher
from byteseam.inspect import Record
from byteseam.training.checkpoint import State


@pytest.fixture
def stderr(monkeypatch):
    """``stderr(terminal=True)``: what is written there from then on."""

    def make(terminal=False):
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        console = Console(file=stream, force_terminal=terminal, width=90, highlight=False, color_system=None)
        monkeypatch.setattr(module, "stderr_console", lambda: console)
        monkeypatch.setattr(sys, "stderr", stream)
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        return stream

    return make


TRAINER = SimpleNamespace(
    config=SimpleNamespace(training=SimpleNamespace(batch_rows=4, length_bytes=250)),
    total_steps=10,
    state=State(step=0),
)
SUMMARY = {"bits_per_byte": 2.3456, "bytes_per_token": 4.321}


def test_without_a_terminal_there_is_a_line_now_and_then(stderr):
    stream = stderr()
    with Watcher() as watcher:
        watcher.begin(TRAINER)
        for seconds in (1.0, 16.0, 17.0, 32.0):
            watcher.step(State(bytes_seen=int(seconds * 250), seconds=seconds), SUMMARY)
    lines = stream.getvalue().splitlines()
    assert lines == [
        " 40%  2.346 bits/byte  4.32 bytes/token  0.2 kB/s  24 s left",
        " 80%  2.346 bits/byte  4.32 bytes/token  0.2 kB/s  8 s left",
    ]


def test_on_a_terminal_there_is_a_bar(stderr):
    stream = stderr(terminal=True)
    with Watcher() as watcher:
        watcher.begin(TRAINER)
        watcher.step(State(bytes_seen=5000, seconds=5.0), SUMMARY)
        watcher.bar.refresh()
        assert watcher.bar is not None
    assert watcher.bar is None
    assert " 50%" in stream.getvalue()
    assert "2.346 bits/byte  4.32 bytes/token  1.0 kB/s" in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_quiet_one_gives_notices_only(stderr, terminal, tiny_evaluation):
    stream = stderr(terminal)
    with Watcher(quiet=True) as watcher:
        watcher.begin(TRAINER)
        watcher.step(State(bytes_seen=5000, seconds=50.0), SUMMARY)
        watcher.sample(State(), Record("x", b"a b", [True, False, True]))
        watcher.evaluated(State(), tiny_evaluation)
        watcher.notice("the rate is off")
    assert stream.getvalue() == "note: the rate is off\n"


@pytest.fixture
def tiny_evaluation():
    return SimpleNamespace(bits_per_byte=2.5, bytes_per_token=float("inf"))


def test_samples_and_evaluations_are_shown(stderr, tiny_evaluation):
    stream = stderr()
    watcher = Watcher()
    watcher.sample(State(bytes_seen=1_500_000), Record("x", b"[b]a\x1b[0m b\nc", [True] * 12))
    watcher.evaluated(State(bytes_seen=1_500_000), tiny_evaluation)
    text = stream.getvalue()
    assert "after 1.5 MB:\n" in text
    assert "[│b│]│a│⟨1b⟩│[│0│m│·│b│↵│" in text  # no markup, no escape sequence of the text's
    assert "\x1b" not in text
    assert text.endswith("held out, after 1.5 MB: 2.500 bits/byte, inf bytes/token\n")


def test_a_sample_on_a_terminal_has_its_colours(stderr, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    stream = stderr(terminal=True)
    watcher = Watcher()
    watcher.console = Console(file=stream, force_terminal=True, width=90, color_system="256")
    watcher.sample(State(), Record("x", b"ab", [True, False]))
    assert "\x1b[" in stream.getvalue()
    assert "│" not in stream.getvalue()


@pytest.mark.parametrize("summary", [{}, {"bits_per_byte": 3.0}])
@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_what_is_not_known_is_no_error(stderr, summary, seconds):
    stderr()
    watcher = Watcher()
    watcher.begin(TRAINER)
    watcher.step(State(bytes_seen=0, seconds=seconds), summary)
    watcher.end()
    watcher.end()

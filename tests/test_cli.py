"""The command line: what it imports, where its arguments go, and every mistake as one sentence."""

import importlib
import os
import signal
import subprocess
import sys
import types

import pytest

from byteseam import __version__, cli
from byteseam.errors import UserError

HEAVY = ("torch", "numpy", "pydantic", "rich", "jaxtyping", "datasets", "pyarrow")


@pytest.fixture
def command(monkeypatch):
    """``command("train", run=...)``: a stand-in for a command's module; what it was run with lies in ``.seen``."""

    def install(name, run=lambda args: 0, add_arguments=lambda parser: None, **attributes):
        module = types.ModuleType(f"byteseam.commands.{cli.COMMANDS[name][0]}")
        module.seen = []
        module.HELP = "A stand-in."
        module.add_arguments = add_arguments
        module.run = lambda args: (module.seen.append(args), run(args))[1]
        for attribute, value in attributes.items():
            setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    return install


def train_arguments(parser):
    parser.add_argument("config", metavar="CONFIG", nargs="?")
    parser.add_argument("--resume", metavar="RUN")
    parser.add_argument("--out", metavar="RUN")
    parser.add_argument("--json", action="store_true")


def complaint(capsys, *argv):
    """The one sentence that a mistake gives."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("byteseam: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("byteseam: ").rstrip("\n")


# What is imported


@pytest.mark.parametrize("argument", ["--help", "--version", "trian", "--jsno"])
def test_the_outermost_layer_imports_only_the_standard_library(python, argument):
    script = (
        "import sys; from byteseam.cli import main; main([sys.argv[1]]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules] + [m for m in sys.modules if 'commands' in m])"
    )
    done = python("-c", script, argument)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_keeps_its_word_and_its_help_is_light(python, name):
    module_name, line = cli.COMMANDS[name]
    script = (
        "import sys; from byteseam.cli import main; code = main([sys.argv[1], '--help']);"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = python("-c", script, name)
    assert done.stderr == ""
    assert done.stdout.startswith(f"usage: byteseam {name}")
    assert done.stdout.splitlines()[-1] == "0 []"
    module = importlib.import_module(f"byteseam.commands.{module_name}")
    assert isinstance(module.HELP, str)
    assert line == line.strip()


def test_help_names_every_command(byteseam):
    done = byteseam("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for name, (_, line) in cli.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert line in done.stdout


def test_version_and_no_command(byteseam):
    done = byteseam("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"byteseam {__version__}\n", "")
    done = byteseam()
    assert (done.returncode, done.stdout) == (2, "")
    assert "commands:" in done.stderr


# Mistakes


def test_unknown_words_get_the_nearest_name(capsys, command):
    command("train", add_arguments=train_arguments, TAKES_OVERRIDES=True)
    command("eval", add_arguments=train_arguments)
    assert complaint(capsys, "trian") == "unknown command trian; did you mean train?"
    assert complaint(capsys, "zzz").startswith("unknown command zzz; the commands are train, eval, ")
    assert complaint(capsys, "--versoin") == "unknown option --versoin; did you mean --version?"
    assert complaint(capsys, "--json") == "unknown option --json; options go after COMMAND"
    assert complaint(capsys, "train", "--resum", "x") == "train: unknown option --resum; did you mean --resume?"
    assert complaint(capsys, "train", "--resum=x") == "train: unknown option --resum=x; did you mean --resume?"
    assert complaint(capsys, "eval", "--zzz").endswith("unknown option --zzz; byteseam eval --help lists what it takes")
    assert complaint(capsys, "eval", "a", "b").startswith("eval: unknown argument b; ")


def test_an_option_is_never_guessed_from_its_beginning(capsys, command):
    command("eval", add_arguments=train_arguments)
    assert "did you mean --resume?" in complaint(capsys, "eval", "--res", "x")


def test_argparse_speaks_in_one_sentence(capsys, command):
    command("eval", add_arguments=lambda parser: parser.add_argument("run", metavar="RUN"))
    sentence = "eval: the following arguments are required: RUN; byteseam eval --help explains"
    assert complaint(capsys, "eval") == sentence
    command("params", add_arguments=lambda parser: parser.add_argument("--steps", type=int))
    assert "invalid int value: 'x'" in complaint(capsys, "params", "--steps", "x")
    assert "expected one argument" in complaint(capsys, "params", "--steps")


def fail(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize("argv", [["eval"], ["eval", "--json"]])
def test_a_user_error_is_one_line_on_stderr(capsys, command, argv):
    command("eval", fail(UserError("runs/x: no such run;\n  mend it")), train_arguments)
    assert complaint(capsys, *argv) == "runs/x: no such run;   mend it"


def test_what_a_message_quotes_cannot_steer_the_terminal(capsys, command):
    command("eval", fail(UserError("é \x1b[2J \udcff")))
    assert complaint(capsys, "eval") == "é \\x1b[2J \\udcff"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("ENOSPC", "no space is left"),
        ("EACCES", "permission denied"),
        ("EROFS", "the file system is read-only"),
        ("EPERM", "the operation is not permitted"),
        ("ENAMETOOLONG", "the name is too long"),
    ],
)
def test_the_system_refusing_is_one_sentence_with_the_place(capsys, command, number, words):
    code = getattr(cli.errno, number)
    command("prepare", fail(OSError(code, os.strerror(code), "corpora/x")))
    assert complaint(capsys, "prepare").startswith(f"corpora/x: {words}")


def test_a_mistake_of_ours_keeps_its_traceback(command):
    command("eval", fail(KeyError("x")))
    with pytest.raises(KeyError):
        cli.main(["eval"])
    command("eval", fail(FileNotFoundError(2, "No such file", "x")))
    with pytest.raises(FileNotFoundError):
        cli.main(["eval"])


# Overrides


@pytest.mark.parametrize(
    ("argv", "overrides", "config", "resume"),
    [
        (["c.toml"], [], "c.toml", None),
        (["c.toml", "--model.width", "256"], ["--model.width", "256"], "c.toml", None),
        (["--model.width", "256", "c.toml"], ["--model.width", "256"], "c.toml", None),
        (["--model.width=256", "c.toml"], ["--model.width=256"], "c.toml", None),
        (["model.width=256", "c.toml", "seed=3"], ["model.width=256", "seed=3"], "c.toml", None),
        (["c.toml", "--seed", "3", "--json"], ["--seed", "3"], "c.toml", None),
        (["c.toml", "--strategy.rate", "-3"], ["--strategy.rate", "-3"], "c.toml", None),
        (["--model.width", "--resume", "r", "c.toml"], ["--model.width"], "c.toml", "r"),
        (["c.toml", "--model.width"], ["--model.width"], "c.toml", None),
        (["--resume", "a.b=c", "c.toml"], [], "c.toml", "a.b=c"),
        (["--resume=a.b=c", "./d.e=f.toml"], [], "./d.e=f.toml", "a.b=c"),
        (["--data.source", "a=b c", "--", "x.y=z"], ["--data.source", "a=b c"], "x.y=z", None),
    ],
)
def test_overrides_reach_the_command_in_order(command, argv, overrides, config, resume):
    module = command("train", add_arguments=train_arguments, TAKES_OVERRIDES=True)
    assert cli.main(["train", *argv]) == 0
    (args,) = module.seen
    assert (args.overrides, args.config, args.resume) == (overrides, config, resume)


def test_other_commands_take_no_overrides(capsys, command):
    module = command("eval", add_arguments=train_arguments)
    assert "unknown option --model.width" in complaint(capsys, "eval", "run", "--model.width", "3")
    assert cli.main(["eval", "model.width=3"]) == 0
    assert module.seen[0].config == "model.width=3"
    assert not hasattr(module.seen[0], "overrides")


def test_help_mentions_overrides_where_they_are_taken(capsys, command):
    command("train", add_arguments=train_arguments, TAKES_OVERRIDES=True)
    assert cli.main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: byteseam train [-h] ")
    assert "[--TABLE.KEY VALUE ...]" in out


def test_plain_overrides_are_the_settings_outside_every_table():
    import dataclasses

    from byteseam.config import RunConfig

    plain = [field.name for field in dataclasses.fields(RunConfig) if field.type in (int, float, str, bool)]
    assert tuple(plain) == cli.PLAIN_OVERRIDES


# Exit codes of a real process

PROCESS = """
import sys, types
from byteseam.cli import main
module = types.ModuleType("byteseam.commands.corpora")
module.HELP, module.add_arguments = "", lambda parser: None
def run(args):
    {body}
    return 7
module.run = run
sys.modules[module.__name__] = module
sys.exit(main(["corpora"]))
"""


def test_the_command_decides_the_exit_code(python):
    assert python("-c", PROCESS.format(body="pass")).returncode == 7


def test_interrupting_exits_with_130_and_one_line(python):
    # A shell that starts us in the background has SIGINT ignored, and so would we.
    handled = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    body = f"import os, signal; {handled}; os.kill(os.getpid(), signal.SIGINT)"
    done = python("-c", PROCESS.format(body=body))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "byteseam: interrupted\n")


def test_a_reader_that_leaves_is_no_error():
    script = PROCESS.format(body="print('x' * 1_000_000)")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_behind_stdout_is_one_sentence(python):
    with open("/dev/full", "w") as full:
        done = python(
            "-c", PROCESS.format(body="print('x')"), capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    assert done.stderr == "byteseam: no space is left on the device; free some, or write elsewhere\n"


# Where answers go


def test_json_is_one_object_of_plain_utf8(capfdbinary):
    import json
    from pathlib import Path

    import numpy as np
    import torch

    from byteseam.console import stdout_json

    answer = {
        "nan": float("nan"),
        "inf": [float("-inf"), 1.5],
        "text": "é\n中",
        "tensor": torch.tensor([1, 2]),
        "scalar": np.float32("nan"),
        "path": Path("a/b"),
        "odd": "\udcff",
        "deep": {"none": None, "true": True, "tuple": (1, np.int64(2))},
    }
    stdout_json(answer)
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert out.count(b"\n") == 1
    assert out.endswith(b"\n")
    assert "é\\n中".encode() in out
    assert json.loads(out) == {
        "nan": None,
        "inf": [None, 1.5],
        "text": "é\n中",
        "tensor": [1, 2],
        "scalar": None,
        "path": "a/b",
        "odd": "\udcff",
        "deep": {"none": None, "true": True, "tuple": [1, 2]},
    }
    with pytest.raises(TypeError):
        stdout_json({"x": object()})


def test_notices_go_to_stderr_as_they_are(capsys):
    from byteseam.console import notice, stderr_console

    notice("[bold]no markup[/bold] " + "long " * 50 + "end")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "[bold]no markup[/bold] " + "long " * 50 + "end\n"
    assert stderr_console() is stderr_console()

"""The command line: a table of commands, arguments, and every error that a user can mend as one sentence.

``byteseam --help`` imports only the standard library, and ``byteseam COMMAND --help`` that command's module as well.

A command is a module in `byteseam.commands` with ``HELP: str``, ``add_arguments(parser)`` and ``run(args) -> int``;
heavy imports belong inside ``run``. Where ``TAKES_OVERRIDES = True`` stands, settings given as ``--model.width 256``,
``--model.width=256``, ``model.width=256`` or ``--seed 3`` arrive, in order and untouched, as
``args.overrides: list[str]`` for `byteseam.config_file.load`.
"""

import argparse
import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import IO, NoReturn

from byteseam.errors import UserError
from byteseam.threads import calm_threads

COMMANDS = {
    "train": ("train", "train a model from a configuration file, or resume a run"),
    "eval": ("evaluate", "bits per byte, tokens per byte and boundary statistics of a run"),
    "compare": ("compare", "train several strategies at the same cost and put them into one table"),
    "segment": ("segment", "show where a run puts token boundaries in a text"),
    "generate": ("generate", "continue a prompt"),
    "prepare": ("prepare", "turn files or a data set into a prepared corpus"),
    "strategies": ("strategies", "list the ways of placing boundaries"),
    "corpora": ("corpora", "list the corpora that can be used by name"),
    "params": ("params", "count the parameters and FLOPs per byte of a configuration"),
    "gradcheck": ("gradcheck", "check every gradient estimator against the exact gradient"),
    "estimators": ("estimators", "measure every gradient estimator on a trained model and real text"),
    "demo": ("demo", "train the laptop configuration and watch tokens form"),
}
"""Command -> (module in `byteseam.commands`, one line of help)."""

PLAIN_OVERRIDES = ("seed",)
"""Settings that stand outside every table, so that their override has no dot."""

_OVERRIDE_FLAG = re.compile(rf"--(\w[\w-]*(\.[\w-]+)+|{'|'.join(PLAIN_OVERRIDES)})(=.*)?", re.DOTALL)
_OVERRIDE_BARE = re.compile(rf"(\w[\w-]*(\.[\w-]+)+|{'|'.join(PLAIN_OVERRIDES)})=.*", re.DOTALL)

_OS_ERRORS = {
    errno.ENOSPC: "no space is left on the device; free some, or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space, or write elsewhere",
    errno.EACCES: "permission denied; check who may read and write there, or use another place",
    errno.EPERM: "the operation is not permitted there; use another place",
    errno.ENAMETOOLONG: "the name is too long for the system; use a shorter one",
    errno.EROFS: "the file system is read-only; write elsewhere",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 done, 2 something the user can mend, 130 interrupted."""
    try:
        code = _dispatch(sys.argv[1:] if argv is None else list(argv))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except UserError as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:  # whoever read our output has seen enough
        _drop(sys.stdout)
        return 128 + 13
    except OSError as error:
        if error.errno not in _OS_ERRORS:
            raise
        if error.filename is None:  # perhaps stdout itself, which Python would flush, and fail, once more
            _drop(sys.stdout)
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _complain(place + _OS_ERRORS[error.errno], 2)


def _dispatch(argv: list[str]) -> int:
    if not argv:
        print(_help(), file=sys.stderr)
        return 2
    name, *rest = argv
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from byteseam import __version__

        print(f"byteseam {__version__}")
        return 0
    if name.startswith("-"):
        raise UserError(
            f"unknown option {_shown(name)}{_nearest(name, ['--help', '--version'], 'options go after COMMAND')}"
        )
    if name not in COMMANDS:
        raise UserError(
            f"unknown command {_shown(name)}{_nearest(name, COMMANDS, 'the commands are ' + ', '.join(COMMANDS))}"
        )
    calm_threads()
    module = import_module(f"byteseam.commands.{COMMANDS[name][0]}")
    try:
        args = _parse(name, module, rest)
    except SystemExit as done:  # --help
        return int(done.code or 0)
    return int(module.run(args))


def _help() -> str:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:<{width}}  {line}" for name, (_, line) in COMMANDS.items())
    return (
        "usage: byteseam COMMAND ...\n\n"
        "Byte-level language models that learn their own token boundaries by reinforcement learning.\n\n"
        f"commands:\n{table}\n\n"
        "byteseam COMMAND --help explains one; byteseam --version tells the version; byteseam demo is where to start."
    )


def _parse(name: str, module: ModuleType, argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog=f"byteseam {name}", description=module.HELP, allow_abbrev=False)
    module.add_arguments(parser)
    takes_overrides = getattr(module, "TAKES_OVERRIDES", False)
    if takes_overrides:
        parser.usage = f"{parser.format_usage().removeprefix('usage: ').rstrip()} [--TABLE.KEY VALUE ...]"
    overrides, argv = _take_overrides(parser, argv) if takes_overrides else ([], argv)
    args = parser.parse_args(argv)
    if takes_overrides:
        args.overrides = overrides
    return args


def _take_overrides(parser: "_Parser", argv: list[str]) -> tuple[list[str], list[str]]:
    """Part the overrides, each with its value, from what the command itself understands."""
    overrides: list[str] = []
    others: list[str] = []
    words = iter(argv)
    word = next(words, None)
    while word is not None:
        following = next(words, None)
        if word == "--":
            others += [word, *([] if following is None else [following]), *words]
            break
        if _OVERRIDE_BARE.fullmatch(word):
            overrides.append(word)
        elif _OVERRIDE_FLAG.fullmatch(word) and word.partition("=")[0] not in parser.options():
            overrides.append(word)
            if "=" not in word and following is not None and not following.startswith("--"):
                overrides.append(following)
                following = next(words, None)
        else:
            others.append(word)
            if word in parser.options(taking_one_value=True) and following is not None:
                others.append(following)
                following = next(words, None)
        word = following
    return overrides, others


class _Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one sentence, with the nearest name."""

    @property
    def command(self) -> str:
        return self.prog.removeprefix("byteseam ")

    def options(self, taking_one_value: bool = False) -> list[str]:
        return [
            option
            for action in self._actions
            if not taking_one_value or action.nargs in (None, 1)
            for option in action.option_strings
        ]

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            word = next((word for word in extra if word.startswith("-")), extra[0])
            kind = "option" if word.startswith("-") else "argument"
            option = word.partition("=")[0]
            hint = _nearest(option, self.options(), f"{self.prog} --help lists what it takes")
            raise UserError(f"{self.command}: unknown {kind} {_shown(word)}{hint}")
        return parsed

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.command}: {message}; {self.prog} --help explains")


def _nearest(word: str, names: Iterable[str], otherwise: str) -> str:
    known = {name.lstrip("-"): name for name in names}  # dashes would make all options alike
    near = difflib.get_close_matches(word.lstrip("-"), known, n=1)
    return f"; did you mean {known[near[0]]}?" if near else f"; {otherwise}"


def _shown(word: str) -> str:
    """A word from the command line, quoted where it could be misread."""
    return word if re.fullmatch(r"[\w.=/-]+", word) else repr(word)


def _complain(sentence: str, code: int) -> int:
    if sys.stderr is not None:
        line = " ".join(sentence.splitlines())
        # Names and values in it come from anywhere: nothing in them may steer the terminal.
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        print(f"byteseam: {line}", file=sys.stderr)
    return code


def _drop(stream: IO[str] | None) -> None:
    """Point a stream that can no longer be written at the null device: the interpreter flushes it once more."""
    try:
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass

"""Every command that the documents show is one that the command line takes, with files and settings that exist."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from byteseam import cli
from byteseam.commands.demo import default_config
from byteseam.config_file import load
from byteseam.errors import UserError

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
FENCE = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"[A-Z]+(\.toml)?")
"""CONFIG.toml or RUN: to be filled in by the reader."""


def commands(text: str, program: str = "byteseam") -> list[list[str]]:
    """The arguments of every call of a program in the fenced blocks: a prompt, pipes and comments are seen through."""
    found = []
    for _, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"^\s*\$ ", "", line).strip()
            # Output may hold an apostrophe: only lines that could be commands are split.
            if not re.search(rf"(^|[|;&]\s*|/){program} ", line):
                continue
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
            lexer.whitespace_split = True
            call: list[str] | None = None
            for word in lexer:
                if set(word) <= set("|;&<>"):
                    call = None
                elif call is not None:
                    call.append(word)
                elif Path(word).name == program:
                    found.append(call := [])
    return found


def check(argv: list[str]) -> None:
    """Parse a call as the command line does, and load the configuration that it names.

    Raises:
        UserError: for what the command line would refuse.
    """
    name, *rest = argv
    if name in ("--help", "--version", "-h", "-V") or (name in cli.COMMANDS and rest in (["--help"], ["-h"])):
        return
    if name not in cli.COMMANDS:
        raise UserError(f"unknown command {name}")
    args = cli._parse(name, import_module(f"byteseam.commands.{cli.COMMANDS[name][0]}"), rest)
    if not hasattr(args, "overrides"):
        return
    config = args.config
    if config is None and name == "demo":
        config = default_config()
    if config is None:
        if not getattr(args, "resume", None) or args.overrides:
            raise UserError(f"{name} needs a configuration")
        return
    if PLACEHOLDER.fullmatch(str(config)):
        config = ROOT / "configs/laptop.toml"
    load(ROOT / config, args.overrides)


def shown(program: str) -> list:
    return [
        pytest.param(call, id=f"{path.stem}: {shlex.join(call)}")
        for path in DOCUMENTS
        for call in commands(path.read_text(encoding="utf-8"), program)
    ]


@pytest.mark.parametrize("argv", shown("byteseam"))
def test_a_command_that_is_shown_works(argv):
    check(argv)


@pytest.mark.parametrize("argv", shown("make"))
def test_a_target_that_is_shown_exists(argv):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        name for line in re.findall(r"^([a-z-]+(?: [a-z-]+)*):", makefile, re.MULTILINE) for name in line.split()
    }
    assert {word for word in argv if "=" not in word} <= targets


def test_commands_are_found_wherever_they_stand():
    text = """
Not `byteseam here`, nor
byteseam outside

```sh
$ byteseam train configs/laptop.toml \\
    --seed 3   # a comment
cat book.txt | .venv/bin/byteseam segment RUN - --json > out.json
byteseam eval RUN && byteseam generate RUN --prompt 'It was; a "dark"'
```

1. in a list

   ```
   byteseam corpora
   ```

```text
byteseam: it's an error message
the words of byteseam itself
```
"""
    assert commands(text) == [
        ["train", "configs/laptop.toml", "--seed", "3"],
        ["segment", "RUN", "-", "--json"],
        ["eval", "RUN"],
        ["generate", "RUN", "--prompt", 'It was; a "dark"'],
        ["corpora"],
    ]
    for argv in commands(text):
        check(argv)


@pytest.mark.parametrize(
    "line",
    [
        "trian configs/laptop.toml",
        "train",
        "train configs/lapptop.toml",
        "train configs/laptop.toml --strategy.gama 0.9",
        "train CONFIG.toml --strategy.gamma 2",
        "demo --model.width wide",
        "eval RUN --decide always",
        "segment RUN text --formt html",
    ],
)
def test_what_the_command_line_would_refuse_is_refused_here(line):
    with pytest.raises(UserError):
        check(shlex.split(line))

"""What goes where: answers on stdout, progress and notices on stderr."""

import json
import math
import sys
from collections.abc import Mapping
from functools import cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@cache
def stderr_console() -> "Console":
    """The one console for progress and notices; it writes to whatever ``sys.stderr`` is at the time."""
    from rich.console import Console

    class Steadfast(Console):
        def on_broken_pipe(self) -> None:
            """Nobody reads stderr any more. Rich would leave the program and close stdout too, where answers go."""

    return Steadfast(stderr=True, highlight=False)


def stdout_width(otherwise: int) -> int:
    """Columns of the terminal that answers go to; another number where they go to a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else otherwise


def notice(message: str) -> None:
    """Tell the user something in passing, on stderr; no markup, so that any text can stand in it."""
    stderr_console().print(message, markup=False, soft_wrap=True)


def stdout_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object, on one line of UTF-8, and nothing else.

    NaN and the infinities, which JSON lacks, become ``null``; scalars of NumPy and PyTorch become numbers.
    """
    line = json.dumps(_plain(answer), ensure_ascii=False, allow_nan=False, separators=(", ", ": ")) + "\n"
    # A lone surrogate (a file name that is not UTF-8) becomes \udcXX, which is just how JSON spells it.
    encoded = line.encode("utf-8", "backslashreplace")
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(encoded.decode("utf-8"))
    else:
        sys.stdout.flush()
        stream.write(encoded)
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):  # arrays and tensors, those of no axes included
        return _plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")

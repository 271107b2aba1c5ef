"""Byte-level language models that learn their own token boundaries by reinforcement learning.

The public names load on first use: ``import byteseam`` alone imports nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byteseam.config import RunConfig
    from byteseam.config_file import load as load_config
    from byteseam.errors import UserError

__version__ = "0.1.0"

# Public name -> (module, name there). A new name goes here, in __all__ and under TYPE_CHECKING (for type checkers).
_LAZY = {
    "RunConfig": ("byteseam.config", "RunConfig"),
    "UserError": ("byteseam.errors", "UserError"),
    "load_config": ("byteseam.config_file", "load"),
}

__all__ = ["RunConfig", "UserError", "__version__", "load_config"]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

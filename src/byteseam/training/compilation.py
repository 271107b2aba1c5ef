"""torch.compile where it pays."""

import shutil
from typing import Literal

import torch

from byteseam.errors import UserError
from byteseam.language_model import LanguageModel

EARNED_BACK_BYTES = 200e6
"""On a CPU compiling costs a minute or more and saves about a fifth of the time: short runs are better off without."""


def compiles(wanted: Literal["auto", "on", "off"], device: torch.device, total_bytes: float) -> bool:
    """Whether a run's layers are compiled.

    ``auto``: always on a GPU; on a CPU where there is a C++ compiler and the run is long enough to earn it back.

    Raises:
        UserError: if it is asked for on a CPU and there is no C++ compiler.
    """
    compiler = device.type == "cuda" or any(shutil.which(name) for name in ("c++", "g++", "clang++"))
    if wanted == "on" and not compiler:
        raise UserError('training.compile is "on", but there is no C++ compiler: install one, or set it to "off"')
    if wanted == "auto":
        return compiler and (device.type == "cuda" or total_bytes >= EARNED_BACK_BYTES)
    return wanted == "on"


def compile_layers(model: LanguageModel) -> None:
    """Compile the three stacks in place; parameters and their names stay as they are.

    The number of tokens changes from batch to batch: its graph is made for any (`dynamic`).
    """
    model.unet.encoder.compile()
    model.unet.token_model.compile(dynamic=True)
    model.unet.decoder.compile()

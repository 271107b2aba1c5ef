"""Checkpoints: safetensors, TOML and JSON; nothing is ever unpickled. The format: docs/checkpoint-format.md."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from byteseam.config import RunConfig
from byteseam.config_file import dump
from byteseam.errors import UserError
from byteseam.training.optimiser import Optimiser

FORMAT_VERSION = 1


@dataclass(slots=True)
class State:
    """Where a run stands, tensors aside."""

    step: int = 0
    """Optimiser steps taken."""
    bytes_seen: int = 0
    """Positions trained on."""
    seconds: float = 0.0
    """Wall time spent training, over all starts."""
    window: dict[str, list[float]] = field(default_factory=dict)
    """Metrics since the last line of metrics.jsonl: name -> [total, count]."""
    window_seconds: float = 0.0
    window_bytes: int = 0


def name_of(step: int) -> str:
    """``step-00001000``."""
    return f"step-{step:08d}"


def save_checkpoint(directory: Path, config: RunConfig, model: nn.Module, optimiser: Optimiser, state: State) -> Path:
    """Write ``directory/step-...`` whole or not at all; returns its path. One that exists is left as it is.

    Raises:
        UserError: no space, no permission.
    """
    final = directory / name_of(state.step)
    if final.exists():
        return final
    partial = directory / f".{final.name}.{os.getpid()}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had our number
    try:
        partial.mkdir(parents=True)
        (partial / "config.toml").write_text(dump(config), encoding="utf-8")
        save_file(model.state_dict(), partial / "model.safetensors")
        save_file(_optimiser_tensors(model, optimiser), partial / "optimiser.safetensors")
        record = {"format_version": FORMAT_VERSION, **asdict(state)}
        (partial / "state.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for path in partial.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        partial.rename(final)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            raise UserError(
                f"cannot write the checkpoint {final} ({_short(error)}); "
                f"see to that, then go on with: byteseam train --resume {directory.parent}"
            ) from error
        raise
    return final


def checkpoints_of(directory: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    found = [path for path in directory.glob("step-*") if path.name[5:].isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def latest_checkpoint(directory: Path) -> Path:
    """The newest whole checkpoint under a run's ``checkpoints``.

    Raises:
        UserError: if there is none.
    """
    found = checkpoints_of(directory)
    if not found:
        raise UserError(f"there is no checkpoint in {directory}; the run has not reached its first one yet")
    return found[-1]


def prune_checkpoints(directory: Path, keep: int) -> None:
    """Delete all but the newest, and what a kill left half-written."""
    for path in directory.glob(".step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)
    for path in checkpoints_of(directory)[:-keep]:
        # Under another name first: a kill must not leave half of a checkpoint under its own.
        shutil.rmtree(path.rename(path.with_name(f".{path.name}.partial")), ignore_errors=True)


def read_state(checkpoint: Path) -> State:
    """Where the run stood.

    Raises:
        UserError: if the file is missing, damaged, or of a newer format.
    """
    path = checkpoint / "state.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = record.pop("format_version")
        if type(version) is not int or version < 1:
            raise TypeError("format_version is no version")
        if version > FORMAT_VERSION:
            raise UserError(
                f"{path} has checkpoint format {version}, but this byteseam reads up to {FORMAT_VERSION}; "
                "upgrade byteseam"
            )
        if missing := {item.name for item in fields(State)} - set(record):
            raise ValueError(f"no {', '.join(sorted(missing))}")
        state = State(**record)
        counts, seconds = (state.step, state.bytes_seen, state.window_bytes), (state.seconds, state.window_seconds)
        if any(type(value) is not int or value < 0 for value in counts):
            raise TypeError("a count is none")
        if any(type(value) not in (int, float) for value in seconds):
            raise TypeError("a time is none")
        if any([type(part) for part in mean] != [float, float] for mean in state.window.values()):
            raise TypeError("a mean is none")
        return state
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is missing or damaged ({_short(error)}); use another checkpoint of the run") from error


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Fill a model in place.

    Raises:
        UserError: if the file is missing, truncated, no safetensors file, holds another model's shapes, or numbers
            that are not finite.
    """
    read_state(checkpoint)
    path = checkpoint / "model.safetensors"
    tensors = _read_tensors(path)
    _compare(path, tensors, model.state_dict())
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise UserError(f"{path} is broken: {name} is not finite; use another checkpoint of the run")
    model.load_state_dict(tensors)


def load_optimiser(checkpoint: Path, model: nn.Module, optimiser: Optimiser) -> None:
    """Fill an optimiser's moments in place; raises like `load_model`."""
    path = checkpoint / "optimiser.safetensors"
    tensors = _read_tensors(path)
    kinds = optimiser.kinds()
    expected: dict[str, Tensor] = {}
    moments: dict[Tensor, dict[str, Tensor]] = {}
    for name, parameter in model.named_parameters():
        keys = {kind: f"{name}.{kind}" for kind in kinds[parameter]}
        if not any(key in tensors for key in keys.values()):
            continue  # it never had a gradient
        # A step counter is a scalar; whatever else is gathered has the parameter's shape.
        expected |= {key: torch.zeros(()) if kind == "step" else parameter for kind, key in keys.items()}
        moments[parameter] = {kind: tensors[key].to(parameter.device) for kind, key in keys.items() if key in tensors}
    _compare(path, tensors, expected)
    optimiser.restore(moments)


def _optimiser_tensors(model: nn.Module, optimiser: Optimiser) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{kind}": value.contiguous()
        for parameter, moments in optimiser.moments().items()
        for kind, value in moments.items()
    }


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(
            f"{path} is missing, truncated or no safetensors file ({_short(error)}); use another checkpoint of the run"
        ) from error


def _compare(path: Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name in [*expected, *tensors]:
        wanted, found = _form(expected.get(name)), _form(tensors.get(name))
        if wanted != found:
            raise UserError(
                f"{path} does not fit the configuration beside it: {name} has {found} in the file "
                f"and {wanted} in the model; use the config.toml that the checkpoint was made with"
            )


def _form(tensor: Tensor | None) -> str:
    if tensor is None:
        return "no place"
    return f"shape {tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _short(error: BaseException) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split())[:120] or type(error).__name__

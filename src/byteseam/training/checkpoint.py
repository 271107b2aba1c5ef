"""Checkpoints: safetensors, TOML and JSON; nothing is ever unpickled. The format: docs/checkpoint-format.md."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
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
    """Write ``directory/step-...`` whole or not at all; returns its path. One that exists is left as it is."""
    final = directory / name_of(state.step)
    if final.exists():
        return final
    partial = directory / f".{final.name}.{os.getpid()}.partial"
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
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return final


def checkpoints_of(directory: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(path for path in directory.glob("step-*") if path.is_dir())


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
    for path in checkpoints_of(directory)[:-keep]:
        shutil.rmtree(path)
    for path in directory.glob(".step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def read_state(checkpoint: Path) -> State:
    """Where the run stood.

    Raises:
        UserError: if the file is missing, damaged, or of a newer format.
    """
    path = checkpoint / "state.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = record.pop("format_version")
        if not isinstance(version, int):
            raise TypeError("format_version is no number")
        if version > FORMAT_VERSION:
            raise UserError(
                f"{path} has checkpoint format {version}, but this byteseam reads up to {FORMAT_VERSION}; "
                "upgrade byteseam"
            )
        state = State(**record)
        if [type(value) for value in (state.step, state.bytes_seen, state.window)] != [int, int, dict]:
            raise TypeError("a field has another type")
        return state
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is missing or damaged ({_short(error)}); use another checkpoint of the run") from error


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Fill a model in place.

    Raises:
        UserError: if the file is missing, truncated, no safetensors file, or holds another model's shapes.
    """
    read_state(checkpoint)
    path = checkpoint / "model.safetensors"
    tensors = _read_tensors(path)
    expected = model.state_dict()
    _compare(path, tensors, {name: tensor.shape for name, tensor in expected.items()})
    model.load_state_dict(tensors)


def load_optimiser(checkpoint: Path, model: nn.Module, optimiser: Optimiser) -> None:
    """Fill an optimiser's moments in place; raises like `load_model`."""
    path = checkpoint / "optimiser.safetensors"
    tensors = _read_tensors(path)
    parameters = dict(model.named_parameters())
    shapes: dict[str, torch.Size] = {}
    moments: dict[Tensor, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition(".")
        if name in parameters:
            # A step counter is a scalar; whatever else is gathered has the parameter's shape.
            shapes[key] = torch.Size() if kind == "step" else parameters[name].shape
            moments.setdefault(parameters[name], {})[kind] = tensor.to(parameters[name].device)
    _compare(path, tensors, shapes)
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


def _compare(path: Path, tensors: dict[str, Tensor], shapes: dict[str, torch.Size]) -> None:
    for name in [*shapes, *tensors]:
        wanted = tuple(shapes[name]) if name in shapes else None
        found = tuple(tensors[name].shape) if name in tensors else None
        if wanted != found:
            raise UserError(
                f"{path} does not fit the configuration beside it: {name} has shape {found} in the file "
                f"and {wanted} in the model; use the config.toml that the checkpoint was made with"
            )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__

"""A run is a directory, complete and movable.

::

    RUN/
      config.toml          the resolved configuration
      environment.json     versions, processor, precision, threads, corpus
      passage.bin          the held-out bytes that samples are cut from
      metrics.jsonl        one JSON object a line (docs/metrics.md)
      samples.jsonl        the passage's segmentation over the course of training
      checkpoints/step-00001000/   see docs/checkpoint-format.md
"""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byteseam.config import RunConfig
from byteseam.config_file import dump, load
from byteseam.errors import UserError


@dataclass(frozen=True, slots=True)
class Run:
    """The paths of a run."""

    directory: Path

    @property
    def config_path(self) -> Path:
        return self.directory / "config.toml"

    @property
    def metrics_path(self) -> Path:
        return self.directory / "metrics.jsonl"

    @property
    def samples_path(self) -> Path:
        return self.directory / "samples.jsonl"

    @property
    def passage_path(self) -> Path:
        return self.directory / "passage.bin"

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def config(self) -> RunConfig:
        """The run's configuration.

        Raises:
            UserError: if it cannot be read or does not fit this version.
        """
        return load(self.config_path)


def create_run(directory: Path, config: RunConfig, environment: Mapping[str, Any], passage: bytes) -> Run:
    """Make a run's directory, whole or not at all.

    Raises:
        UserError: if the directory exists, or cannot be made.
    """
    refuse_existing(directory)
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had our number
    made: list[Path] = []
    try:
        made += [folder for folder in directory.parents if not folder.exists()]
        partial.mkdir(parents=True)
        (partial / "checkpoints").mkdir()
        (partial / "config.toml").write_text(dump(config), encoding="utf-8")
        (partial / "environment.json").write_text(json.dumps(environment, indent=2) + "\n", encoding="utf-8")
        (partial / "passage.bin").write_bytes(passage)
        (partial / "metrics.jsonl").touch()
        (partial / "samples.jsonl").touch()
        partial.rename(directory)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise UserError(
                f"cannot make the run directory {directory} ({error.strerror or error}); choose another with --out"
            ) from error
        raise
    return Run(directory)


def refuse_existing(directory: Path) -> None:
    """A new run needs a new directory.

    Raises:
        UserError: if it exists.
    """
    if os.path.lexists(directory):
        raise UserError(
            f"the run directory {directory} exists already; "
            f"continue it with --resume {directory}, or choose another place with --out"
        )


def open_run(directory: Path) -> Run:
    """A run that exists.

    Raises:
        UserError: if this is no run.
    """
    if not directory.exists():
        raise UserError(f"there is no run at {directory}; train one with: byteseam train CONFIG.toml --out {directory}")
    if not (directory / "config.toml").is_file():
        raise UserError(f"{directory} is no run: it has no config.toml; name the directory that byteseam train made")
    return Run(directory)


def append_json(path: Path, record: Mapping[str, Any]) -> None:
    """One more line, handed to the operating system at once, so that a kill loses nothing that was written."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False, default=str)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last line that a kill cut short is left out. Nothing, if there is no file."""
    records = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records


def drop_after(path: Path, step: int) -> None:
    """Forget what was written after this step, atomically: a resumed run writes it again."""
    kept = [record for record in read_jsonl(path) if record.get("step", 0) <= step]
    write_atomically(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))


def write_atomically(path: Path, text: str) -> None:
    """A whole file or the one before."""
    replacement = path.with_suffix(".partial")
    replacement.write_text(text, encoding="utf-8")
    replacement.replace(path)

"""A trained model, read from a run or from one of its checkpoints."""

from dataclasses import dataclass
from pathlib import Path

import torch

from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.data.batches import evaluation_batches
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.evaluation.decide import DEFAULT_THRESHOLD, Decider, Mode, calibrate
from byteseam.language_model import LanguageModel
from byteseam.strategies import Strategy
from byteseam.training.checkpoint import State, latest_checkpoint, load_model, read_state
from byteseam.training.precision import Precision, choose_precision
from byteseam.training.run import open_run

CALIBRATION_BYTES = 100_000
"""Held-out bytes that a threshold for a rate is found on."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model ready for use, its schedules at the end of training."""

    config: RunConfig
    model: LanguageModel
    strategy: Strategy
    precision: Precision
    state: State
    checkpoint: Path

    @staticmethod
    def open(path: Path) -> "Trained":
        """From a run (its newest checkpoint) or from a checkpoint directory.

        Raises:
            UserError: if there is none, or it is damaged, of another shape, or of a newer format.
        """
        if (path / "state.json").is_file():
            checkpoint = path
        else:
            checkpoint = latest_checkpoint(open_run(path).checkpoints)
        config = load(checkpoint / "config.toml")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        precision = choose_precision(config.training.precision, device)
        model = LanguageModel(config.model, config.strategy)
        load_model(checkpoint, model)
        model.to(device).eval()
        return Trained(config, model, config.strategy.at(1.0), precision, read_state(checkpoint), checkpoint)

    def corpus(self, source: str | None = None) -> Corpus:
        """The held-out split of the run's own data, or of another source."""
        from dataclasses import replace

        data = self.config.data if source is None else replace(self.config.data, source=source)
        return Corpus.open(resolve(data), "validation")

    def decider(self, mode: Mode, threshold: float | None, bytes_per_token: float | None, seed: int) -> Decider:
        """How to decide; for ``rate`` the threshold is calibrated on the run's held-out text.

        Raises:
            UserError: for a threshold or rate outside its range, or one given to a mode that has none.
        """
        if threshold is not None and mode != "threshold":
            raise UserError(f"--threshold goes with --decide threshold, not with --decide {mode}")
        if bytes_per_token is not None and mode != "rate":
            raise UserError(f"--bytes-per-token goes with --decide rate, not with --decide {mode}")
        if mode == "rate" and self.strategy.learned:
            wanted = self.strategy.bytes_per_token if bytes_per_token is None else bytes_per_token
            if not wanted >= 1:
                raise UserError(f"--bytes-per-token is {wanted}, but a token has at least 1 byte")
            length = self.config.training.length_bytes
            rows = max(1, 8192 // length)
            held_out = [batch for batch, _ in evaluation_batches(self.corpus(), length, rows, CALIBRATION_BYTES)]
            with self.precision.autocast():
                found, _ = calibrate(self.model, self.strategy, held_out, 1 / wanted)
            return Decider("rate", found, seed)
        if threshold is not None and not 0 <= threshold <= 1:
            raise UserError(f"--threshold is {threshold}, but a probability lies between 0 and 1")
        return Decider(mode, DEFAULT_THRESHOLD if threshold is None else threshold, seed)

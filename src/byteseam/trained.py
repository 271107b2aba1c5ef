"""A trained model, read from a run or from one of its checkpoints."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.evaluation.decide import Decider, Mode
from byteseam.language_model import LanguageModel
from byteseam.strategies import DEFAULT_THRESHOLD, Strategy
from byteseam.training.checkpoint import State, latest_checkpoint, load_model, read_state
from byteseam.training.loop import calibrated, scoring_batches
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
        state = read_state(checkpoint)  # first: a newer format may have keys that are unknown here
        config = load(checkpoint / "config.toml")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        precision = choose_precision(config.training.precision, device)
        model = LanguageModel(config.model, config.strategy)
        load_model(checkpoint, model)
        model.to(device).eval()
        return Trained(config, model, config.strategy.at(1.0), precision, state, checkpoint)

    def corpus(self, source: str | None = None) -> Corpus:
        """The held-out split of the run's own data, or of another source."""
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
        if not self.strategy.learned and (threshold is not None or bytes_per_token is not None):
            name = type(self.strategy).name
            raise UserError(f"the strategy {name} has no threshold and no rate to set; leave them out")
        if mode == "rate" and self.strategy.learned:
            wanted = self.strategy.bytes_per_token if bytes_per_token is None else bytes_per_token
            if not wanted >= 1:
                raise UserError(f"--bytes-per-token is {wanted}, but a token has at least 1 byte")
            length, device = self.config.training.length_bytes, self.precision.device
            held_out = scoring_batches(self.corpus(), length, device, CALIBRATION_BYTES)
            return calibrated(self.model, self.strategy, held_out, self.precision, 1 / wanted, seed)
        if threshold is not None and not 0 <= threshold <= 1:
            raise UserError(f"--threshold is {threshold}, but a probability lies between 0 and 1")
        return Decider(mode, DEFAULT_THRESHOLD if threshold is None else threshold, seed)

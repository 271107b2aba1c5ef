"""Averages over a window of steps, with their counts, and what a line of metrics.jsonl says."""

import math
import resource
import sys

import torch

from byteseam.training.objective import Metrics
from byteseam.types import Mean


class Window:
    """Totals and counts since the last line."""

    def __init__(self, means: dict[str, Mean] | None = None) -> None:
        self.means: dict[str, Mean] = means or {}

    def add(self, metrics: Metrics) -> None:
        """Add a step's totals and counts. One host synchronisation for all of them."""
        names = list(metrics)
        for name, (total, count) in zip(names, torch.stack([metrics[name] for name in names]).tolist(), strict=True):
            self.means[name] = self.means.get(name, Mean(0.0, 0.0)) + Mean(total, count)

    def add_value(self, name: str, value: float) -> None:
        """Add one number that counts once."""
        self.means[name] = self.means.get(name, Mean(0.0, 0.0)) + Mean(value, 1.0)

    def to_state(self) -> dict[str, list[float]]:
        """For a checkpoint."""
        return {name: [mean.total, mean.count] for name, mean in self.means.items()}

    @staticmethod
    def from_state(state: dict[str, list[float]]) -> "Window":
        """From a checkpoint."""
        return Window({name: Mean(total, count) for name, (total, count) in state.items()})

    def summary(self) -> dict[str, float]:
        """The window's averages under the names of docs/metrics.md; what is not a number is left out."""
        values = {name: mean.value for name, mean in self.means.items()}
        out: dict[str, float] = {}
        for old, new in (("nll", "bits_per_byte"), ("early_nll", "early_bits_per_byte")):
            if old in values:
                out[new] = values.pop(old) / math.log(2)
        for name in ("advantage", "return"):
            if f"{name}_square" in values:
                out[f"{name}_rms_nats"] = math.sqrt(values.pop(f"{name}_square"))
        for name in ("return_mean", "policy_entropy", "entropy_threshold"):
            if name in values:
                out[f"{name}_nats"] = values.pop(name)
        if values.get("rate"):
            out["bytes_per_token"] = 1 / values["rate"]
        return {name: value for name, value in (out | values).items() if math.isfinite(value)}


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this process has held: on a GPU the device's, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

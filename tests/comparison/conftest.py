"""Results made by hand, and a small configuration."""

import base64
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from byteseam.comparison.measure import RunResult
from byteseam.inspect import Record

TEXT = b"to be or <b>not</b>, \xe4\xb8\xad\xff"


@pytest.fixture
def result() -> Callable[..., RunResult]:
    """``result("gumbel", 0, bits=[10.0, 30.0], rate=0.2)``: a run on documents of 10 and 20 bytes."""

    def make(
        label: str, seed: int = 0, *, bits: list[float], rate: float = 0.2, boundary=(2, 5, 8), **changes
    ) -> RunResult:
        cut = np.zeros(len(TEXT), np.bool_)
        cut[list(boundary)] = True
        record = Record("passage", TEXT, cut)
        import json

        fields = {
            "label": label,
            "seed": seed,
            "strategy": "gumbel",
            "settings": {},
            "bits_per_byte": sum(bits) / 30,
            "early_bits_per_byte": 3.0,
            "document_bits": bits,
            "document_bytes": [10, 20],
            "rate": rate,
            "target_rate": 0.2,
            "steered": True,
            "whole_bytes": False,
            "training_flops_per_byte": 2e6,
            "inference_flops_per_byte": 1e6,
            "parameters": 1000,
            "bytes_trained": 5000,
            "seconds": 2.5,
            "agreement": {"whitespace_boundary_share": 0.5, "boundary_inside_character_share": None},
            "boundaries": base64.b64encode(np.packbits(cut).tobytes()).decode(),
            "gold": None,
            "matched": None,
            "probes": {},
            "curve": [
                {"step": 1, "bytes_seen": 100, "seconds": 1.0, "bits_per_byte": 5.0, "rate": 0.3, "held_out": 0.0},
                {"step": 2, "bytes_seen": 200, "seconds": 2.0, "bits_per_byte": 4.0, "rate": 0.2, "held_out": 1.0},
            ],
            "passage": json.loads(record.to_json()),
        }
        return RunResult(**(fields | changes))

    return make


@pytest.fixture
def small_toml(tmp_path: Path, tiny_toml: Path) -> Path:
    """A configuration of 5 steps."""
    path = tmp_path / "small.toml"
    text = tiny_toml.read_text().replace("total_bytes = 2560", "total_bytes = 640")
    path.write_text(text + "\nmax_bytes = 200\n" if "[evaluation]" not in text else text)
    return path

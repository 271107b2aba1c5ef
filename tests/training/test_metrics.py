"""Averages over a window of steps."""

import math
from pathlib import Path

import pytest
import torch

from byteseam.training.metrics import Window, peak_memory_bytes


def metrics(**pairs):
    return {name: torch.tensor(pair) for name, pair in pairs.items()}


def test_means_weigh_by_their_counts():
    window = Window()
    window.add(metrics(nll=[6.0, 2.0], rate=[1.0, 4.0]))
    window.add(metrics(nll=[1.0, 1.0], probability=[1.0, 2.0]))
    window.add_value("gradient_norm", 3.0)
    window.add_value("gradient_norm", 4.0)
    summary = window.summary()
    assert summary["bits_per_byte"] == pytest.approx(7 / 3 / math.log(2))
    assert summary["probability"] == 0.5
    assert summary["gradient_norm"] == 3.5
    assert summary["rate"] == 0.25
    assert summary["bytes_per_token"] == 4.0


def test_names_and_units():
    window = Window()
    window.add(
        metrics(
            early_nll=[math.log(2), 1.0],
            advantage_square=[18.0, 2.0],
            return_square=[8.0, 2.0],
            return_mean=[1.0, 2.0],
            policy_entropy=[3.0, 2.0],
            value_error=[5.0, 2.0],
        )
    )
    assert window.summary() == pytest.approx(
        {
            "early_bits_per_byte": 1.0,
            "advantage_rms_nats": 3.0,
            "return_rms_nats": 2.0,
            "return_mean_nats": 0.5,
            "policy_entropy_nats": 1.5,
            "value_error": 2.5,
        }
    )


def test_what_is_no_number_is_left_out():
    window = Window()
    window.add(metrics(nll=[0.0, 0.0], advantage_square=[0.0, 0.0], rate=[0.0, 5.0], odd=[math.inf, 1.0]))
    assert window.summary() == {"rate": 0.0}
    assert Window().summary() == {}


def test_a_window_survives_a_checkpoint():
    window = Window()
    window.add(metrics(nll=[0.1, 3.0], rate=[1.0, 4.0]))
    again = Window.from_state(window.to_state())
    assert again.means == window.means
    again.add(metrics(nll=[0.2, 1.0]))
    assert again.means != window.means
    assert Window.from_state({}).means == {}


def test_peak_memory_is_in_bytes():
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the system does not tell otherwise")
    kilobytes = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    assert peak_memory_bytes(torch.device("cpu")) == pytest.approx(kilobytes * 1024, rel=0.02)

"""Which arithmetic is chosen."""

import pytest
import torch

from byteseam.training import precision as module
from byteseam.training.precision import Precision, choose_precision, processor_has_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "device", "able", "bf16"),
    [
        ("fp32", "cpu", True, False),
        ("bf16", "cpu", False, True),
        ("auto", "cpu", True, True),
        ("auto", "cpu", False, False),
        ("fp32", "cuda", True, False),
        ("auto", "cuda", True, True),
        ("auto", "cuda", False, False),
        ("auto", "mps", True, False),
    ],
)
def test_what_is_wanted_or_what_the_processor_does_well(monkeypatch, wanted, device, able, bf16):
    monkeypatch.setattr(module, "processor_has_bf16", lambda: able)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: able)
    chosen = choose_precision(wanted, torch.device(device))
    assert (chosen.device.type, chosen.bf16) == (device, bf16)


@pytest.mark.parametrize(
    ("capabilities", "has"), [({"amx_bf16": True}, True), ({"amx_bf16": False}, False), ({}, False)]
)
def test_matrix_units_decide_and_not_emulation(monkeypatch, capabilities, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities | {"avx512_bf16": True}, raising=False)
    assert processor_has_bf16() is has
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert processor_has_bf16() is False


@pytest.mark.parametrize("bf16", [True, False])
def test_autocast_is_of_the_chosen_type(bf16):
    matrix = torch.ones(2, 2)
    with Precision(CPU, bf16).autocast():
        assert (matrix @ matrix).dtype == (torch.bfloat16 if bf16 else torch.float32)
    assert (matrix @ matrix).dtype == torch.float32

"""Muon against PyTorch's own, and its iteration against singular values."""

import pytest
import torch
from torch import nn

from byteseam.training import muon
from byteseam.training.muon import Muon, orthogonalised

SHAPES = ((6, 4), (4, 6), (6, 4), (5, 5))


def parameters(seed=0):
    """Some matrices, two of them of one shape."""
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@pytest.mark.parametrize("shape", [(3, 8, 5), (2, 5, 8), (1, 7, 7)])
def test_singular_values_become_about_one_and_their_vectors_stay(shape):
    drawn = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, s, v = torch.linalg.svd(drawn, full_matrices=False)
    matrices = u @ torch.diag_embed(0.1 + s) @ v
    result = orthogonalised(matrices)
    assert result.shape == shape
    kept = u.mT @ result @ v.mT
    diagonal = kept.diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(kept, torch.diag_embed(diagonal), atol=1e-10)
    assert diagonal.min() > 0.67
    assert diagonal.max() < 1.15


def test_zero_stays_zero():
    assert torch.equal(orthogonalised(torch.zeros(1, 3, 4)), torch.zeros(1, 3, 4))


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 0.03), (True, 0.01)])
def test_steps_are_those_of_pytorch_to_its_rounding(monkeypatch, bf16, tolerance):
    """PyTorch's products are bf16, which alone moves a step by up to 2 %; ours in bf16 round alike."""
    monkeypatch.setattr(muon, "processor_has_bf16", lambda: bf16)
    ours, theirs = parameters(), parameters()
    mine = Muon([{"params": ours}], lr=0.1, weight_decay=0.05)
    reference = torch.optim.Muon(
        [{"params": theirs}], lr=0.1, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(4):
        for one, other, gradient in zip(ours, theirs, parameters(1 + step), strict=True):
            one.grad, other.grad = gradient.detach().clone(), gradient.detach().clone()
        mine.step()
        reference.step()
    for one, other, start in zip(ours, theirs, parameters(), strict=True):
        moved = (other - start).detach()
        assert float((one - other).detach().norm()) < tolerance * float(moved.norm())
        mine_gathered, gathered = mine.state[one]["momentum_buffer"], reference.state[other]["momentum_buffer"]
        assert torch.allclose(mine_gathered, gathered, rtol=1e-6)


def test_a_parameter_without_gradient_stays_and_gathers_nothing():
    still, moving = parameters()[:2]
    moving.grad = torch.ones_like(moving)
    before = still.detach().clone()
    optimiser = Muon([{"params": [still, moving]}], lr=0.1, weight_decay=0.5)
    optimiser.step()
    assert torch.equal(still, before)
    assert still not in optimiser.state


def test_products_are_fp32_where_the_processor_has_no_units_for_bf16(monkeypatch):
    seen = []
    monkeypatch.setattr(muon, "processor_has_bf16", lambda: False)
    monkeypatch.setattr(muon, "orthogonalised", lambda matrices: seen.append(matrices.dtype) or matrices)
    matrix = parameters()[0]
    matrix.grad = torch.ones_like(matrix)
    Muon([{"params": [matrix]}], lr=0.1, weight_decay=0.0).step()
    assert seen == [torch.float32]

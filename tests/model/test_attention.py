import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from byteseam.model import attention
from byteseam.model.attention import BLOCK, BlockedWindow, FullCausal


def naive(query: Tensor, key: Tensor, value: Tensor, document_ids: Tensor, window: int) -> Tensor:
    """A softmax over a mask of L x L."""
    length = query.shape[1]
    scores = torch.einsum("bqhe,bkhe->bhqk", query, key) / query.shape[-1] ** 0.5
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = (distance >= 0) & (distance < window) & (document_ids[:, :, None] == document_ids[:, None, :])
    weights = torch.softmax(scores.masked_fill(~seen[:, None], -torch.inf), dim=-1)
    return torch.einsum("bhqk,bkhe->bqhe", weights, value)


def inputs(rows: int, length: int, dtype=torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = torch.randn(3, rows, length, 2, 4, dtype=torch.float64, generator=generator).to(dtype).unbind()
    return query, key, value


def documents(rows: int, length: int, share: float) -> Tensor:
    return (torch.rand(rows, length) < share).cumsum(1)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("length", ["window-1", "window", "window+1", BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_a_window_equals_the_naive_mask(window, length):
    if isinstance(length, str):
        length = {"window-1": window - 1, "window": window, "window+1": window + 1}[length]
    tensors = inputs(3, length)
    for share in (0.0, 0.3, 1.0):
        document_ids = documents(3, length, share)
        found = BlockedWindow.build(document_ids, window)(*tensors)
        torch.testing.assert_close(found, naive(*tensors, document_ids, window))


@given(st.integers(1, 8), st.lists(st.booleans(), min_size=1, max_size=25), st.integers(0, 2**31))
def test_a_window_equals_the_naive_mask_wherever_documents_break(window, breaks, seed):
    document_ids = torch.tensor([breaks]).cumsum(1)
    tensors = inputs(1, len(breaks), seed=seed)
    found = BlockedWindow.build(document_ids, window)(*tensors)
    torch.testing.assert_close(found, naive(*tensors, document_ids, window))


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_full_attention_equals_the_naive_mask(length, share):
    document_ids, tensors = documents(2, length, share), inputs(2, length)
    found = FullCausal.build(document_ids)(*tensors)
    torch.testing.assert_close(found, naive(*tensors, document_ids, length))


def test_a_window_that_reaches_everything_is_full_attention():
    document_ids, tensors = documents(2, 11, 0.2), inputs(2, 11)
    torch.testing.assert_close(
        BlockedWindow.build(document_ids, 11)(*tensors), FullCausal.build(document_ids)(*tensors)
    )


FLEXIBLE = """
import warnings

import torch

from byteseam.model.attention import BlockedWindow, FlexWindow

warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
torch.manual_seed(0)
document_ids = (torch.rand(2, 150) < 0.05).cumsum(1)
tensors = torch.randn(3, 2, 150, 2, 16).unbind()
for window in (1, 5, 70, 200):
    found, expected = (kind.build(document_ids, window)(*tensors) for kind in (FlexWindow, BlockedWindow))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
"""


def test_the_flexible_window_has_the_same_pattern(python):
    # On its own: FlexAttention counts the arguments of functions, which the checks of shapes hide from it.
    done = python("-c", FLEXIBLE)
    assert done.returncode == 0, done.stderr


def test_a_window_of_one_sees_itself_alone():
    query, key, value = inputs(2, 7)
    torch.testing.assert_close(BlockedWindow.build(documents(2, 7, 0.2), 1)(query, key, value), value)


@pytest.mark.parametrize("kind", ["window", "full"])
@pytest.mark.parametrize("short", [0, 512])
def test_bf16_on_the_cpu_is_within_rounding(kind, short, monkeypatch):
    # The plain formula for few keys, and the fused kernel for many.
    monkeypatch.setattr(attention, "SHORT", short)
    document_ids = documents(2, 13, 0.2)
    pattern = BlockedWindow.build(document_ids, 4) if kind == "window" else FullCausal.build(document_ids)
    tensors = inputs(2, 13, torch.bfloat16)
    found = pattern(*tensors)
    assert found.dtype == torch.bfloat16
    # Inputs are rounded alike on both sides; what differs is the arithmetic.
    expected = pattern(*(tensor.float() for tensor in tensors))
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["window", "full"])
def test_no_gradient_reaches_what_is_not_seen(kind, dtype):
    document_ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1]])
    pattern = BlockedWindow.build(document_ids, 3) if kind == "window" else FullCausal.build(document_ids)
    query, key, value = (tensor.requires_grad_() for tensor in inputs(1, 10, dtype))
    gradients = torch.autograd.grad(pattern(query, key, value)[0, 7].float().sum(), (key, value))
    seen = {5, 6, 7} if kind == "window" else {3, 4, 5, 6, 7}
    for gradient in gradients:
        assert set(gradient[0].flatten(1).abs().sum(1).nonzero()[:, 0].tolist()) == seen


def test_gradients_equal_those_of_the_naive_mask():
    document_ids = documents(2, 11, 0.2)
    tensors = [tensor.requires_grad_() for tensor in inputs(2, 11)]
    weights = torch.randn(2, 11, 2, 4, dtype=torch.float64)
    found = torch.autograd.grad((BlockedWindow.build(document_ids, 4)(*tensors) * weights).sum(), tensors)
    expected = torch.autograd.grad((naive(*tensors, document_ids, 4) * weights).sum(), tensors)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("length", [BLOCK + 5, BLOCK + 6, BLOCK + 7, 3 * BLOCK])
def test_a_window_wider_than_a_block_equals_the_naive_mask(length):
    document_ids, tensors = documents(2, length, 0.02), inputs(2, length)
    found = BlockedWindow.build(document_ids, BLOCK + 6)(*tensors)
    torch.testing.assert_close(found, naive(*tensors, document_ids, BLOCK + 6))


@pytest.mark.parametrize("window", [8, BLOCK, 3 * BLOCK])
def test_the_mask_grows_linearly(window):
    sizes = [
        BlockedWindow.build(torch.zeros(1, length, dtype=torch.int64), window).mask.numel() for length in (768, 3072)
    ]
    assert sizes[1] == 4 * sizes[0]
    assert sizes[0] == 768 * (window + max(window, BLOCK))

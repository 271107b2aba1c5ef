"""Routing, smoothing, straight-through confidence and the ratio loss, by hand."""

import pytest
import torch

from byteseam.model.pooling import segments
from byteseam.model.unet import document_starts
from byteseam.strategies import HNet
from byteseam.strategies.hnet import Routing, Smoothing, ratio_loss
from byteseam.types import DOCUMENT_MARK, Batch, Encoded


def row(*numbers: int) -> Batch:
    document_ids = torch.tensor([numbers])
    byte_ids = torch.full_like(document_ids, 97)
    byte_ids[document_starts(document_ids)] = DOCUMENT_MARK
    return Batch(byte_ids, byte_ids, torch.ones_like(byte_ids, dtype=torch.bool), document_ids)


def test_probabilities_are_half_the_unlikeness_of_neighbours():
    hidden = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, -1.0], [-1.0, -1.0]]])
    starts = torch.tensor([[True, False, False, False, False]])
    found = Routing(2)(hidden, starts)[0]
    # Alike, at a right angle, opposite, at 45 degrees; the first has nothing before it.
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0, 0.5, 1.0, 0.5 - 0.5**1.5]))


def test_a_tie_is_no_boundary_and_a_start_always_is():
    hidden = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0]]])
    strategy = HNet()
    decision = strategy.decide(Routing(2), Encoded(hidden, hidden), row(0, 0, 0, 1), torch.full((1, 4), 0.5))
    assert decision.relaxed[0].tolist() == [1.0, 0.5, 1.0, 1.0]
    assert decision.boundary[0].tolist() == [True, False, True, True]
    assert decision.free[0].tolist() == [False, True, True, False]


def smoothed(boundary, relaxed, document_ids, hidden, tokens, residual=None):
    pooling = Smoothing(hidden.shape[-1])
    if residual is not None:
        torch.nn.init.constant_(pooling.residual.weight, residual)
    parts = segments(boundary, starts=document_starts(document_ids), relaxed=relaxed)
    return pooling.up(hidden, tokens, parts)


def test_bytes_read_the_average_and_nothing_else_at_first():
    batch = row(0, 0, 0, 0, 1, 1)
    boundary = torch.tensor([[True, False, True, False, True, True]])
    relaxed = torch.tensor([[1.0, 0.3, 0.75, 0.2, 1.0, 0.6]])
    tokens = torch.zeros(1, 16, 1)
    tokens[0, :4, 0] = torch.tensor([8.0, 4.0, 100.0, 50.0])
    found = smoothed(boundary, relaxed, batch.document_ids, torch.randn(1, 6, 1), tokens)[0, :, 0]
    # 8; 0.75 * 4 + 0.25 * 8; a new document forgets; 0.6 * 50 + 0.4 * 100
    torch.testing.assert_close(found, torch.tensor([8.0, 8.0, 5.0, 5.0, 100.0, 70.0]))


def test_the_residual_adds_the_encoders_states_once_it_is_learned():
    batch, boundary = row(0, 0), torch.tensor([[True, False]])
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    found = smoothed(boundary, torch.ones(1, 2), batch.document_ids, hidden, torch.zeros(1, 16, 2), residual=1.0)
    torch.testing.assert_close(found, torch.tensor([[[3.0, 3.0], [7.0, 7.0]]]))


def test_the_confidence_is_one_forward_and_itself_backward():
    batch = row(0, 0, 0)
    boundary = torch.tensor([[True, True, False]])
    relaxed = torch.tensor([[1.0, 0.9, 0.2]], requires_grad=True)
    tokens = torch.zeros(1, 16, 1)
    tokens[0, :2, 0] = torch.tensor([2.0, 6.0])
    out = smoothed(boundary, relaxed, batch.document_ids, torch.zeros(1, 3, 1), tokens)
    average = 0.9 * 6 + 0.1 * 2
    torch.testing.assert_close(out[0, :, 0], torch.tensor([2.0, average, average]))
    out[0, 2].sum().backward()
    # The byte that is none: the confidence 1 - p has gradient -h, and the token's weight moves the average it reads.
    torch.testing.assert_close(relaxed.grad, torch.tensor([[0.0, 6.0 - 2.0, -average]]))


@pytest.mark.parametrize(("share", "mean", "loss"), [(0.125, 0.02, 1.0), (0.125, 0.45, 1.0), (0.0, 0.49, 0.583)])
def test_the_ratio_loss_by_hand(share, mean, loss):
    probability = torch.full((4, 200), mean, requires_grad=True)
    free = torch.ones(4, 200, dtype=torch.bool)
    found = ratio_loss(probability, free, torch.tensor(share * 800), torch.tensor(800.0), 1 / 8)
    assert found.item() == pytest.approx(loss, abs=1e-3)
    found.backward()
    # Its known weakness: at the right share of boundaries nothing moves the probabilities.
    assert (probability.grad.abs().max().item() < 1e-9) == (share == 0.125)


def test_the_ratio_loss_pulls_and_its_parts_add_up():
    probability, free = torch.rand(5, 30, requires_grad=True), torch.rand(5, 30) < 0.8
    count, many = free.sum().float(), 0.6 * free.sum()
    whole = ratio_loss(probability, free, many, count, 0.2)
    parts = [ratio_loss(probability[part], free[part], many, count, 0.2) for part in (slice(3), slice(3, 5))]
    torch.testing.assert_close(whole, sum(parts))
    whole.backward()
    assert (probability.grad[free] > 0).all()
    assert not probability.grad[~free].any()


def test_padding_and_document_starts_count_in_no_mean():
    strategy, batch = HNet(), row(0, 0, 0, 1, 1)
    batch.mask[0, 2] = False
    hidden = torch.randn(1, 5, 4)
    decision = strategy.decide(Routing(4), Encoded(hidden, hidden), batch, torch.full((1, 5), 0.5))
    assert decision.free[0].tolist() == [False, True, False, False, True]

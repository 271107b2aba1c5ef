import math

import pytest
import torch
from torch import Tensor, nn

from byteseam.strategies import Uniform
from byteseam.types import Batch, Decision, Encoded


def decide(document_ids: Tensor, uniforms: Tensor, bytes_per_token: float = 5.0) -> Decision:
    mask = torch.ones_like(document_ids, dtype=torch.bool)
    batch = Batch(torch.zeros_like(document_ids), torch.zeros_like(document_ids), mask, document_ids)
    encoded = Encoded(torch.zeros(*document_ids.shape, 1), torch.zeros(*document_ids.shape, 1))
    return Uniform(bytes_per_token=bytes_per_token).decide(nn.Module(), encoded, batch, uniforms)


@pytest.mark.parametrize(
    ("bytes_per_token", "block", "quota"),
    [(5, 100, 20), (2, 100, 50), (1, 100, 100), (3, 99, 33), (6, 102, 17), (100, 100, 1), (300, 300, 1)],
)
def test_the_number_in_every_full_block_is_exact(bytes_per_token, block, quota):
    length = 3 * block + 51
    boundary = decide(torch.zeros(8, length, dtype=torch.int64), torch.rand(8, length), bytes_per_token).boundary
    assert boundary[:, 0].all()
    blocks = boundary[:, 1 : 1 + 3 * block].unflatten(1, (3, block)).sum(2)
    assert (blocks == quota).all()
    assert (boundary[:, 1 + 3 * block :].sum(1) <= quota).all()


def test_blocks_start_anew_with_every_document():
    document_ids = torch.tensor([[0] * 51 + [1] * 101 + [2] * 120])
    boundary = decide(document_ids, torch.rand(1, 272)).boundary[0]
    assert boundary[[0, 51, 152]].all()
    assert boundary[52:152].sum() == 20
    assert boundary[153:253].sum() == 20


def test_every_place_and_every_pair_is_equally_likely():
    draws, length = 4000, 101
    document_ids = torch.zeros(draws, length, dtype=torch.int64)
    boundary = decide(document_ids, torch.rand(draws, length)).boundary[:, 1:].double()
    error = math.sqrt(0.2 * 0.8 / draws)
    assert ((boundary.mean(0) - 0.2).abs() < 4.5 * error).all()
    # Drawn without putting back: 20 of 100, then 19 of 99.
    pairs, expected = boundary.T @ boundary / draws, 0.2 * 19 / 99
    error = math.sqrt(expected * (1 - expected) / draws)
    assert ((pairs - expected).abs()[~torch.eye(100, dtype=torch.bool)] < 5.5 * error).all()


def test_decisions_on_a_prefix_are_the_prefix_of_the_decisions():
    document_ids, uniforms = torch.tensor([[0] * 130 + [1] * 120]), torch.rand(1, 250)
    whole = decide(document_ids, uniforms).boundary
    for length in (1, 2, 99, 100, 101, 102, 131, 249):
        assert torch.equal(decide(document_ids[:, :length], uniforms[:, :length]).boundary, whole[:, :length])


def test_it_says_what_it_is():
    decision = decide(torch.zeros(1, 4, dtype=torch.int64), torch.rand(1, 4))
    assert Uniform.random
    assert not Uniform.learned
    assert decision.free.tolist() == [[False, True, True, True]]
    torch.testing.assert_close(torch.sigmoid(decision.logits), torch.full((1, 4), 0.2))

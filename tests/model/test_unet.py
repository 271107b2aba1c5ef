import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from byteseam.config import ModelConfig
from byteseam.model import unet as unet_module
from byteseam.model.pooling import BUCKET
from byteseam.model.unet import UNet, document_positions, document_starts, next_id_nll
from byteseam.types import DOCUMENT_MARK, VOCABULARY, Batch

CONFIG = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=1,
    token_layers=2,
    decoder_layers=1,
    byte_mlp_width=16,
    token_mlp_width=32,
    window=4,
)


def lively() -> UNet:
    """A U-Net whose logits are large enough for differences to show."""
    model = UNet(CONFIG)
    with torch.no_grad():
        for head in (model.head, model.early_head):
            head.linear.weight.mul_(10)
    return model


def random_batch(rows: int, length: int) -> Batch:
    byte_ids = torch.randint(0, 256, (rows, length))
    byte_ids[:, :1] = DOCUMENT_MARK
    targets = byte_ids.roll(-1, 1)
    return Batch(byte_ids, targets, torch.ones_like(byte_ids, dtype=torch.bool), torch.zeros_like(byte_ids))


def random_boundary(rows: int, length: int, rate: float = 0.3) -> Tensor:
    boundary = torch.rand(rows, length) < rate
    boundary[:, :1] = True
    return boundary


def logits(model: UNet, batch: Batch, boundary: Tensor) -> Tensor:
    return model.decode(model.encode(batch).hidden, batch.document_ids, boundary)


def test_document_starts_and_positions_worked_by_hand():
    document_ids = torch.tensor([[0, 0, 0, 1, 2, 2], [7, 7, 7, 7, 7, 7]])
    assert document_starts(document_ids).int().tolist() == [[1, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0]]
    assert document_positions(document_ids).tolist() == [[0, 1, 2, 0, 0, 1], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("length", [0, 1])
def test_document_starts_and_positions_of_the_shortest_rows(length):
    document_ids = torch.zeros(2, length, dtype=torch.int64)
    assert document_starts(document_ids).tolist() == [[True] * length] * 2
    assert document_positions(document_ids).tolist() == [[0] * length] * 2
    assert document_positions(document_ids).dtype == torch.int64


def test_an_untrained_model_knows_nothing():
    batch = random_batch(4, 32)
    found = next_id_nll(logits(UNet(CONFIG), batch, random_boundary(4, 32)), batch.targets, batch.mask)
    assert found.mean().item() == pytest.approx(math.log(VOCABULARY), abs=0.1)


@torch.no_grad()
@pytest.mark.parametrize("changed", [1, 7, 15])
def test_a_byte_reaches_no_earlier_logits(changed):
    model, batch, boundary = lively(), random_batch(2, 16), random_boundary(2, 16)
    other = batch.byte_ids.clone()
    other[:, changed] = (other[:, changed] + 1) % 256
    edited = Batch(other, batch.targets, batch.mask, batch.document_ids)
    for found, expected in (
        (logits(model, edited, boundary), logits(model, batch, boundary)),
        (model.encode(edited).early_logits, model.encode(batch).early_logits),
    ):
        assert torch.equal(found[:, :changed], expected[:, :changed])
        assert not torch.allclose(found[:, changed], expected[:, changed], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("changed", [1, 7, 15])
def test_a_boundary_helps_from_its_own_byte_on(changed):
    model, batch, boundary = lively(), random_batch(2, 16), random_boundary(2, 16)
    flipped = boundary.clone()
    flipped[:, changed] ^= True
    found, expected = logits(model, batch, flipped), logits(model, batch, boundary)
    assert torch.equal(found[:, :changed], expected[:, :changed])
    assert not torch.allclose(found[:, changed], expected[:, changed], atol=1e-3)


@torch.no_grad()
def test_tokens_carry_what_the_window_cannot_reach():
    # Two byte layers of four bytes see seven back; the first byte is twelve back.
    model, batch = lively(), random_batch(1, 13)
    other = Batch(batch.byte_ids.clone(), batch.targets, batch.mask, batch.document_ids)
    other.byte_ids[:, 1] = (other.byte_ids[:, 1] + 1) % 256
    only_first, second_too = torch.arange(13)[None] == 0, torch.arange(13)[None] <= 1
    assert torch.equal(logits(model, batch, only_first)[:, -1], logits(model, other, only_first)[:, -1])
    assert not torch.allclose(logits(model, batch, second_too)[:, -1], logits(model, other, second_too)[:, -1])


@torch.no_grad()
def test_tokens_are_added_to_what_the_bytes_say_themselves():
    model, batch, boundary = lively(), random_batch(2, 16), random_boundary(2, 16)
    hidden = model.encode(batch).hidden
    found = model.decode(hidden, batch.document_ids, boundary)
    model.token_norm.weight.zero_()
    without = model.head(model.decoder(hidden, *model.byte_context(batch.document_ids)))
    assert torch.equal(model.decode(hidden, batch.document_ids, boundary), without)
    assert not torch.allclose(found, without, atol=0.1)


@torch.no_grad()
def test_early_exit_logits_never_saw_a_boundary():
    model, batch = lively(), random_batch(2, 16)
    encoded = model.encode(batch)
    assert encoded.early_logits.shape == (2, 16, VOCABULARY)
    assert not torch.allclose(encoded.early_logits, logits(model, batch, random_boundary(2, 16)), atol=0.1)


def test_every_parameter_gets_a_gradient():
    model, batch = UNet(CONFIG), random_batch(4, 16)
    encoded = model.encode(batch)
    out = model.decode(encoded.hidden, batch.document_ids, random_boundary(4, 16))
    losses = [next_id_nll(each, batch.targets, batch.mask).sum() for each in (encoded.early_logits, out)]
    sum(losses).backward()
    still = [name for name, each in model.named_parameters() if each.grad is None or not each.grad.abs().sum() > 0]
    assert still == []


@torch.no_grad()
@pytest.mark.parametrize("autocast", [False, True])
def test_positions_are_integers_and_tokens_stand_where_they_end(monkeypatch, autocast):
    seen = []

    def record(positions, size, base):
        seen.append(positions)
        return table(positions, size, base)

    table = unet_module.rotary_table
    monkeypatch.setattr(unet_module, "rotary_table", record)
    document_ids = torch.tensor([[0] * 5 + [1] * 7])
    boundary = torch.zeros(1, 12, dtype=torch.bool)
    boundary[0, [0, 3, 5, 6, 11]] = True
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        UNet(CONFIG).decode(torch.randn(1, 12, 16), document_ids, boundary)
    tokens, byte_level = seen
    assert tokens.dtype == byte_level.dtype == torch.int64
    assert byte_level[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]
    assert tokens[0, :5].tolist() == [0, 3, 0, 1, 6]


@torch.no_grad()
def test_autocast_changes_logits_by_rounding_only():
    model, batch, boundary = lively(), random_batch(4, 32), random_boundary(4, 32)
    expected = logits(model, batch, boundary)
    with torch.autocast("cpu", torch.bfloat16):
        encoded = model.encode(batch)
        found = model.decode(encoded.hidden, batch.document_ids, boundary)
    assert found.dtype == encoded.early_logits.dtype == torch.float32
    assert not torch.equal(found, expected)
    assert (found - expected).abs().mean() < 0.05 * expected.std()


def test_losses_are_fp32_under_autocast_and_zero_where_masked():
    values = torch.randn(2, 3, VOCABULARY, dtype=torch.bfloat16)
    targets, mask = torch.randint(0, VOCABULARY, (2, 3)), torch.tensor([[True, True, False], [False, True, True]])
    with torch.autocast("cpu", torch.bfloat16):
        found = next_id_nll(values, targets, mask)
    assert found.dtype == torch.float32
    expected = -torch.log_softmax(values.double(), -1).gather(2, targets[..., None])[..., 0]
    torch.testing.assert_close(found[mask].double(), expected[mask], rtol=1e-5, atol=1e-5)
    assert (found[~mask] == 0).all()
    assert (found >= 0).all()


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor):
                self.elements = max(self.elements, each.numel())
        return out


def largest(length: int) -> int:
    model, batch = UNet(CONFIG), random_batch(1, length)
    few = torch.arange(length)[None] % (length // 8) == 0
    with LargestTensor() as mode:
        encoded = model.encode(batch)
        out = model.decode(encoded.hidden, batch.document_ids, few)
        next_id_nll(out, batch.targets, batch.mask).sum().backward()
    return mode.elements


def test_memory_grows_linearly_with_the_length():
    # 1024^2 is four times the largest tensor here, the logits: a mask over L x L would show.
    small, large = largest(128), largest(1024)
    assert small == 128 * VOCABULARY
    assert large == 1024 * VOCABULARY


@torch.no_grad()
def test_tokens_come_in_buckets():
    model, sizes = UNet(CONFIG), []
    model.token_model.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape[1]))
    for tokens in (1, 15, 16, 17, 40):
        boundary = torch.arange(40)[None] < tokens
        model.decode(torch.randn(1, 40, 16), torch.zeros(1, 40, dtype=torch.int64), boundary)
    assert sizes == [BUCKET, BUCKET, BUCKET, 2 * BUCKET, 3 * BUCKET]


@torch.no_grad()
def test_heads_are_fp32_whatever_the_autocast_type():
    model, hidden = lively(), torch.randn(2, 5, lively().config.width)
    for head in (model.head, model.early_head):
        expected = head(hidden)
        with torch.autocast("cpu", torch.bfloat16):
            found = head(hidden)
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)

"""A byte-level transformer of the U-Net's cost."""

import dataclasses

import pytest
import torch
from tiny import TINY_MODEL, packed

from byteseam.config import ModelConfig
from byteseam.config_file import load
from byteseam.errors import UserError
from byteseam.language_model import LanguageModel
from byteseam.model.flops import forward_flops, training_flops
from byteseam.strategies import Flat, Stride
from byteseam.training.loop import Listener
from byteseam.training.start import start_run

MODELS = {
    "laptop": (ModelConfig(width=128, heads=2, encoder_layers=1, token_layers=4, decoder_layers=1, window=8), 256),
    "default": (ModelConfig(), 512),
    "paper": (
        ModelConfig(
            width=768,
            heads=12,
            encoder_layers=4,
            token_layers=12,
            decoder_layers=4,
            byte_mlp_width=768,
            token_mlp_width=3072,
        ),
        4096,
    ),
}


@pytest.mark.parametrize("settings", [{}, {"layers": 2}, {"width": 64}, {"layers": 3, "width": 48}], ids=str)
@pytest.mark.parametrize("bytes_per_token", [3.0, 6.0])
@pytest.mark.parametrize(("model", "length"), MODELS.values(), ids=MODELS)
def test_a_byte_costs_what_it_costs_in_the_unet(model, length, bytes_per_token, settings):
    flat = Flat(bytes_per_token=bytes_per_token, **settings).settled(model, length)
    unet = Stride(bytes_per_token=bytes_per_token)
    for count in (forward_flops, training_flops):
        ours, theirs = (sum(count(model, strategy, length).values()) for strategy in (flat, unet))
        # Nothing but the MLPs' whole numbers stands in the way.
        assert ours == pytest.approx(theirs, rel=0.005)
    assert {name: getattr(flat, name) for name in settings} == settings
    assert flat.settled(model, length) == flat


def test_left_alone_it_is_as_deep_as_the_token_model_with_mlps_of_three_times_its_width():
    model, length = MODELS["laptop"]
    flat = Flat().settled(model, length)
    assert flat.layers == 4
    assert flat.width % 8 == 0
    assert flat.mlp_width >= 3 * flat.width
    assert flat.window == length


def test_every_size_can_be_given_and_reaches_the_network():
    flat = Flat(layers=3, width=24, mlp_width=40, window=7).settled(TINY_MODEL, 32)
    network = LanguageModel(TINY_MODEL, flat).unet
    assert len(network.encoder) + len(network.decoder) == 3
    assert len(network.token_model) == 0
    assert network.embedding.weight.shape == (257, 24)
    assert network.decoder[0].mlp_out.weight.shape == (24, 40)
    assert network.config.window == 7


def test_an_mlp_that_is_given_leaves_the_width_to_be_found():
    model, length = MODELS["default"]
    flat = Flat(mlp_width=96).settled(model, length)
    wider = dataclasses.replace(flat, width=flat.width + 8)
    target = sum(forward_flops(model, Stride(), length).values())
    assert sum(forward_flops(model, flat, length).values()) <= target
    assert sum(forward_flops(model, wider, length).values()) > target


def test_a_width_that_costs_too_much_is_refused():
    with pytest.raises(UserError, match=r"strategy.layers = 40 of width 128 cost more than the U-Net's [\d,]+ FLOPs"):
        Flat(layers=40, width=128).settled(*MODELS["laptop"])


def test_it_has_no_size_before_it_is_settled():
    with pytest.raises(ValueError, match="settled"):
        LanguageModel(TINY_MODEL, Flat())


@torch.no_grad()
def test_the_end_of_a_row_sees_its_beginning_and_no_boundary_matters():
    flat = Flat(layers=3, width=16, mlp_width=16).settled(TINY_MODEL, 64)
    model = LanguageModel(TINY_MODEL, flat)
    batch = packed(b"x" * 60)
    changed = packed(b"y" + b"x" * 59)
    uniforms = torch.zeros(batch.byte_ids.shape)
    logits = [
        model.logits(model.encode(each), model.decide(flat, model.encode(each), each, uniforms), each)
        for each in (batch, changed)
    ]
    assert not torch.allclose(logits[0][0, -1], logits[1][0, -1], atol=1e-6)
    encoded = model.encode(batch)
    decision = model.decide(flat, encoded, batch, uniforms)
    assert decision.boundary.all()
    none = dataclasses.replace(decision, boundary=torch.arange(61)[None] == 0)
    assert torch.equal(model.logits(encoded, none, batch), logits[0])


def test_a_run_keeps_the_size_that_was_found(tiny_config, tmp_path):
    config = tiny_config("strategy.name=flat", "training.total_bytes=256")
    trainer = start_run(config, tmp_path / "run", Listener())
    settled = load(tmp_path / "run" / "config.toml").strategy
    assert settled == config.strategy.settled(config.model, config.training.length_bytes) == trainer.config.strategy
    assert settled.width is not None

"""FLOPs are what PyTorch's own counter sees when the model is run."""

from dataclasses import replace

import pytest
import torch
from pydantic.dataclasses import dataclass
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from byteseam.config import ModelConfig, TrainingConfig
from byteseam.language_model import LanguageModel
from byteseam.model.attention import block_size
from byteseam.model.flops import PARTS, forward_flops, token_model_share, training_flops
from byteseam.model.pooling import BUCKET
from byteseam.strategies import STRATEGIES, ScoreFunction, Uniform, Whitespace
from byteseam.training.objective import decided_by, draw_uniforms
from byteseam.training.precision import Precision
from byteseam.training.step import accumulate_gradients
from byteseam.types import Batch

MODELS = {
    "narrow": ModelConfig(width=32, heads=2, token_layers=2, byte_mlp_width=32, token_mlp_width=96, window=16),
    "lopsided": ModelConfig(
        width=48,
        heads=4,
        encoder_layers=1,
        token_layers=3,
        decoder_layers=2,
        byte_mlp_width=40,
        token_mlp_width=200,
        window=128,
    ),
}


@dataclass(frozen=True, kw_only=True)
class EveryNthByte(ScoreFunction):
    """Asks its policy, then cuts at every n-th byte: the rate is known, and so is the number of tokens."""

    def decide(self, policy, encoded, batch, uniforms):
        decision = super().decide(policy, encoded, batch, uniforms)
        boundary = torch.zeros_like(decision.boundary)
        boundary[:, :: round(self.bytes_per_token)] = True
        return replace(decision, boundary=boundary)


def some_batch(rows, length):
    ids = torch.randint(256, (rows, length))
    ids[:, 0] = 256
    return Batch(ids, ids.roll(-1, 1), torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))


def counted(work):
    """Part -> FLOPs that PyTorch counts. It knows no CPU kernel of attention, but the products that replace it."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    found = {name: sum(by_op.values()) for name, by_op in counter.get_flop_counts().items()}
    modules = {part: f"LanguageModel.unet.{part}" for part in PARTS} | {"policy": "LanguageModel.policy.policy"}
    modules["pooling"] = "LanguageModel.pooling"
    parts = {part: found.get(module, 0) for part, module in modules.items()}
    return parts, found["Global"]


def counted_forward(config, strategy, rows, length):
    model = LanguageModel(config, strategy)
    batch = some_batch(rows, length)
    with torch.no_grad():
        parts, total = counted(lambda: model(strategy, batch, torch.rand(rows, length)))
    return {part: flops / (rows * length) for part, flops in parts.items()}, total / (rows * length)


@pytest.mark.parametrize("bytes_per_token", [2, 4])
@pytest.mark.parametrize("length", [128, 256])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_a_pass_over_whole_buckets_and_blocks_is_counted_exactly(config, length, bytes_per_token):
    assert length % block_size(config.window) == 0
    assert length // bytes_per_token % BUCKET == 0
    strategy = EveryNthByte(bytes_per_token=bytes_per_token)
    parts, total = counted_forward(config, strategy, 2, length)
    ours = forward_flops(config, strategy, length)
    assert ours == parts
    assert sum(ours.values()) == total


@pytest.mark.parametrize(("length", "bytes_per_token"), [(512, 5), (1000, 3), (2030, 6)])
def test_any_other_pass_costs_little_more_for_padding(length, bytes_per_token):
    strategy = EveryNthByte(bytes_per_token=bytes_per_token)
    parts, total = counted_forward(MODELS["narrow"], strategy, 1, length)
    ours = forward_flops(MODELS["narrow"], strategy, length)
    assert 0.98 * total <= sum(ours.values()) < total
    assert ours["token_model"] < parts["token_model"]


@pytest.mark.parametrize("micro_batch_rows", [None, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {"samples": 4, "sample_rows": 0.5},
        {"samples": 3, "sample_rows": 1.0, "reach": 1.0},
        {"baseline": "batch"},
        {"baseline": "value", "value_width": 24},
        {"baseline": "none", "history": 3},
    ],
    ids=str,
)
def test_a_training_step_is_counted_with_its_rollouts_and_its_pass_for_statistics(settings, micro_batch_rows):
    config, rows, length = MODELS["narrow"], 4, 128
    strategy = EveryNthByte(bytes_per_token=4, **settings)
    model = LanguageModel(config, strategy)
    training = TrainingConfig(length_bytes=length, batch_rows=rows, micro_batch_rows=micro_batch_rows)
    precision = Precision(torch.device("cpu"), bf16=False)
    uniforms = torch.rand(strategy.rollouts, rows, length)
    batch = some_batch(rows, length)
    _, total = counted(lambda: accumulate_gradients(model, strategy, batch, uniforms, training, precision))
    ours = training_flops(config, strategy, length, micro_batches=rows // (micro_batch_rows or rows))
    assert sum(ours.values()) * rows * length == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_counted_at_its_realised_rate(name):
    config, rows, length = MODELS["narrow"], 4, 1024
    strategy = STRATEGIES[name](bytes_per_token=4.0).settled(config, length)
    model = LanguageModel(config, strategy)
    batch = some_batch(rows, length)
    uniforms = decided_by(strategy, draw_uniforms(0, 0, strategy.rollouts, rows, length, torch.device("cpu")))
    decision = model.decide(strategy, model.encode(batch), batch, uniforms[0])
    # The longest row's tokens are those that all rows are padded to.
    rate = decision.boundary.sum(1).max().item() / length
    with torch.no_grad():
        _, forward = counted(lambda: model(strategy, batch, uniforms[0]))
    assert sum(forward_flops(config, strategy, length, rate).values()) == pytest.approx(
        forward / (rows * length), rel=0.02
    )
    training = TrainingConfig(length_bytes=length, batch_rows=rows)
    precision = Precision(torch.device("cpu"), bf16=False)
    _, step = counted(lambda: accumulate_gradients(model, strategy, batch, uniforms, training, precision))
    ours = sum(training_flops(config, strategy, length, rate=rate).values())
    assert ours == pytest.approx(step / (rows * length), rel=0.02)


def test_a_step_by_hand():
    config = MODELS["narrow"]
    strategy = ScoreFunction(bytes_per_token=4, samples=5, sample_rows=0.25)
    forward = forward_flops(config, strategy, 256)
    # (4 * 32^2 + 3 * 32 * 96 for the maps, 2 * 32 * 64 for the attention to 64 tokens) a token and layer
    assert forward["token_model"] == 2 * 2 * (4 * 32**2 + 3 * 32 * 96 + 2 * 32 * 64) // 4
    assert forward["policy"] == 2 * 32
    assert forward["embedding"] == 0
    # 4 further rollouts of a quarter of the rows are one more forward pass
    factors = {"embedding": 3, "encoder": 3, "early_head": 3, "policy": 6, "token_model": 4, "decoder": 4, "head": 4}
    factors["pooling"] = 4
    assert training_flops(config, strategy, 256) == {part: factors[part] * forward[part] for part in PARTS}


@pytest.mark.parametrize("rule", [Uniform, Whitespace])
def test_a_fixed_rule_has_no_policy_to_pay_for(rule):
    flops = training_flops(MODELS["narrow"], rule(), 256)
    assert flops["policy"] == 0
    assert flops["token_model"] == pytest.approx(3 * forward_flops(MODELS["narrow"], rule(), 256)["token_model"], abs=2)


def test_bytes_cost_the_same_however_long_the_row_but_for_the_tokens_that_attend_to_all():
    strategy = ScoreFunction()
    short, long = (forward_flops(MODELS["narrow"], strategy, length) for length in (512, 4096))
    more = {part: long[part] - short[part] for part in PARTS}
    # 0.2 tokens a byte, 2 layers, 4 * 32 FLOPs for each of the 0.2 * 3584 tokens more
    assert more.pop("token_model") == pytest.approx(0.2 * 2 * 4 * 32 * 0.2 * 3584, abs=1)
    assert set(more.values()) == {0}


def test_the_share_of_the_token_model():
    assert token_model_share({"encoder": 1, "token_model": 3}) == 0.75

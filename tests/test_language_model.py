import pytest
import torch
from tiny import TINY_MODEL

from byteseam.evaluation.segment import text_batch
from byteseam.language_model import LanguageModel, further_rollouts
from byteseam.strategies import ScoreFunction
from byteseam.types import Batch


@pytest.fixture(params=[1, 4], ids=["history 1", "history 4"])
def strategy(request) -> ScoreFunction:
    return ScoreFunction(history=request.param, reach=1.0)


@pytest.fixture
def model(strategy) -> LanguageModel:
    model = LanguageModel(TINY_MODEL, strategy)
    with torch.no_grad():
        model.policy.policy.linear.weight.normal_(std=8)
        model.policy.policy.linear.bias.normal_(std=8)
        model.unet.head.linear.weight.mul_(10)
    return model


@pytest.fixture
def batch() -> Batch:
    rows = [
        text_batch(text, torch.device("cpu"))
        for text in (b"to be, or not to", b"be, that is the ", b"question: whethe")
    ]
    return Batch(*(torch.cat([getattr(row, name) for row in rows]) for name in Batch.__slots__))


def test_forward_is_encode_decide_decode(model, strategy, batch):
    uniforms = torch.rand(3, 17)
    encoded, rollout = model(strategy, batch, uniforms)
    again = model.encode(batch)
    decision = model.decide(strategy, again, batch, uniforms)
    assert torch.equal(encoded.hidden, again.hidden)
    assert torch.equal(rollout.decision.boundary, decision.boundary)
    assert torch.equal(rollout.decision.logits, decision.logits)
    logits = model.unet.decode(again.hidden, batch.document_ids, decision.boundary)
    expected = torch.nn.functional.cross_entropy(logits.mT, batch.targets, reduction="none") * batch.mask
    torch.testing.assert_close(rollout.nll, expected)
    assert (rollout.nll[:, -1] == 0).all(), "the last target of a text does not count"


def test_further_rollouts_equal_one_after_the_other(model, strategy, batch):
    uniforms = torch.rand(3, 3, 17)
    encoded = model.encode(batch)
    many = further_rollouts(model, strategy, encoded, batch, uniforms)
    assert many.nll.shape == many.decision.boundary.shape == (3, 3, 17)
    for k in range(3):
        decision = model.decide(strategy, encoded, batch, uniforms[k])
        one = model.rollout(encoded, decision, batch)
        assert torch.equal(many.decision.boundary[k], decision.boundary)
        assert torch.equal(many.decision.free[k], decision.free)
        torch.testing.assert_close(many.decision.logits[k], decision.logits)
        torch.testing.assert_close(many.nll[k], one.nll, rtol=1e-4, atol=1e-5)


def test_further_rollouts_leave_the_encoder_and_gradients_alone(model, strategy, batch):
    encoded = model.encode(batch)
    calls = {"encoder": [], "token_model": [], "decoder": []}
    for name, log in calls.items():
        getattr(model.unet, name).register_forward_pre_hook(lambda *_, log=log: log.append(torch.is_grad_enabled()))
    many = further_rollouts(model, strategy, encoded, batch, torch.rand(3, 3, 17))
    assert calls == {"encoder": [], "token_model": [False], "decoder": [False]}
    assert not many.nll.requires_grad
    # The policy learns from all of them, and through it the encoder.
    many.decision.logits.sum().backward()
    assert model.policy.policy.linear.weight.grad.abs().sum() > 0
    assert model.unet.encoder[0].value.weight.grad.abs().sum() > 0
    assert model.unet.token_model[0].value.weight.grad is None


def test_what_a_strategy_learns_is_among_the_parameters():
    names = {name for name, _ in LanguageModel(TINY_MODEL, ScoreFunction(baseline="value")).named_parameters()}
    assert {"policy.policy.linear.weight", "policy.value.outer.weight", "unet.head.linear.weight"} <= names
    names = {name for name, _ in LanguageModel(TINY_MODEL, ScoreFunction()).named_parameters()}
    assert not any(name.startswith("policy.value") for name in names)

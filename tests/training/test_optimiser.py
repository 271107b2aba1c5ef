"""The optimiser: who decays, how fast each part learns, and clipping, by numbers worked by hand."""

import math

import pytest
import torch
from torch import nn

from byteseam.config import TrainingConfig
from byteseam.language_model import LanguageModel
from byteseam.training.optimiser import (
    build_optimiser,
    clip,
    learning_rate_factor,
    model_parameters,
    policy_parameters,
    set_learning_rates,
)


@pytest.fixture
def model_of(tiny_config):
    """``model_of("strategy.baseline=value")``: (model, optimiser)."""

    def make(*overrides):
        config = tiny_config(*overrides)
        model = LanguageModel(config.model, config.strategy)
        return model, build_optimiser(model, config.training)

    return make


def is_matrix(name):
    """A linear map of the U-Net; no embedding, gain or bias, and nothing of the policy's."""
    return name.startswith("unet.") and name.endswith(
        ("query_key.weight", "value.weight", "_out.weight", "_in.weight", "linear.weight")
    )


def move_without_gradients(model, optimiser):
    """What a step does to parameters whose gradient is zero: nothing but decay."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    return before


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_only_matrices_of_the_u_net_decay(model_of, kind):
    model, optimiser = model_of(f"training.optimiser={kind}", "training.weight_decay=0.5", "strategy.baseline=value")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(2.0)
    move_without_gradients(model, optimiser)
    decayed = {name for name, parameter in model.named_parameters() if not bool((parameter == 2.0).all())}
    assert decayed == {name for name, _ in model.named_parameters() if is_matrix(name)}
    for name, parameter in model.named_parameters():
        if name in decayed:
            # Learning rate 0.01 times decay 0.5.
            assert torch.allclose(parameter, torch.tensor(2.0 * (1 - 0.01 * 0.5)), rtol=1e-6), name


def test_without_decay_nothing_moves(model_of):
    model, optimiser = model_of("training.weight_decay=0")
    before = move_without_gradients(model, optimiser)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_every_parameter_is_in_one_group(model_of):
    for overrides in ((), ("training.optimiser=muon",), ("strategy.name=whitespace",)):
        model, optimiser = model_of(*overrides)
        grouped = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        assert len(grouped) == len(set(grouped))
        assert set(grouped) == set(model.parameters()) == set(optimiser.kinds())
    assert policy_parameters(model) == []


def first_step(model, optimiser):
    """How far the first step of gradient one moves each part: AdamW's is the learning rate."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    return {name: float((before[name] - p.detach()).mean()) for name, p in model.named_parameters()}


@pytest.mark.parametrize("policy_rate", ["0.004", "none"])
def test_model_and_policy_learn_at_their_own_rates(model_of, policy_rate):
    model, optimiser = model_of(f"training.policy_learning_rate={policy_rate}", "training.weight_decay=0")
    set_learning_rates(optimiser, 0.5)
    for name, distance in first_step(model, optimiser).items():
        slower = name.startswith("policy.") and policy_rate != "none"
        assert distance == pytest.approx(0.002 if slower else 0.005, rel=1e-3), name


def test_with_a_large_epsilon_the_policy_moves_in_proportion_to_its_gradient(model_of):
    """A gradient g moves AdamW's first step by ``rate * g / (g + epsilon)``."""
    model, optimiser = model_of(
        "training.policy_learning_rate=0.1", "training.policy_epsilon=3", "training.weight_decay=0"
    )
    set_learning_rates(optimiser, 1.0)
    for name, distance in first_step(model, optimiser).items():
        expected = 0.1 / (1 + 3) if name.startswith("policy.") else 0.01
        assert distance == pytest.approx(expected, rel=1e-3), name


def test_muon_takes_the_layers_and_adamw_the_rest(model_of):
    model, optimiser = model_of("training.optimiser=muon")
    kinds = optimiser.kinds()
    for name, parameter in model.named_parameters():
        layer = is_matrix(name) and "head." not in name
        assert (kinds[parameter] == ("momentum_buffer",)) == layer, name
    first_step(model, optimiser)
    assert {parameter: set(state) for parameter, state in optimiser.moments().items()} == {
        parameter: set(names) for parameter, names in kinds.items()
    }


def test_betas_reach_the_optimiser(model_of):
    _, optimiser = model_of("training.beta1=0.7", "training.beta2=0.8")
    assert {group["betas"] for group in optimiser.param_groups} == {(0.7, 0.8)}


@pytest.mark.parametrize(
    ("seen", "factor"),
    [(0, 0.0), (50, 0.5), (99, 0.99), (100, 1.0), (200, 0.75), (250, 0.5), (300, 0.25), (400, 0.0), (500, 0.0)],
)
def test_the_learning_rate_rises_straight_and_falls_along_a_cosine(seen, factor):
    """Over 100 and 300 bytes: a third of the way down the cosine is cos(pi / 3) = 1/2, so (1 + 1/2) / 2."""
    config = TrainingConfig(total_bytes=400, warmup_bytes=100)
    assert learning_rate_factor(seen, config) == pytest.approx(factor, abs=1e-12)


def test_a_schedule_without_one_of_its_parts():
    assert learning_rate_factor(0, TrainingConfig(total_bytes=400, warmup_bytes=0)) == 1.0
    all_warmup = TrainingConfig(total_bytes=400, warmup_bytes=800)
    assert learning_rate_factor(400, all_warmup) == 0.5
    assert learning_rate_factor(400, TrainingConfig(total_bytes=400, warmup_bytes=400)) == 0.0


def vectors(*gradients):
    parameters = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(len(gradient)))
        parameter.grad = torch.tensor(gradient)
        parameters.append(parameter)
    return parameters


def test_clipping_scales_to_the_limit_and_tells_the_norm_before():
    parameters = [*vectors([3.0], [0.0, 4.0]), nn.Parameter(torch.zeros(2))]  # 3, 4, 5; the last has no gradient
    assert float(clip(parameters, 1.0)) == 5.0
    assert parameters[0].grad.tolist() == pytest.approx([0.6], rel=1e-5)
    assert parameters[1].grad.tolist() == pytest.approx([0.0, 0.8], rel=1e-5)
    assert parameters[2].grad is None


@pytest.mark.parametrize("limit", [None, 6.0])
def test_a_gradient_within_the_limit_or_without_one_is_only_measured(limit):
    parameters = vectors([3.0], [0.0, 4.0])
    assert float(clip(parameters, limit)) == 5.0
    assert [parameter.grad.tolist() for parameter in parameters] == [[3.0], [0.0, 4.0]]


def test_nothing_to_clip_is_a_norm_of_zero():
    assert float(clip([], 1.0)) == float(clip([nn.Parameter(torch.zeros(2))], 1.0)) == 0.0


def test_model_and_policy_are_clipped_apart(model_of):
    model, _ = model_of()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    sizes = [sum(p.numel() for p in part) for part in (model_parameters(model), policy_parameters(model))]
    assert sum(sizes) == sum(parameter.numel() for parameter in model.parameters())
    assert float(clip(model_parameters(model), 1.0)) == pytest.approx(math.sqrt(sizes[0]))
    assert all(bool((parameter.grad == 1).all()) for parameter in policy_parameters(model))
    assert float(clip(policy_parameters(model), None)) == pytest.approx(math.sqrt(sizes[1]))

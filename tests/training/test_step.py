"""Accumulation: a step in parts is the step in one."""

from dataclasses import replace

import pytest
import torch
from tiny import TINY_MODEL

from byteseam.config import TrainingConfig
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction, Uniform, Whitespace
from byteseam.training.objective import draw_uniforms
from byteseam.training.precision import Precision
from byteseam.training.step import accumulate_gradients, add_metrics
from byteseam.types import DOCUMENT_MARK, Batch

CPU = torch.device("cpu")
STRATEGIES = {
    "none": ScoreFunction(baseline="none", reach=1.0),
    "batch": ScoreFunction(baseline="batch", reach=1.0),
    "leave one out": ScoreFunction(samples=3, sample_rows=1.0),
    "leave one out, some rows": ScoreFunction(samples=3, sample_rows=0.25, reach=1.0),
    "value": ScoreFunction(baseline="value", reach=1.0),
    "history": ScoreFunction(history=3, baseline="batch"),
    "uniform": Uniform(),
    "whitespace": Whitespace(),
}
ROWS, LENGTH = 8, 12


@pytest.fixture
def batch() -> Batch:
    """Rows of uneven length: a mean of means would not be the mean."""
    byte_ids = torch.randint(0, 256, (ROWS, LENGTH))
    byte_ids[:, 0] = DOCUMENT_MARK
    targets = byte_ids.roll(-1, 1)
    ends = torch.tensor([12, 3, 12, 7, 1, 12, 5, 9])
    mask = torch.arange(LENGTH) < ends[:, None]
    return Batch(byte_ids, targets, mask, (~mask).long())


def gradients(strategy, batch: Batch, micro_batch_rows: int | None, bf16: bool = False):
    torch.manual_seed(4)
    model = LanguageModel(TINY_MODEL, strategy)
    with torch.no_grad():
        for name, each in model.policy.named_parameters():
            if not name.endswith("norm.weight"):
                each.normal_(std=8 if "linear" in name else 1)
    config = TrainingConfig(batch_rows=ROWS, micro_batch_rows=micro_batch_rows, early_exit_weight=0.3)
    uniforms = draw_uniforms(0, 0, strategy.rollouts, ROWS, LENGTH, CPU)
    metrics = accumulate_gradients(model, strategy, batch, uniforms, config, Precision(CPU, bf16))
    return {name: each.grad for name, each in model.named_parameters()}, metrics


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", STRATEGIES)
def test_parts_give_the_gradients_and_metrics_of_the_whole(name, size, batch):
    strategy = STRATEGIES[name]
    (found, found_metrics), (expected, metrics) = (gradients(strategy, batch, each) for each in (size, None))
    missing = {name for name, each in expected.items() if each is None}
    assert missing == set()
    for parameter, value in expected.items():
        assert value.abs().sum() > 0, parameter
        torch.testing.assert_close(found[parameter], value, rtol=1e-3, atol=1e-6 + 1e-4 * value.abs().max().item())
    assert found_metrics.keys() == metrics.keys()
    for each, value in metrics.items():
        torch.testing.assert_close(found_metrics[each], value, rtol=1e-4, atol=1e-5)


def test_gradients_without_their_whole_statistics_differ(batch):
    """The test above can fail: rows of uneven length, a baseline over the part's own rows."""
    strategy = STRATEGIES["batch"]
    whole, _ = gradients(strategy, batch, None)
    halves = [gradients_of_rows(strategy, batch, part) for part in (slice(0, 4), slice(4, 8))]
    weight = "policy.policy.linear.weight"
    assert not torch.allclose((halves[0][weight] + halves[1][weight]) / 2, whole[weight], rtol=0.05)


def gradients_of_rows(strategy, batch: Batch, part: slice):
    torch.manual_seed(4)
    model = LanguageModel(TINY_MODEL, strategy)
    uniforms = draw_uniforms(0, 0, strategy.rollouts, ROWS, LENGTH, CPU)[:, part]
    accumulate_gradients(
        model, strategy, batch.rows(part), uniforms, TrainingConfig(batch_rows=4), Precision(CPU, False)
    )
    return {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize("name", ["batch", "leave one out, some rows"])
def test_parts_agree_under_autocast_too(name, batch):
    (found, _), (expected, _) = (gradients(STRATEGIES[name], batch, each, bf16=True) for each in (2, None))
    for parameter, value in expected.items():
        assert found[parameter].dtype == torch.float32
        assert (found[parameter] - value).norm() < 0.1 * value.norm() + 1e-6, parameter


@pytest.mark.parametrize(("name", "passes"), [("whitespace", 1), ("leave one out", 1), ("batch", 2)])
def test_the_pass_for_statistics_runs_no_more_than_it_needs(name, passes, batch):
    strategy = STRATEGIES[name]
    model, calls = LanguageModel(TINY_MODEL, strategy), []
    model.unet.decoder.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    config = TrainingConfig(batch_rows=ROWS, micro_batch_rows=4)
    uniforms = draw_uniforms(0, 0, strategy.rollouts, ROWS, LENGTH, CPU)
    accumulate_gradients(model, strategy, batch, uniforms, config, Precision(CPU, False))
    assert sum(calls) == 2, "one with gradients for each part"
    forward_only = 2 * (passes - 1) + 2 * (strategy.rollouts > 1)
    assert len(calls) - sum(calls) == forward_only


def test_nothing_of_the_callers_is_changed(batch):
    strategy = STRATEGIES["leave one out"]
    kept = [getattr(batch, name).clone() for name in Batch.__slots__]
    gradients(strategy, batch, 2)
    assert all(torch.equal(getattr(batch, name), value) for name, value in zip(Batch.__slots__, kept, strict=True))


def test_one_row_is_no_signal_for_the_batch_baseline(batch):
    """Identically zero, not wrong: there is no other row to compare with."""
    strategy = replace(STRATEGIES["batch"], rate_weight=0.0)
    found = gradients_of_rows(strategy, batch, slice(0, 1))
    assert (found["policy.policy.linear.weight"] == 0).all()
    assert gradients_of_rows(strategy, batch, slice(0, 4))["policy.policy.linear.weight"].abs().sum() > 0


def test_adding_metrics():
    into = {"a": torch.tensor([1.0, 2.0])}
    add_metrics(into, {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([5.0, 6.0])})
    assert {name: value.tolist() for name, value in into.items()} == {"a": [4, 6], "b": [5, 6]}

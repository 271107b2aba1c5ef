import pytest

from byteseam.data.batches import Batches
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.laboratory.timing import WARM_UP_ROUNDS, TimedStep, ratio, step_seconds


@pytest.fixture
def step(tiny_config):
    def make(*overrides):
        config = tiny_config(*overrides)
        return TimedStep(config, Batches(Corpus.open(resolve(config.data), "train"), length_bytes=32).batch(0, 4))

    return make


def test_every_round_takes_one_step_of_each_in_turn(step):
    steps = {"ours": step(), "given": step("strategy.name=whitespace")}
    order = []
    for name, each in steps.items():
        real = each.seconds
        each.seconds = lambda name=name, real=real: order.append(name) or real()
    times = step_seconds(steps, 3)
    assert order == ["ours", "given"] * (3 + WARM_UP_ROUNDS)
    assert [len(each) for each in times.values()] == [3, 3]
    assert min(min(each) for each in times.values()) > 0


def test_a_timed_step_is_a_whole_one(step):
    each = step()
    before = {name: parameter.clone() for name, parameter in each.model.named_parameters()}
    each.seconds()
    after = dict(each.model.named_parameters())
    assert any((after[name] != before[name]).any() for name in before if name.startswith("unet"))
    assert any((after[name] != before[name]).any() for name in before if name.startswith("policy"))
    assert all(parameter.grad is None for parameter in after.values())


def test_ratios_are_taken_within_rounds():
    # The machine is three times slower in the second round: medians apart would give 2 / 1.5.
    assert ratio([2.0, 6.0, 1.0], [1.0, 3.0, 1.5]) == 2.0

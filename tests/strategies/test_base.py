import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from byteseam.model.pooling import MeanPooling, Pooling
from byteseam.strategies import STRATEGIES, ScoreFunction, Statistics, Strategy, Uniform, Whitespace
from byteseam.strategies.base import LOGIT_OF_CERTAINTY, Pooled, at_progress, fixed_decision, log_odds, resolved

POINTS = ((0.0, 1.0), (0.5, 3.0), (0.75, 0.0))


@pytest.mark.parametrize(
    ("progress", "expected"), [(0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.625, 1.5), (0.75, 0.0), (1, 0.0)]
)
def test_a_schedule_joins_its_points_by_straight_lines(progress, expected):
    assert at_progress(POINTS, progress) == pytest.approx(expected)


def test_a_schedule_keeps_its_ends_outside_its_points():
    assert at_progress(((0.25, 2.0), (0.5, 4.0)), 0.0) == 2.0
    assert at_progress(((0.25, 2.0), (0.5, 4.0)), 0.9) == 4.0
    assert at_progress(((0.25, 2.0),), 0.0) == at_progress(((0.25, 2.0),), 1.0) == 2.0


def test_a_schedule_may_jump():
    jump = ((0.0, 1.0), (0.5, 1.0), (0.5, 7.0), (1.0, 7.0))
    assert at_progress(jump, 0.499) == 1.0
    assert at_progress(jump, 0.5) == 7.0


def test_a_number_is_a_schedule_that_stays():
    assert [at_progress(0.3, progress) for progress in (0.0, 0.5, 1.0)] == [0.3] * 3


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 9)), min_size=1, max_size=5), st.floats(0, 1))
def test_a_schedule_never_leaves_the_range_of_its_points(points, progress):
    points = tuple(sorted(points))
    values = [value for _, value in points]
    found = at_progress(points, progress)
    assert min(values) - 1e-9 <= found <= max(values) + 1e-9


@pytest.mark.parametrize(
    "points", [(), ((0.5, 1.0), (0.2, 1.0)), ((-0.1, 1.0),), ((0.0, 1.0), (1.1, 1.0)), ((0.0, -1.0),)]
)
def test_nonsense_schedules_are_refused(points):
    with pytest.raises(ValidationError, match="policy_weight"):
        ScoreFunction(policy_weight=points)


@pytest.mark.parametrize("key", ["gamma", "reach"])
def test_shares_stay_within_zero_and_one(key):
    with pytest.raises(ValidationError, match="between 0 and 1"):
        ScoreFunction(**{key: ((0.0, 0.5), (1.0, 1.5))})


@pytest.mark.parametrize("key", ScoreFunction.schedules)
def test_at_resolves_every_schedule(key):
    strategy = ScoreFunction(**{key: ((0.0, 0.0), (1.0, 1.0))})
    assert getattr(strategy.at(0.25), key) == 0.25
    assert getattr(strategy, key) == ((0.0, 0.0), (1.0, 1.0)), "the strategy itself stays"
    others = {name for name in vars(strategy) if name != key}
    assert all(getattr(strategy.at(0.25), name) == getattr(strategy, name) for name in others)


def test_at_without_schedules_is_the_strategy():
    for strategy in (ScoreFunction(), Uniform(), Whitespace()):
        assert strategy.at(0.5) == strategy


def test_rate_and_bytes_per_token_are_inverses():
    assert Uniform(bytes_per_token=4).rate == 0.25
    assert Uniform(bytes_per_token=1).rate == 1
    with pytest.raises(ValidationError):
        Uniform(bytes_per_token=0.99)


def test_the_table_holds_every_strategy_under_its_own_name():
    assert {name: cls.name for name, cls in STRATEGIES.items()} == {name: name for name in STRATEGIES}
    found, left = set(), [Strategy]
    while left:
        children = left.pop().__subclasses__()
        left += children
        found.update(child for child in children if child.__module__.startswith("byteseam."))
    assert found - {Pooled} == set(STRATEGIES.values())


@pytest.mark.parametrize("name", [name for name, cls in STRATEGIES.items() if issubclass(cls, Pooled)])
def test_a_token_may_be_its_last_byte_or_the_mean_of_its_bytes(name):
    last, mean = (STRATEGIES[name](pool=pool).pooling(8) for pool in ("last", "mean"))
    assert (type(last), type(mean)) == (Pooling, MeanPooling)


@pytest.mark.parametrize("cls", STRATEGIES.values())
def test_unknown_settings_are_refused_by_name(cls):
    with pytest.raises((TypeError, ValidationError), match="bytes_per_tokens"):
        cls(bytes_per_tokens=4)


def test_fixed_decisions_are_certain_and_finite():
    wanted = torch.tensor([[False, True, False, True]])
    starts = torch.tensor([[True, False, False, True]])
    mask = torch.tensor([[True, True, True, False]])
    decision = fixed_decision(wanted, starts, mask)
    assert decision.boundary.tolist() == [[True, True, False, True]]
    assert decision.free.tolist() == [[False, True, True, False]]
    certain = LOGIT_OF_CERTAINTY
    assert decision.logits.tolist() == [[certain, certain, -certain, certain]]


def test_log_odds_worked_by_hand():
    assert log_odds(0.5) == 0
    assert log_odds(0.2) == pytest.approx(-1.3862943611)


def test_statistics_add_up():
    one = Statistics(
        torch.tensor(1.0), torch.tensor([2.0, 3.0]), torch.tensor(5.0), torch.tensor(4.0), torch.ones(2, 3)
    )
    two = one + one + one
    assert two.targets == 3
    assert two.probability.tolist() == [6, 9]
    assert two.boundaries == 15
    assert two.policy_decisions == 12
    assert torch.equal(two.returns, 3 * torch.ones(2, 3))


def test_a_schedule_that_is_not_resolved_is_refused():
    assert resolved(0.25) == 0.25
    with pytest.raises(TypeError, match=r"strategy\.at"):
        resolved(((0.0, 0.0), (1.0, 1.0)))

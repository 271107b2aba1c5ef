"""The estimators against the exact gradient, by enumerating all segmentations of short texts.

Two kinds of test: expectations, summed over every outcome, which agree to rounding; and samples, which agree within
their standard error. At the end faults are planted, and must be found.
"""

from dataclasses import replace

import pytest
import torch
from tiny import TINY_MODEL
from torch import Tensor

from byteseam.laboratory.enumeration import (
    Segmentations,
    enumerate_segmentations,
    estimates,
    exact_gradient,
    expected_estimates,
    probabilities,
    sampled_estimates,
)
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction, score_function, value
from byteseam.training.objective import draw_uniforms, objective
from byteseam.types import DOCUMENT_MARK, Batch, Encoded

EIGHT, OTHER_EIGHT, TEN = b"to be or", b"a cat sa", b"not to be "


def text_row(*documents: bytes) -> Batch:
    """One row of whole documents end to end."""
    ids = [each for document in documents for each in (DOCUMENT_MARK, *document)]
    targets = [each for document in documents for each in (*document, DOCUMENT_MARK)]
    numbers = [number for number, document in enumerate(documents) for _ in range(len(document) + 1)]
    byte_ids, targets, numbers = (torch.tensor([each]) for each in (ids, targets, numbers))
    return Batch(byte_ids, targets, torch.ones_like(byte_ids, dtype=torch.bool), numbers)


def lively(strategy: ScoreFunction) -> LanguageModel:
    """A model to which boundaries matter and a policy with opinions: at the start neither has any."""
    torch.manual_seed(3)
    model = LanguageModel(TINY_MODEL, strategy)
    with torch.no_grad():
        for head in (model.unet.head, model.unet.early_head):
            head.linear.weight.mul_(10)
        model.unet.token_norm.weight.mul_(3)
        policy = model.policy.policy
        policy.linear.weight.normal_(std=0.4 * policy.divisor)
        policy.linear.bias.normal_(std=0.4 * policy.divisor)
        if model.policy.value is not None:
            model.policy.value.outer.weight.normal_()
    return model


def setting(**settings) -> ScoreFunction:
    return ScoreFunction(**{"gamma": 1.0, "bytes_per_token": 2.0, "policy_weight": 0.3, **settings})


ESTIMATORS = {
    "none": setting(baseline="none", early_exit=False),
    "early exit": setting(baseline="none"),
    "leave one out of 2": setting(samples=2),
    "leave one out of 4": setting(samples=4),
    "batch": setting(baseline="batch"),
    "value": setting(baseline="value"),
}


def prepare(strategy: ScoreFunction, *texts: Batch) -> tuple[LanguageModel, list[Segmentations]]:
    model = lively(strategy)
    return model, [enumerate_segmentations(model, strategy, text) for text in texts]


def texts_for(strategy: ScoreFunction) -> list[Batch]:
    """As long as enumerating every outcome allows."""
    if strategy.baseline == "batch":
        return [text_row(b"a "), text_row(b" b"), text_row(b"a ")]
    return [text_row(b"to b" if strategy.rollouts > 2 else EIGHT)]


def check(strategy: ScoreFunction, gamma: float | None = None) -> None:
    """Fails unless the strategy's expected estimate is the exact gradient, discounted with `gamma`."""
    model, tables = prepare(strategy, *texts_for(strategy))
    found = expected_estimates(model.policy, strategy, tables)
    aim = strategy.gamma if gamma is None else gamma
    expected = torch.stack([exact_gradient(model.policy, table, aim) for table in tables])
    assert expected.norm() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def largest_z(samples: Tensor, expected: Tensor) -> float:
    """How many standard errors the mean of samples [M, ...] is off, where it is furthest."""
    error = samples.std(0) / len(samples) ** 0.5
    varying = error > 1e-9
    return ((samples.mean(0) - expected)[varying].abs() / error[varying]).max().item()


# The table itself.


def test_the_table_holds_every_segmentation_once_at_its_cost():
    strategy = setting()
    model, (table,) = prepare(strategy, text_row(EIGHT))
    assert table.boundary.shape == (256, 9)
    assert len(table.boundary.unique(dim=0)) == 256
    assert table.boundary[:, 0].all()
    assert table.nll.dtype == table.taps.dtype == torch.float64
    encoded = model.encode(table.batch)
    for number in (0, 77, 255):
        logits = model.unet.decode(encoded.hidden, table.batch.document_ids, table.boundary[number : number + 1])
        expected = -torch.log_softmax(logits[0], -1).gather(1, table.batch.targets[0][:, None])[:, 0]
        torch.testing.assert_close(table.nll[number].float(), expected, rtol=1e-4, atol=1e-5)


def test_costs_depend_on_the_boundaries_and_on_earlier_ones_alone():
    _, (table,) = prepare(setting(), text_row(EIGHT))
    assert table.nll.std(0)[1:].min() > 0.05, "boundaries matter to this model"
    prefix = table.boundary[:, 1:5].long() @ torch.tensor([1, 2, 4, 8])
    for group in range(16):
        torch.testing.assert_close(table.nll[prefix == group, :5].std(0), torch.zeros(5).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("history", [1, 3])
def test_probabilities_are_those_of_independent_or_chained_draws(history):
    strategy = setting(history=history)
    model, (table,) = prepare(strategy, text_row(b"a b", b"c"))
    odds = probabilities(model.policy.policy, table, table.taps)
    assert len(odds) == 2**4, "the second document's mark is no choice"
    assert odds.sum().item() == pytest.approx(1)
    # Against the draws of the policy itself.
    many, draws = table.batch.rows(torch.zeros(20_000, dtype=torch.int64)), torch.rand(20_000, 6)
    hidden = table.encoded.hidden.expand(20_000, -1, -1)
    boundary = model.decide(strategy, Encoded(hidden, hidden), many, draws).boundary
    number = boundary[:, [1, 2, 3, 5]].long() @ torch.tensor([1, 2, 4, 8])
    counted = number.bincount(minlength=16).double() / 20_000
    assert ((counted - odds).abs() < 4.5 * (odds * (1 - odds) / 20_000).sqrt() + 1e-9).all()


def test_texts_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="18 free decisions"):
        prepare(setting(), text_row(b"eighteen bytes now"))


@pytest.mark.parametrize("history", [1, 4])
def test_the_exact_gradient_is_the_slope_of_the_expected_likelihood(history):
    model, (table,) = prepare(setting(history=history), text_row(EIGHT))
    gradient = exact_gradient(model.policy, table)
    for place, tap in ((1, 0), (5, 0), (8, 0), (5, history - 1)):
        step = torch.zeros_like(table.taps)
        step[place, tap] = 1e-3
        higher, lower = (
            (probabilities(model.policy.policy, table, table.taps + sign * step) @ -table.nll.sum(1))
            for sign in (1, -1)
        )
        assert gradient[place, tap].item() == pytest.approx((higher - lower).item() / 2e-3, rel=1e-4, abs=1e-9)


# Expectations over every outcome.


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("gamma", [1.0, 0.7, 0.0])
def test_every_estimator_expects_the_exact_gradient(name, gamma):
    check(replace(ESTIMATORS[name], gamma=gamma))


@pytest.mark.parametrize("name", ["early exit", "leave one out of 2", "value"])
def test_history_changes_nothing(name):
    check(replace(ESTIMATORS[name], history=3))


@pytest.mark.parametrize("name", ["none", "leave one out of 2", "value"])
@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_nor_do_several_documents_in_a_row(name, gamma):
    strategy = replace(ESTIMATORS[name], gamma=gamma)
    model, tables = prepare(strategy, text_row(b"a b", b"", b"or"))
    found, expected = expected_estimates(model.policy, strategy, tables), exact_gradient(model.policy, tables[0], gamma)
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-7)
    assert (found[0, [0, 4, 5]] == 0).all(), "document marks are no choice"


def paid_by_the_boundary(share: float, length: int) -> Segmentations:
    """A table made by hand: a boundary at i makes every byte from i + 1 on cheaper by a share that falls with i."""
    text = text_row(b"x" * (length - 1))
    number = torch.arange(2 ** (length - 1))
    boundary = torch.ones(len(number), length, dtype=torch.bool)
    boundary[:, 1:] = (number[:, None] >> torch.arange(length - 1) & 1).bool()
    worth = share / torch.arange(1, length + 1, dtype=torch.float64)
    nll = 9 - (boundary * worth).cumsum(1)
    hidden = torch.zeros(1, length, TINY_MODEL.width)
    taps = torch.linspace(-1, 1, length, dtype=torch.float64)[:, None]
    free = torch.arange(length)[None] > 0
    early_nll = torch.full((1, length), 5.0, dtype=torch.float64)
    return Segmentations(text, Encoded(hidden, hidden), early_nll, taps, free, boundary, nll)


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
def test_discounting_shrinks_the_gradient_by_a_geometric_series(gamma, baseline):
    # At the decision i, worth w a byte: w p (1 - p) for each of the L - i bytes it pays for, discounted.
    strategy = setting(gamma=gamma, baseline=baseline, samples=2, logit_divisor=1.0, logit_cap=1e6)
    table, policy = paid_by_the_boundary(0.3, 7), LanguageModel(TINY_MODEL, strategy).policy
    p = torch.sigmoid(table.taps[:, 0])  # at a target rate of one half, logits are the taps
    place = torch.arange(7)
    worth, slope = 0.3 / (place + 1.0).double(), p * (1 - p)
    series = torch.stack([sum(torch.tensor(gamma).double() ** ahead for ahead in range(7 - i)) for i in place.tolist()])
    expected = worth * slope * series
    expected[0] = 0
    found = expected_estimates(policy, strategy, [table])[0, :, 0]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    if gamma < 1:
        whole = exact_gradient(policy, table)[:, 0]
        assert (found[1:] > 0).all(), "the sign is right"
        assert (found[1:6] < whole[1:6]).all(), "the size is too small"
        assert found[6].item() == pytest.approx(whole[6].item()), "but where nothing is ahead"


@pytest.mark.parametrize("name", ["early exit", "leave one out of 2", "value"])
def test_the_bias_of_discounting_is_what_it_leaves_out(name):
    strategy = replace(ESTIMATORS[name], gamma=0.5)
    model, (table,) = prepare(strategy, text_row(EIGHT))
    true = exact_gradient(model.policy, table)
    bias = expected_estimates(model.policy, strategy, [table])[0] - true
    left_out = torch.zeros_like(true)
    odds = probabilities(model.policy.policy, table, table.taps)
    for number, chance in enumerate(odds):
        # The score of the draw, times what the discount takes off the rewards ahead of each decision.
        taps = table.taps.clone().requires_grad_()
        (score,) = torch.autograd.grad(probabilities(model.policy.policy, table, taps)[number].log(), taps)
        for i in range(9):
            lost = sum((1 - 0.5 ** (k - i)) * -table.nll[number, k] for k in range(i, 9))
            left_out[i] -= chance * lost * score[i]
    torch.testing.assert_close(bias, left_out, rtol=1e-5, atol=1e-7)
    assert bias.norm() > 0.1 * true.norm(), "a margin that a test can see"


def test_what_leave_one_out_and_early_exit_are_for():
    """Exact variances: each baseline makes the estimate less noisy, the more rollouts the better."""
    model, (table,) = prepare(setting(), text_row(b"to b"))
    odds = probabilities(model.policy.policy, table, table.taps)
    noise = {}
    for name in ("none", "early exit", "leave one out of 2", "leave one out of 4"):
        strategy = ESTIMATORS[name]
        number, rollouts = len(odds), strategy.rollouts
        drawn = torch.cartesian_prod(*[torch.arange(number)] * rollouts).view(-1, rollouts).T
        found = estimates(model.policy, strategy, [table], torch.zeros(drawn.shape[1], dtype=torch.int64), drawn)
        chance = odds[drawn].prod(0)
        square = (chance * found.square().sum((1, 2))).sum()
        noise[name] = (square - exact_gradient(model.policy, table).square().sum()).item()
    assert noise["none"] > 2 * noise["early exit"]
    assert noise["early exit"] > noise["leave one out of 2"] > 2 * noise["leave one out of 4"] > 0


# Samples.


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_samples_agree_within_their_error(name, gamma):
    strategy = replace(ESTIMATORS[name], gamma=gamma)
    same = [text_row(TEN)] if strategy.baseline != "batch" else [text_row(TEN)] * 4
    model, tables = prepare(strategy, same[0])
    tables = tables * len(same)
    draws = 300 if strategy.baseline == "batch" else 20_000
    samples = sampled_estimates(model.policy, strategy, tables, draws, torch.Generator().manual_seed(5))
    aim, true = (exact_gradient(model.policy, tables[0], each) for each in (gamma, 1.0))
    assert largest_z(samples, aim) < 4.5
    assert largest_z(samples, torch.zeros_like(aim)) > 6, "there is a gradient to be found"
    if gamma < 1 and name != "none":  # which is too noisy to tell
        assert largest_z(samples, true) > 6, "and so is its bias"


def test_samples_of_several_texts_agree_each_with_its_own():
    strategy = ESTIMATORS["batch"]
    model, tables = prepare(strategy, text_row(EIGHT), text_row(OTHER_EIGHT), text_row(b"        "))
    samples = sampled_estimates(model.policy, strategy, tables, 300, torch.Generator().manual_seed(6))
    expected = torch.stack([exact_gradient(model.policy, table) for table in tables])
    assert largest_z(samples, expected) < 4.5
    assert largest_z(samples, expected.roll(1, 0)) > 6


@pytest.mark.parametrize("name", ["early exit", "leave one out of 4", "batch", "value"])
def test_the_whole_chain_climbs_the_exact_gradient(name):
    """Drawing, scoring, rewarding and differentiating as in training: the gradient of the policy's own weights."""
    strategy = replace(ESTIMATORS[name], sample_rows=1.0, rate_weight=0.0, policy_weight=1.0)
    model, (table,) = prepare(strategy, text_row(EIGHT))
    batch = table.batch.rows(torch.zeros(256, dtype=torch.int64))
    policy, samples = model.policy.policy, []
    for step in range(24):
        uniforms = draw_uniforms(0, step, strategy.rollouts, 256, 9, torch.device("cpu"))
        loss, _ = objective(model, strategy, batch, uniforms, 0.0)
        samples.append(torch.autograd.grad(loss, policy.linear.weight)[0][0])
    # The loss is minimised, and a mean over the eight decisions of a row.
    exact = exact_gradient(model.policy, table).float()
    expected = -(exact * policy.norm(table.encoded.hidden[0]).detach()).sum(0) / 8
    assert largest_z(torch.stack(samples), expected) < 4.5
    assert largest_z(torch.stack(samples), -expected) > 8, "the sign matters"


# Planted faults. Each must be found.


def test_found_a_flipped_sign(monkeypatch):
    right = score_function.score_function_loss
    monkeypatch.setattr(score_function, "score_function_loss", lambda *arguments: -right(*arguments))
    for strategy in ESTIMATORS.values():
        with pytest.raises(AssertionError, match="not close"):
            check(strategy)


def test_found_returns_that_start_a_byte_late(monkeypatch):
    right = score_function.discounted_returns

    def late(reward, gamma, continues):
        return torch.nn.functional.pad(right(reward, gamma, continues)[..., 1:], (0, 1))

    monkeypatch.setattr(score_function, "discounted_returns", late)
    for strategy in ESTIMATORS.values():
        with pytest.raises(AssertionError, match="not close"):
            check(strategy)


def test_found_a_discount_that_never_arrives(monkeypatch):
    right = score_function.discounted_returns
    monkeypatch.setattr(score_function, "discounted_returns", lambda reward, gamma, on: right(reward, 1.0, on))
    for strategy in ESTIMATORS.values():
        with pytest.raises(AssertionError, match="not close"):
            check(replace(strategy, gamma=0.5))
        check(replace(strategy, gamma=0.5), gamma=1.0)


def test_found_returns_that_cross_documents(monkeypatch):
    # Rewards of another document add nothing to the expectation, only noise: found in the samples' size.
    strategy = ESTIMATORS["none"]
    model, (table,) = prepare(strategy, text_row(b"a b", b"or"))
    drawn = torch.arange(len(table.boundary))[None]
    right = estimates(model.policy, strategy, [table], torch.zeros_like(drawn[0]), drawn)
    monkeypatch.setattr(score_function, "continues", lambda document_ids: torch.ones_like(document_ids).bool())
    wrong = estimates(model.policy, strategy, [table], torch.zeros_like(drawn[0]), drawn)
    assert wrong[:, 1:4].square().sum() > 1.5 * right[:, 1:4].square().sum()
    torch.testing.assert_close(wrong[:, 4:], right[:, 4:])


def test_found_a_baseline_that_sees_its_own_sample(monkeypatch):
    def mean_of_all(returns):
        return returns.mean(0, keepdim=True).expand_as(returns)

    monkeypatch.setattr(score_function, "leave_one_out_over_rollouts", mean_of_all)
    for samples in (2, 4):
        strategy = setting(samples=samples)
        with pytest.raises(AssertionError, match="not close"):
            check(strategy)
        # It scales the gradient by 1 - 1/K.
        model, tables = prepare(strategy, *texts_for(strategy))
        found, exact = expected_estimates(model.policy, strategy, tables)[0], exact_gradient(model.policy, tables[0])
        torch.testing.assert_close(found, (1 - 1 / samples) * exact, rtol=1e-5, atol=1e-7)


def test_found_a_batch_mean_that_sees_its_own_row(monkeypatch):
    def mean_of_all(returns, mask, total, count):
        return (total / count).expand_as(returns)

    monkeypatch.setattr(score_function, "leave_one_out_over_rows", mean_of_all)
    with pytest.raises(AssertionError, match="not close"):
        check(ESTIMATORS["batch"])


def test_found_a_value_that_sees_its_own_decision(monkeypatch):
    right = value.ValueHead.forward

    def peeking(self, hidden, early_nll, boundary, document_ids, gamma):
        return right(self, hidden, early_nll, boundary.roll(-1, 1), document_ids, gamma)

    monkeypatch.setattr(value.ValueHead, "forward", peeking)
    with pytest.raises(AssertionError, match="not close"):
        check(ESTIMATORS["value"])


def test_found_a_forgotten_early_exit(monkeypatch):
    # It biases nothing; what is lost is its quiet.
    monkeypatch.setattr(score_function, "early_exit_reward", lambda nll, early_nll: -nll)
    check(ESTIMATORS["early exit"])
    with pytest.raises(AssertionError):
        test_what_leave_one_out_and_early_exit_are_for()

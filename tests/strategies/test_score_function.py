"""Every field of the strategy changes what it names."""

import dataclasses

import pytest
import torch
from pydantic import ValidationError
from tiny import TINY_MODEL

from byteseam.evaluation.segment import text_batch
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction
from byteseam.training.objective import draw_uniforms, experience, learning_rows, objective
from byteseam.types import Batch

CPU = torch.device("cpu")
TEXTS = (
    b"to be, or not",
    b"a b c d e f g",
    b"Thirteen byte",
    b"\xff\xfe\x00 and  more",
    b"the last one ",
    b"12345 789 123",
)


def batch() -> Batch:
    rows = [text_batch(text, CPU) for text in TEXTS]
    return Batch(*(torch.cat([getattr(row, name) for row in rows]) for name in Batch.__slots__))


def lively(strategy: ScoreFunction) -> LanguageModel:
    """The same weights for every strategy, and a policy with opinions."""
    torch.manual_seed(1)
    model = LanguageModel(TINY_MODEL, strategy)
    torch.manual_seed(2)
    with torch.no_grad():
        model.policy.policy.linear.weight.normal_(std=8)
        model.policy.policy.linear.bias.normal_(std=8)
        model.unet.head.linear.weight.mul_(10)
        if model.policy.value is not None:
            model.policy.value.outer.weight.normal_()
    return model


def run(**settings):
    """(experience, loss terms, metrics, model) of one forward pass with gradients."""
    strategy = ScoreFunction(**{"sample_rows": 1.0, **settings})
    model, rows = lively(strategy), batch()
    uniforms = draw_uniforms(3, 0, 8, *rows.byte_ids.shape, CPU)
    lived, _, _ = experience(model, strategy, rows, uniforms)
    terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
    return lived, terms, model


def policy_gradient(**settings):
    _, terms, model = run(**settings)
    return torch.autograd.grad(terms.policy, model.policy.policy.linear.weight)[0]


def logits(**settings):
    return run(**settings)[0].rollout.decision.logits.detach()


def shows_bytes_per_token():
    raw = [logits(bytes_per_token=each, logit_cap=1e4) for each in (2.0, 10.0)]
    # log(1/2 / 1/2) = 0 and log(1/10 / 9/10) = -log 9 apart, whatever the byte.
    torch.testing.assert_close(raw[0] - raw[1], torch.full_like(raw[0], 9.0).log(), rtol=1e-3, atol=1e-3)
    pressure = [run(bytes_per_token=each)[1].rate.item() for each in (2.0, 10.0)]
    assert pressure[0] != pressure[1]


def shows_pool():
    last, mean = (run(pool=each)[0].rollout for each in ("last", "mean"))
    assert torch.equal(last.decision.boundary, mean.decision.boundary)
    assert not torch.allclose(last.nll, mean.nll, atol=1e-3)


def shows_history():
    policies = [run(history=each)[2].policy.policy for each in (1, 5)]
    assert [each.linear.out_features for each in policies] == [1, 5]


def shows_logit_divisor():
    offset = torch.tensor(0.25).log()
    raw = [logits(logit_divisor=each, logit_cap=1e4) - offset for each in (4.0, 8.0)]
    torch.testing.assert_close(raw[0], 2 * raw[1], rtol=1e-3, atol=1e-3)


def shows_logit_cap():
    assert logits(logit_cap=0.5).abs().max() < 0.5 < logits(logit_cap=6.0).abs().max()


def shows_gamma():
    gradients = [policy_gradient(gamma=each) for each in (0.0, 0.9, 1.0)]
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-2)
    assert not torch.allclose(gradients[1], gradients[2], rtol=1e-2)
    lived, _, _ = run(gamma=0.0)
    strategy = ScoreFunction(gamma=0.0, early_exit=False)
    nll, documents = lived.rollout.nll, lived.batch.document_ids
    torch.testing.assert_close(strategy.returns(nll, lived.early_nll, documents), -nll)
    all_of_it = ScoreFunction(gamma=1.0, early_exit=False).returns(nll, lived.early_nll, documents)
    torch.testing.assert_close(all_of_it[:, 0], -nll.sum(1))


def shows_early_exit():
    lived, _, _ = run()
    nll, early, documents = lived.rollout.nll, lived.early_nll, lived.batch.document_ids
    with_it, without = (
        ScoreFunction(early_exit=each, gamma=1.0).returns(nll, early, documents) for each in (True, False)
    )
    torch.testing.assert_close((with_it - without)[:, 0], early.sum(1))
    assert not torch.allclose(
        policy_gradient(baseline="none", early_exit=True), policy_gradient(baseline="none", early_exit=False)
    )


def shows_baseline():
    gradients = [policy_gradient(baseline=each) for each in ("none", "batch", "leave_one_out", "value")]
    for one in range(4):
        for other in range(one):
            assert not torch.allclose(gradients[one], gradients[other], rtol=1e-2)
    assert [run(baseline=each)[2].policy.value is None for each in ("none", "batch", "leave_one_out", "value")] == [
        True,
        True,
        True,
        False,
    ]


def shows_samples():
    for samples in (2, 5):
        assert ScoreFunction(samples=samples).rollouts == samples
        assert run(samples=samples)[0].extra.nll.shape == (samples - 1, len(TEXTS), 14)
    assert run(samples=5, baseline="none")[0].extra is None


def shows_sample_rows():
    for share, rows in ((1.0, 6), (0.5, 3), (1 / 3, 2)):
        lived, _, _ = run(sample_rows=share)
        assert len(lived.rows) == rows
        assert lived.extra.nll.shape[1] == rows
    assert len(run(sample_rows=0.5, baseline="none")[0].rows) == 6, "one rollout is had on every row anyway"


def shows_policy_weight():
    torch.testing.assert_close(policy_gradient(policy_weight=2.5), 2.5 * policy_gradient(policy_weight=1.0))
    idle = ScoreFunction(policy_weight=0.0)
    assert (idle.rollouts, idle.learning, idle.needs_returns) == (1, False, False)
    assert not ScoreFunction(policy_weight=0.0, baseline="batch").needs_returns
    assert ScoreFunction(baseline="batch").needs_returns


def shows_rate_weight():
    one, more = run(rate_weight=1.0)[1], run(rate_weight=2.5)[1]
    assert one.rate != 0
    torch.testing.assert_close(more.rate, 2.5 * one.rate)
    assert torch.equal(more.policy, one.policy)


def shows_random_fraction():
    strategy = ScoreFunction(random_fraction=0.25, policy_weight=0.5, rate_weight=0.1)
    early, late = strategy.at(0.249), strategy.at(0.25)
    assert (early.policy_weight, early.rate_weight, early.rollouts) == (0, 0, 1)
    assert (late.policy_weight, late.rate_weight, late.rollouts) == (0.5, 0.1, 4)


def encoder_gradient(reach: float, part: str):
    _, terms, model = run(reach=reach)
    weight = model.unet.encoder[0].value.weight
    (found,) = torch.autograd.grad(getattr(terms, part), weight, allow_unused=True)
    return torch.zeros_like(weight) if found is None else found


def shows_reach():
    for part in ("policy", "rate"):
        whole = encoder_gradient(1.0, part)
        assert whole.abs().sum() > 0
        assert (encoder_gradient(0.0, part) == 0).all()
        torch.testing.assert_close(encoder_gradient(0.3, part), 0.3 * whole, rtol=1e-4, atol=1e-8)
    # The policy itself learns all the same, and decides all the same.
    torch.testing.assert_close(policy_gradient(reach=0.0), policy_gradient(reach=1.0))
    assert torch.equal(logits(reach=0.3), logits(reach=1.0))


def shows_value_width():
    assert run(baseline="value", value_width=5)[2].policy.value.inner.out_features == 5


FIELDS = [field.name for field in dataclasses.fields(ScoreFunction)]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_changes_what_it_names(field):
    globals()[f"shows_{field}"]()


def test_the_terms_are_the_parts_of_the_objective():
    strategy = ScoreFunction(sample_rows=1.0, policy_weight=0.3, rate_weight=0.7)
    model, rows = lively(strategy), batch()
    uniforms = draw_uniforms(3, 0, 4, *rows.byte_ids.shape, CPU)
    loss, metrics = objective(model, strategy, rows, uniforms, 0.1)
    lived, _, _ = experience(model, strategy, rows, uniforms)
    terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
    torch.testing.assert_close(metrics["policy_loss"][0], terms.policy.detach())
    torch.testing.assert_close(metrics["rate_loss"][0], terms.rate.detach())
    expected = lived.rollout.nll.sum() / rows.mask.sum() + 0.1 * lived.early_nll.sum() / rows.mask.sum()
    torch.testing.assert_close(loss.detach(), expected + terms.policy.detach() + terms.rate.detach())


def test_leaving_one_out_takes_two():
    with pytest.raises(ValidationError, match="samples = 1"):
        ScoreFunction(samples=1)
    assert ScoreFunction(samples=1, baseline="none").rollouts == 1


def test_without_rows_to_learn_from_there_is_no_policy_loss():
    strategy = ScoreFunction(sample_rows=0.25)
    model, rows = lively(strategy), batch().rows(slice(1, 3))
    assert len(learning_rows(strategy, 2, first=1)) == 0
    uniforms = draw_uniforms(3, 0, 4, *rows.byte_ids.shape, CPU)
    lived, _, _ = experience(model, strategy, rows, uniforms, first_row=1)
    terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
    assert terms.policy == 0
    assert terms.rate != 0


@pytest.mark.parametrize("baseline", ["batch", "leave_one_out", "value", "none"])
def test_padding_and_targets_without_a_mask_change_nothing(baseline):
    """Loss, reward and rate of rows padded right equal those of the rows themselves."""
    strategy = ScoreFunction(sample_rows=1.0, baseline=baseline)
    model, rows = lively(strategy), batch()
    uniforms = draw_uniforms(3, 0, 4, len(TEXTS), 20, CPU)
    pad = torch.full((len(TEXTS), 6), 256)
    padded = Batch(
        torch.cat((rows.byte_ids, pad), 1),
        torch.cat((rows.targets, pad), 1),
        torch.cat((rows.mask, pad == 0), 1),
        torch.cat((rows.document_ids, torch.ones_like(pad)), 1),
    )
    found, found_metrics = objective(model, strategy, padded, uniforms, 0.1)
    expected, expected_metrics = objective(model, strategy, rows, uniforms[..., :14], 0.1)
    torch.testing.assert_close(found, expected)
    for name, value in expected_metrics.items():
        torch.testing.assert_close(found_metrics[name], value, rtol=1e-4, atol=1e-5)


def test_the_rate_term_alone_brings_the_rate_to_its_target():
    strategy = ScoreFunction(policy_weight=0.0, rate_weight=1.0, bytes_per_token=4.0, logit_divisor=1.0)
    model, rows = lively(strategy), batch()
    optimiser = torch.optim.SGD(model.policy.parameters(), lr=0.5)
    for step in range(150):
        uniforms = draw_uniforms(0, step, 1, *rows.byte_ids.shape, CPU)
        lived, _, _ = experience(model, strategy, rows, uniforms)
        terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
        optimiser.zero_grad()
        terms.rate.backward()
        optimiser.step()
    decision = lived.rollout.decision
    assert torch.sigmoid(decision.logits)[decision.free].mean().item() == pytest.approx(0.25, abs=0.02)

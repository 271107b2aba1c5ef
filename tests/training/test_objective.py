import math
from dataclasses import replace

import pytest
import torch
from tiny import TINY_MODEL

from byteseam.evaluation.segment import text_batch
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction, Uniform, Whitespace
from byteseam.training.objective import draw_uniforms, experience, learning_rows, objective
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Rollout

CPU = torch.device("cpu")
STRATEGIES = {
    "none": ScoreFunction(baseline="none"),
    "batch": ScoreFunction(baseline="batch"),
    "leave_one_out": ScoreFunction(samples=3, sample_rows=0.5),
    "value": ScoreFunction(baseline="value"),
    "uniform": Uniform(),
    "whitespace": Whitespace(),
}


def batch(rows: int = 4) -> Batch:
    texts = [text_batch(bytes(range(each * 20, each * 20 + 8)), CPU) for each in range(rows)]
    return Batch(*(torch.cat([getattr(text, name) for text in texts]) for name in Batch.__slots__))


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return STRATEGIES[request.param]


def test_uniforms_are_a_pure_function_of_seed_and_step():
    one = draw_uniforms(1, 7, 2, 3, 40, CPU)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert torch.equal(draw_uniforms(1, 7, 2, 3, 40, CPU), one)
    assert torch.equal(torch.get_rng_state(), state), "nobody else's random numbers are touched"
    assert one.shape == (2, 3, 40)
    assert ((one >= 0) & (one < 1)).all()
    for seed, step in ((1, 8), (2, 7), (0, 7)):
        assert not torch.isclose(draw_uniforms(seed, step, 2, 3, 40, CPU), one).any(dim=-1).all()
    assert not torch.equal(one[0], one[1])
    assert draw_uniforms(2**62, 10**9, 1, 1, 1, CPU).numel() == 1


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25, 1 / 3, 0.1, 0.001])
@pytest.mark.parametrize("rows", [1, 2, 7, 16])
def test_learning_rows_do_not_depend_on_the_cut(share, rows):
    strategy = ScoreFunction(sample_rows=share)
    whole = learning_rows(strategy, rows).tolist()
    assert whole[0] == 0, "there is always one"
    assert len(whole) == math.ceil(rows * share - 1e-9)
    for size in range(1, rows + 1):
        parts = [
            first + row
            for first in range(0, rows, size)
            for row in learning_rows(strategy, min(size, rows - first), first).tolist()
        ]
        assert parts == whole


def test_learning_rows_are_spread_evenly():
    assert learning_rows(ScoreFunction(sample_rows=0.25), 16).tolist() == [0, 4, 8, 12]
    assert learning_rows(ScoreFunction(sample_rows=1 / 3), 7).tolist() == [0, 3, 6]
    assert learning_rows(ScoreFunction(baseline="none", sample_rows=0.25), 3).tolist() == [0, 1, 2]
    assert learning_rows(Whitespace(), 3).tolist() == [0, 1, 2]


def test_the_encoder_runs_once_and_one_rollout_carries_gradients(strategy):
    model, rows = LanguageModel(TINY_MODEL, strategy), batch()
    calls = {"encoder": [], "token_model": [], "decoder": []}
    for name, log in calls.items():
        getattr(model.unet, name).register_forward_pre_hook(
            lambda module, inputs, log=log: log.append((torch.is_grad_enabled(), len(inputs[0])))
        )
    objective(model, strategy, rows, draw_uniforms(0, 0, 3, 4, 9, CPU), 0.1)
    assert calls["encoder"] == [(True, 4)]
    # Two more rollouts of every other row.
    assert calls["token_model"] == calls["decoder"] == [(True, 4), (False, 4)][: min(2, strategy.rollouts)]


def test_what_is_learned_from_cannot_flow_back(strategy):
    model = LanguageModel(TINY_MODEL, strategy)
    lived, early_nll, rollout = experience(model, strategy, batch(), draw_uniforms(0, 0, 3, 4, 9, CPU))
    assert early_nll.requires_grad
    assert rollout.nll.requires_grad
    assert not lived.early_nll.requires_grad
    assert not lived.rollout.nll.requires_grad
    assert lived.extra is None or not lived.extra.nll.requires_grad
    assert torch.equal(lived.rollout.nll, rollout.nll)


def test_the_policy_and_the_language_model_learn_apart(strategy):
    """Without reach, the policy's terms touch nothing but what the strategy learns."""
    model, rows = LanguageModel(TINY_MODEL, strategy), batch()
    if not strategy.learned:
        assert list(model.policy.parameters()) == []
        return
    lived, _, _ = experience(model, strategy, rows, draw_uniforms(0, 0, 3, 4, 9, CPU))
    terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
    (terms.policy + terms.rate + terms.auxiliary).backward()
    assert all(each.grad is None for each in model.unet.parameters())
    assert model.policy.policy.linear.bias.grad.abs().sum() > 0


def test_the_loss_is_the_sum_of_its_reported_parts(strategy):
    model, rows = LanguageModel(TINY_MODEL, strategy), batch()
    loss, metrics = objective(model, strategy, rows, draw_uniforms(0, 0, 3, 4, 9, CPU), 0.25)
    parts = [name for name in metrics if name.endswith("_loss")]
    assert set(parts) == {"nll_loss", "early_loss", "policy_loss", "rate_loss", "auxiliary_loss"}
    torch.testing.assert_close(sum(metrics[name][0] for name in parts), loss.detach())
    torch.testing.assert_close(metrics["nll_loss"][0], metrics["nll"][0] / metrics["nll"][1])
    torch.testing.assert_close(metrics["early_loss"][0], 0.25 * metrics["early_nll"][0] / metrics["early_nll"][1])


def test_metrics_count_bytes_and_free_decisions_alone():
    model, strategy, rows = LanguageModel(TINY_MODEL, Whitespace()), Whitespace(rule="whitespace"), batch(1)
    rows = Batch(rows.byte_ids.clone(), rows.targets.clone(), rows.mask.clone(), rows.document_ids)
    rows.byte_ids[0] = torch.tensor([DOCUMENT_MARK, 32, 97, 98, 32, 99, 32, 32, 97])
    rows.targets[0, 3] = DOCUMENT_MARK  # a mark to predict: in the loss, but no byte
    rows.mask[0, 7:] = False
    _, metrics = objective(model, strategy, rows, draw_uniforms(0, 0, 1, 1, 9, CPU), 0.1)
    assert metrics["nll"][1] == metrics["early_nll"][1] == 6
    assert metrics["rate"].tolist() == [3, 6], "three spaces among six bytes; the forced mark is none"
    assert metrics["probability"][1] == 6
    torch.testing.assert_close(metrics["nll_loss"][0] * 7 - metrics["nll"][0], model_nll(model, strategy, rows)[0, 3])


def model_nll(model, strategy, rows):
    with torch.no_grad():
        return model(strategy, rows, torch.zeros(rows.byte_ids.shape))[1].nll


class Bandit(LanguageModel):
    """A model in which the boundary at one place makes a later target cheaper, and all boundaries pay a little."""

    place, worth, each = 4, 1.0, 0.0

    def rollout(self, encoded, decision: Decision, batch: Batch) -> Rollout:
        nll = torch.full(batch.mask.shape, 5.0)
        nll[:, 6] -= self.worth * decision.boundary[:, self.place]
        nll[:, 1:] -= self.each * decision.boundary[:, 1:]
        return Rollout(decision, nll * batch.mask)


def train_bandit(strategy: ScoreFunction, steps: int, **traits) -> torch.Tensor:
    """Probabilities [L] after so many steps on one text, through the whole objective."""
    model, rows = Bandit(TINY_MODEL, strategy), batch(1).rows(torch.zeros(32, dtype=torch.int64))
    for name, value in traits.items():
        setattr(model, name, value)
    optimiser = torch.optim.Adam(model.policy.parameters(), lr=0.1)
    for step in range(steps):
        optimiser.zero_grad()
        uniforms = draw_uniforms(0, step, strategy.rollouts, 32, 9, CPU)
        objective(model, strategy, rows, uniforms, 0.1)[0].backward()
        optimiser.step()
    with torch.no_grad():
        decision = model.decide(strategy, model.encode(rows), rows, uniforms[0])
    return torch.sigmoid(decision.logits[0])


BANDIT = {"bytes_per_token": 2.0, "logit_divisor": 1.0, "rate_weight": 0.0, "gamma": 0.9, "sample_rows": 1.0}


@pytest.mark.parametrize("baseline", ["none", "batch", "leave_one_out", "value"])
def test_a_boundary_that_is_known_to_be_good_becomes_likely(baseline):
    probability = train_bandit(ScoreFunction(baseline=baseline, **BANDIT), 60)
    assert probability[4] > 0.9


def test_a_boundary_that_is_known_to_be_bad_becomes_unlikely():
    assert train_bandit(ScoreFunction(**BANDIT), 60, worth=-1.0)[4] < 0.1


@pytest.mark.parametrize("gamma", [0.0, 0.9])
def test_what_a_boundary_buys_is_credited_as_far_as_the_discount_reaches(gamma):
    # What the boundary at 4 buys comes at 6. Decisions up to 6 see it, those after it never do; with gamma 0, only 6.
    strategy = ScoreFunction(**{**BANDIT, "gamma": gamma})
    model, rows = Bandit(TINY_MODEL, strategy), batch(1).rows(torch.zeros(32, dtype=torch.int64))
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 32, 9, CPU)
    lived, _, _ = experience(model, strategy, rows, uniforms)
    terms = strategy.loss(model.policy, lived, strategy.statistics(lived))
    (gradient,) = torch.autograd.grad(terms.policy, lived.rollout.decision.logits)
    assert set(gradient.abs().sum(0).gt(1e-6).nonzero()[:, 0].tolist()) == ({6} if gamma == 0 else set(range(1, 7)))


def test_without_the_rate_term_every_byte_becomes_a_boundary():
    strategy = ScoreFunction(**{**BANDIT, "bytes_per_token": 4.0})
    free, held = (
        train_bandit(replace(strategy, rate_weight=weight), 100, worth=0.0, each=0.1)[1:8].mean().item()
        for weight in (0.0, 1.0)
    )
    assert free > 0.95
    # Pressure and pull meet a little above the target.
    assert 0.2 < held < 0.5

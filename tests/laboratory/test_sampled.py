"""Estimators on sampled segmentations: of texts short enough to be enumerated too."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import TINY_MODEL

from byteseam.errors import UserError
from byteseam.laboratory import sampled
from byteseam.laboratory.enumeration import enumerate_segmentations, exact_gradient, probabilities
from byteseam.laboratory.exact import PAPER
from byteseam.laboratory.sampled import ESTIMATORS, GROUP, Laboratory, draw_segmentations, relative_error, row_texts
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction, Uniform
from byteseam.trained import Trained
from byteseam.training.checkpoint import State
from byteseam.training.precision import choose_precision
from byteseam.types import DOCUMENT_MARK, Batch

TEXTS = (b"to be or", b"not to b", b"the whal", b"e is not")


def rows(texts=TEXTS) -> Batch:
    ids = torch.tensor([[DOCUMENT_MARK, *text] for text in texts])
    targets = torch.tensor([[*text, DOCUMENT_MARK] for text in texts])
    return Batch(ids, targets, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))


@pytest.fixture
def laboratory(tiny_config):
    """``laboratory(rollouts=512, pool="mean")``: a random model to which boundaries matter, and rows of 8 bytes."""

    def make(rollouts: int = 2048, **settings) -> Laboratory:
        strategy = ScoreFunction(bytes_per_token=3.0, gamma=1.0, **settings)
        torch.manual_seed(3)
        model = LanguageModel(TINY_MODEL, strategy).eval()
        with torch.no_grad():
            for head in (model.unet.head, model.unet.early_head):
                head.linear.weight.mul_(10)
            model.unet.token_norm.weight.mul_(3)
            model.policy.policy.linear.weight.normal_(std=0.3 * 16)
        config = replace(tiny_config(), model=TINY_MODEL, strategy=strategy)
        precision = choose_precision("fp32", torch.device("cpu"))
        trained = Trained(config, model, strategy, precision, State(), Path("run"))
        tables = draw_segmentations(
            model, strategy, rows(), rollouts, generator=torch.Generator().manual_seed(1), precision=precision
        )
        others = [rows([text[::-1] for text in TEXTS])]
        return Laboratory(trained, strategy, model.policy, rows(), tables, others, 0)

    return make


def exact(laboratory: Laboratory, gamma: float) -> torch.Tensor:
    model = laboratory.trained.model
    tables = [enumerate_segmentations(model, laboratory.strategy, rows([text])) for text in TEXTS]
    return torch.stack([exact_gradient(model.policy, table, gamma) for table in tables])


def test_drawn_segmentations_come_with_their_probabilities_and_costs(laboratory):
    made = laboratory(2048)
    model = made.trained.model
    for row, drawn in enumerate(made.tables):
        whole = enumerate_segmentations(model, made.strategy, rows([TEXTS[row]]))
        number = (whole.boundary[None] == drawn.boundary[:, None]).all(-1).int().argmax(1)
        torch.testing.assert_close(drawn.nll, whole.nll[number], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(drawn.early_nll, whole.early_nll, rtol=1e-4, atol=1e-4)
        share = number.bincount(minlength=len(whole.nll)).double() / len(number)
        odds = probabilities(model.policy.policy, whole, whole.taps)
        error = (odds * (1 - odds) / len(number)).sqrt()
        assert ((share - odds).abs() < 5 * error + 1e-3).all()


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_the_reference_is_the_exact_gradient_as_nearly_as_it_says(laboratory, gamma):
    made = laboratory(6144)
    reference, true = made.reference(gamma), exact(made, gamma)
    off = (reference.taps - true).square().sum().item()
    assert reference.error[0] < 0.05
    assert off < 4 * reference.noise[0]
    assert reference.squared[0] == pytest.approx(true.square().sum().item(), rel=0.3)
    parameters = made.parameters(true[None])[0]
    assert (reference.parameters - parameters).square().sum().item() < 6 * reference.noise[1]


def test_the_gradient_of_the_parameters_is_back_propagated(laboratory):
    made = laboratory(256)
    policy = made.policy.policy
    taps = torch.randn(1, len(TEXTS), len(TEXTS[0]) + 1, 1, dtype=torch.float64)
    hidden = torch.cat([table.encoded.hidden for table in made.tables])
    normed = policy.norm(hidden).double()
    wanted = {
        "weight": torch.einsum("blw,bld->wd", taps[0], normed).flatten(),
        "bias": taps[0].sum((0, 1)),
    }
    found = made.parameters(taps)[0]
    names = [name for name, _ in policy.named_parameters()]
    sizes = [parameter.numel() for parameter in policy.parameters()]
    for name, part in zip(names, found.split(sizes), strict=True):
        if name.startswith("linear."):
            torch.testing.assert_close(part, wanted[name.removeprefix("linear.")].detach(), rtol=1e-4, atol=1e-4)


def test_every_estimator_is_right_on_average_and_errors_are_those_of_the_samples(laboratory, monkeypatch):
    monkeypatch.setattr(sampled, "TIMED_ROUNDS", 1)
    monkeypatch.setattr(sampled, "MOST_TRIALS", 1500)
    made = laboratory(6144, pool="mean")
    ((_, found),) = list(made.rows([1.0]))
    assert [row.estimator for row in found] == [*ESTIMATORS, *made.gumbels()]
    true = exact(made, 1.0)
    for row in found:
        if row.estimator in ESTIMATORS:
            assert row.bias < 2.5 * row.bias_noise + 0.02, row
            samples = made.drawn(ESTIMATORS[row.estimator], 1.0)
            size = true.square().sum()
            error = ((samples - true).square().sum((1, 2, 3)).mean() / size).item()
            assert row.error_bytes == pytest.approx(error, rel=0.2)
        assert row.against_paper == pytest.approx(
            row.error / paper(found).error * row.milliseconds / paper(found).milliseconds, rel=0.01
        )
    errors = {row.estimator: row.error for row in found}
    assert errors["early exit, leave-one-out of 8"] < errors["early exit, leave-one-out of 4"]
    assert errors["early exit, leave-one-out of 4"] < errors["leave-one-out of 4, a quarter of the rows"]
    assert min(row.bias for row in found if "Gumbel" in row.estimator) > 3 * found[-1].bias_noise


def paper(found):
    return next(row for row in found if row.estimator == PAPER)


def test_a_fault_shows_as_bias(laboratory, monkeypatch):
    monkeypatch.setattr(sampled, "TIMED_ROUNDS", 1)
    monkeypatch.setattr(sampled, "MOST_TRIALS", 1500)
    made = laboratory(2048)
    real = sampled.estimates
    monkeypatch.setattr(sampled, "estimates", lambda *given: real(*given).roll(1, 1))
    honest = laboratory(2048)
    reference = replace(
        made.reference(1.0), taps=exact(made, 1.0), parameters=made.parameters(exact(made, 1.0)[None])[0]
    )
    row = honest.compare(
        PAPER, honest.drawn(ESTIMATORS["early exit, leave-one-out of 4"], 1.0), reference, {PAPER: [1.0]}
    )
    assert row.bias > 5 * row.bias_noise


def test_a_share_of_the_rows_stands_for_all(laboratory):
    made = laboratory(1024)
    found = made.drawn(ESTIMATORS["leave-one-out of 2, a quarter of the rows"], 1.0)
    taken = (found != 0).flatten(2).any(-1)
    # Two rollouts that are the same say nothing, so that not every estimate has a row.
    assert (taken.sum(1) <= 1).all()
    assert taken.sum() > 0.8 * len(found)
    assert (taken.sum(0) > 0.1 * len(found)).all()


def test_a_history_is_differentiated_too(laboratory):
    made = laboratory(512, history=3)
    assert made.reference(1.0).taps.shape == (4, 9, 3)
    assert made.gumbels() == {}


def test_the_entropy_is_the_policys(laboratory):
    made = laboratory(256)
    with torch.no_grad():
        made.policy.policy.linear.weight.zero_()
    fresh = replace(made, tables=draw_again(made))
    p = 1 / 3
    assert fresh.entropy == pytest.approx(-(p * math.log(p) + (1 - p) * math.log(1 - p)), abs=1e-3)


def draw_again(made):
    return draw_segmentations(
        made.trained.model,
        made.strategy,
        rows(),
        4 * GROUP,
        generator=torch.Generator(),
        precision=made.trained.precision,
    )


def test_errors_leave_out_the_references_own():
    found = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    # Squared distances 4 and 4 from (1, 0), of which 1 is the reference's own error; its squared norm is 2.
    assert relative_error(found, torch.tensor([1.0, 0.0]), 1.0, 2.0) == pytest.approx((4 + 8) / 2 / 2 - 0.5)


def test_the_texts_of_rows_are_their_longest_documents():
    ids = torch.tensor([[DOCUMENT_MARK, 97, 98, DOCUMENT_MARK, 99], [97, DOCUMENT_MARK, 98, 99, 100]])
    nothing = torch.zeros_like(ids)
    assert row_texts(Batch(ids, ids, nothing.bool(), nothing)) == [b"ab", b"bcd"]


def test_a_run_of_another_strategy_is_refused(tiny_run):
    trained = replace(Trained.open(tiny_run), strategy=Uniform())
    with pytest.raises(UserError, match=r"strategy uniform; .* give a run of score_function"):
        Laboratory.open(trained, trained.corpus(), 2, 256, 0, lambda done, total: None)

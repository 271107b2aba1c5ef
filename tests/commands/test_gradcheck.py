"""The command that judges estimators: all are what they should be, and planted faults are found."""

import json

import pytest
import torch

from byteseam import cli
from byteseam.laboratory.exact import (
    exact_of,
    largest_standard_errors,
    lively_model,
    log_likelihood,
    text_batch_with_mark,
)
from byteseam.strategies import Gumbel, HNet, score_function
from byteseam.strategies.value import ValueHead


@pytest.fixture
def gradcheck(capsys):
    def call(*arguments: str) -> tuple[int, dict]:
        code = cli.main(["gradcheck", "--json", "--text", "to be o", "--draws", "4000", *arguments])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else {}

    return call


def verdicts(answer: dict) -> set[tuple[str, str]]:
    return {(row["estimator"], row["verdict"]) for row in answer["estimators"]}


def test_all_estimators_are_what_they_should_be(gradcheck):
    code, answer = gradcheck()
    assert code == answer["wrong"] == 0
    rows = {(row["estimator"], row["gamma"]): row for row in answer["estimators"]}
    assert len(rows) == 6 * 3 + 3
    for (name, gamma), row in rows.items():
        assert row["verdict"] == ("unbiased" if gamma == 1 else "biased by design")
        assert row["error"] == pytest.approx(row["variance"] + row["bias"] ** 2, rel=0.02)
        assert row["seconds"] > 0
        if gamma is None:
            assert row["bias"] > 0.3, f"{name} misses the gradient"
        elif gamma < 1:
            assert row["predicted_bias"] > 0.03
        else:
            assert row["predicted_bias"] == 0
    best, paper = (rows[name, 1.0]["error"] for name in ("early exit, leave-one-out of 4", "early exit, no baseline"))
    assert best < paper / 4


def test_the_table_for_people(capsys):
    assert cli.main(["gradcheck", "--only", "leave-one-out of 2", "--draws", "500", "--text", "to b"]) == 0
    out = capsys.readouterr().out
    assert out.count("early exit, leave-one-out of 2") == 3
    assert "unbiased" in out
    assert "…" not in out


def plant(monkeypatch, name, fault):
    right = getattr(score_function, name)
    monkeypatch.setattr(score_function, name, lambda *arguments: fault(right, *arguments))


FAULTS = {
    "a sign": ("score_function_loss", lambda right, *rest: -right(*rest)),
    "returns a byte late": (
        "discounted_returns",
        lambda right, *rest: torch.nn.functional.pad(right(*rest)[..., 1:], (0, 1)),
    ),
    "a discount that never arrives": ("discounted_returns", lambda right, reward, gamma, on: right(reward, 1.0, on)),
    "a baseline that sees its own sample": (
        "leave_one_out_over_rollouts",
        lambda right, returns: returns.mean(0, keepdim=True).expand_as(returns),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(gradcheck, monkeypatch, fault):
    plant(monkeypatch, *FAULTS[fault])
    code, answer = gradcheck("--only", "leave-one-out of 2")
    assert code == 1
    assert ("early exit, leave-one-out of 2", "WRONG") in verdicts(answer)


def test_a_baseline_that_sees_the_decision_is_found(gradcheck, monkeypatch):
    right = ValueHead.forward

    def peeking(self, hidden, early_nll, boundary, document_ids, gamma):
        return right(self, hidden, early_nll, boundary, document_ids, gamma) + 3.0 * boundary

    monkeypatch.setattr(ValueHead, "forward", peeking)
    code, answer = gradcheck("--only", "learned value")
    assert code == 1
    assert verdicts(answer) == {("early exit, learned value", "WRONG")}


def test_a_forgotten_early_exit_is_found_by_its_noise(gradcheck, monkeypatch):
    assert gradcheck("--only", "no baseline")[0] == 0
    monkeypatch.setattr(score_function, "early_exit_reward", lambda nll, early_nll: -nll)
    code, answer = gradcheck("--only", "no baseline")
    assert code == 1
    assert verdicts(answer) >= {("early exit, no baseline", "WRONG")}
    assert all(row["verdict"] != "WRONG" for row in answer["estimators"] if row["estimator"].startswith("likelihood"))


@pytest.mark.parametrize("strategy", [Gumbel(bytes_per_token=2.0), HNet(bytes_per_token=2.0)], ids=["gumbel", "hnet"])
def test_the_exact_gradient_of_drawn_boundaries_is_the_slope_of_the_expected_likelihood(strategy):
    """Against the mean of many draws a little to the left and to the right, with the same random numbers."""
    model, batch = lively_model(strategy, 3), text_batch_with_mark(b"to b")
    outputs = torch.tensor([[0.0, 0.3, -0.5, 0.8, -0.2]])
    with torch.no_grad():
        encoded = model.encode(batch)
    exact = exact_of(model, strategy, batch, encoded, outputs)
    with torch.no_grad():
        uniforms = torch.rand(40_000, 5)
        for place in (1, 3):
            moved = torch.zeros(1, 5)
            moved[0, place] = 0.25
            ways = [
                log_likelihood(model, strategy, batch, encoded, (outputs + way).expand(40_000, -1), uniforms)[
                    0
                ].double()
                for way in (moved, -moved)
            ]
            slopes = (ways[0] - ways[1]) / 0.5
            error = slopes.std() / 200
            assert abs(slopes.mean() - exact[place]) < 5 * error + 0.03 * exact.norm()
    assert exact[0] == 0
    assert exact.norm() > 0.05


def test_standard_errors():
    samples = torch.tensor([[1.0, 2.0], [3.0, 2.0]]).double()
    # The mean is 2 with a standard error of 1; what never varies must be exact.
    assert largest_standard_errors(samples, torch.tensor([5.0, 2.0]).double()) == pytest.approx(3.0)
    assert largest_standard_errors(samples, torch.tensor([2.0, 2.5]).double()) == float("inf")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--text", "much too long a text"), "--text has 20 bytes, but every segmentation is scored: give 2 to 12"),
        (("--draws", "5"), "--draws is 5"),
        (("--only", "nonsense"), "--only 'nonsense' is in the name of no estimator"),
    ],
)
def test_mistakes_are_one_sentence(capsys, arguments, sentence):
    assert cli.main(["gradcheck", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1

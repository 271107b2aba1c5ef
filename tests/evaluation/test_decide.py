"""Three ways to decide: what each compares probabilities with, and whether a rate is reached."""

import pytest
import torch

from byteseam.data.batches import evaluation_batches
from byteseam.data.corpus import Corpus
from byteseam.evaluation.decide import Decider, calibrate, realised_rate
from byteseam.language_model import LanguageModel
from byteseam.strategies import DEFAULT_THRESHOLD, ScoreFunction, Uniform, Whitespace

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def batches(tiny_corpus):
    return [batch for batch, _ in evaluation_batches(Corpus.open(tiny_corpus, "train"), 32, 100)]


@pytest.fixture
def model_of(tiny_config):
    """``model_of(strategy)``: a model whose policy has random weights."""

    def make(strategy):
        torch.manual_seed(2)
        model = LanguageModel(tiny_config("model.window=8").model, strategy)
        with torch.no_grad():
            for parameter in model.policy.parameters():
                parameter.normal_(std=8.0)
        return model

    return make


def test_samples_are_as_in_training_and_thresholds_are_one_number():
    learned = ScoreFunction()
    drawn = Decider("sample", seed=3).uniforms(learned, 4, 1000, 0, CPU)
    assert drawn.shape == (4, 1000)
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.02)
    assert 0 <= float(drawn.min()) < float(drawn.max()) < 1
    assert bool((Decider("threshold").uniforms(learned, 2, 3, 0, CPU) == DEFAULT_THRESHOLD).all())
    assert bool((Decider("rate", 0.25).uniforms(learned, 2, 3, 0, CPU) == 0.25).all())


@pytest.mark.parametrize("mode", ["sample", "threshold", "rate"])
def test_a_strategy_that_is_random_gets_random_numbers(mode):
    drawn = Decider(mode, seed=1).uniforms(Uniform(), 1, 50, 0, CPU)
    assert len(drawn.unique()) == 50
    assert len(Decider("threshold").uniforms(Whitespace(), 1, 50, 0, CPU).unique()) == 1


def test_draws_follow_from_the_seed_and_the_pass():
    def draw(seed, number):
        return Decider("sample", seed=seed).uniforms(ScoreFunction(), 1, 20, number, CPU)

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
    assert not torch.equal(draw(1, 2), draw(2, 2))
    draw(-1, 0), draw(10**30, 0)  # any whole number is a seed


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("target", [0.05, 0.2, 0.5])
def test_calibration_reaches_the_rate(model_of, batches, history, target):
    strategy = ScoreFunction(history=history)
    model = model_of(strategy)
    threshold, rate = calibrate(model, strategy, batches, target)
    assert rate == pytest.approx(target, abs=0.01)
    assert realised_rate(model, strategy, batches, Decider("rate", threshold)) == rate
    assert abs(realised_rate(model, strategy, batches, Decider("threshold")) - 0.2) > 0.02  # it was no matter of course


def test_of_equal_probabilities_the_nearer_rate_is_taken(tiny_config, batches):
    """A fresh policy gives every byte the target rate: a threshold takes all bytes or none."""
    strategy = ScoreFunction(bytes_per_token=4)
    model = LanguageModel(tiny_config().model, strategy)
    threshold, rate = calibrate(model, strategy, batches[:1], 0.3)
    assert (rate, threshold >= 0.25) == (0.0, True)
    threshold, rate = calibrate(model, strategy, batches[:1], 0.7)
    assert (rate, threshold <= 0.25) == (1.0, True)


def test_a_realised_rate_counts_free_decisions(model_of, batches):
    strategy = Whitespace(rule="whitespace")
    whitespace = bytes_read = 0
    for batch in batches:
        read = batch.byte_ids[batch.mask & (batch.byte_ids != 256)]
        whitespace += int(((read == 32) | ((read >= 9) & (read <= 13))).sum())
        bytes_read += len(read)
    rate = realised_rate(model_of(strategy), strategy, batches, Decider("threshold"))
    assert rate == pytest.approx(whitespace / bytes_read)
    uniform = Uniform(bytes_per_token=4)
    assert realised_rate(model_of(uniform), uniform, batches, Decider("sample")) == pytest.approx(0.25, abs=0.03)

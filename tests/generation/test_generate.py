"""Continuing a text by full forward passes."""

from dataclasses import replace

import pytest
import torch

from byteseam.evaluation.decide import Decider
from byteseam.evaluation.evaluate import NotFiniteError
from byteseam.evaluation.segment import text_batch
from byteseam.generation import generate as module
from byteseam.generation.generate import Sampling, generate
from byteseam.language_model import LanguageModel
from byteseam.strategies import STRATEGIES
from byteseam.training.precision import Precision

FP32 = Precision(torch.device("cpu"), bf16=False)
LENGTH = 32
PROMPT = "to be é ".encode()


@pytest.fixture(scope="module")
def made(tiny_config):
    """(model, strategy): boundaries of all probabilities, and no document ever ends."""
    return make(tiny_config())


def make(config):
    torch.manual_seed(5)
    model = LanguageModel(config.model, config.strategy)
    with torch.no_grad():
        model.unet.head.linear.weight.normal_(std=0.3)
        model.unet.head.linear.bias[256] = -100.0
        if config.strategy.learned:
            model.policy.policy.linear.weight.normal_(std=20.0)
    return model, config.strategy.at(1.0)


def run(made, prompt=PROMPT, max_bytes=12, decider=None, length=LENGTH, **sampling):
    """A list of (byte, boundary)."""
    return list(
        generate(
            *made,
            prompt,
            max_bytes=max_bytes,
            length_bytes=length,
            decider=decider or Decider("sample"),
            sampling=Sampling(**sampling),
            precision=FP32,
        )
    )


def greedy_by_hand(made, prompt, count, decider, length=LENGTH):
    """The likeliest byte after a full forward pass over the newest bytes, again and again."""
    model, strategy = made
    data = prompt
    numbers = decider.uniforms(strategy, 1, len(prompt) + count + 1, 0, FP32.device)
    for _ in range(count):
        start = max(0, len(data) - length + 1)
        batch = text_batch(data[start:], FP32.device)
        with torch.no_grad():
            encoded = model.encode(batch)
            decision = model.decide(strategy, encoded, batch, numbers[:, start : len(data) + 1])
            data += bytes([int(model.logits(encoded, decision, batch)[0, -1].argmax())])
    return data[len(prompt) :]


def text(produced):
    return bytes(byte for byte, _ in produced)


@pytest.mark.parametrize("mode", ["sample", "threshold"])
@pytest.mark.parametrize("prompt", [b"", b"a", PROMPT, bytes(range(128, 256))])
def test_temperature_zero_is_the_likeliest_byte_of_a_full_forward(made, mode, prompt):
    decider, count = Decider(mode, seed=2), 12
    if len(prompt) > LENGTH:
        count = 1  # later the two part, for here the context's boundaries would be decided anew
    expected = greedy_by_hand(made, prompt, count, decider)
    assert text(run(made, prompt, count, decider, temperature=0)) == expected


def test_the_likeliest_of_one_is_the_likeliest(made):
    expected = run(made, temperature=0)
    assert run(made, temperature=1.5, top_k=1) == expected
    assert run(made, temperature=1.5, top_p=1e-9) == expected


def test_drawing_follows_the_seeds(made):
    assert run(made, seed=1) == run(made, seed=1)
    assert run(made, seed=1) != run(made, seed=2)
    assert text(run(made, seed=-1)) != text(run(made, seed=10**30))  # any whole number is a seed
    greedy = [run(made, decider=Decider("sample", seed=seed), temperature=0, max_bytes=40) for seed in (1, 2)]
    assert greedy[0] != greedy[1]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_exactly_so_many_bytes(made, count):
    assert len(run(made, max_bytes=count)) == count
    assert len(run(made, b"", count)) == count


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_longer_continuation_begins_as_the_shorter_one(made, temperature):
    """Bytes and boundaries, also when the context has moved on."""
    long = run(made, max_bytes=70, temperature=temperature)
    for count in (1, 10, 40):
        assert run(made, max_bytes=count, temperature=temperature) == long[:count]


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("mode", ["sample", "threshold"])
def test_boundaries_stay_when_the_context_they_were_decided_in_is_gone(tiny_config, monkeypatch, history, mode):
    """What every forward pass decides of the bytes that it has seen before is what was decided first."""
    model, strategy = made = make(tiny_config(f"strategy.history={history}"))
    first, seen = {}, 0
    decide = model.decide

    def watched(strategy, encoded, batch, uniforms):
        nonlocal seen
        decision = decide(strategy, encoded, batch, uniforms)
        seen += 1
        start = len(PROMPT) + seen - 1 - (batch.byte_ids.shape[1] - 1)
        for offset, boundary in enumerate(decision.boundary[0, 1:].tolist()):
            assert first.setdefault(start + offset, boundary) == boundary
        return decision

    monkeypatch.setattr(model, "decide", watched)
    produced = run(made, max_bytes=60, decider=Decider(mode))
    assert seen == 61
    assert [boundary for _, boundary in produced] == [first[len(PROMPT) + index] for index in range(60)]
    assert {boundary for _, boundary in produced} == {True, False}
    assert strategy.history == history


def test_the_context_is_the_newest_bytes(made):
    """With thresholds and one byte to come, what stands before the context cannot be told."""
    tail, decider = PROMPT * 4, Decider("threshold")
    ends = {text(run(made, front + tail[-31:], 1, decider, temperature=0)) for front in (b"", b"x", b"yyyy" * 20)}
    assert len(ends) == 1
    short, long = (text(run(made, tail, 5, decider, length=length, temperature=0)) for length in (2, LENGTH))
    assert short != long


@pytest.mark.parametrize("steps", [0, 3])
def test_a_document_mark_ends_it(made, monkeypatch, steps):
    calls = []

    def probabilities(logits, *limits):
        calls.append(limits)
        likeliest = 256 if len(calls) > steps else ord("x")
        return torch.nn.functional.one_hot(torch.tensor(likeliest), 257).float()

    monkeypatch.setattr(module, "next_id_probabilities", probabilities)
    assert text(run(made, temperature=0.3, top_k=7, top_p=0.9)) == b"x" * steps
    assert calls == [(0.3, 7, 0.9)] * (steps + 1)


def test_fixed_rules_generate_too(tiny_config):
    for name in ("whitespace", "uniform"):
        assert len(run(make(tiny_config(f"strategy.name={name}")), max_bytes=40)) == 40


def test_the_prompt_is_not_changed(made):
    prompt = bytearray(PROMPT)
    run(made, prompt)
    assert prompt == PROMPT


def test_sampling_has_the_usual_defaults():
    assert Sampling() == Sampling(temperature=1.0, top_k=None, top_p=None, seed=0)
    assert replace(Sampling(), seed=1) != Sampling()


def test_a_model_gone_astray_is_one_sentence(tiny_config):
    model, _ = made = make(tiny_config())
    with torch.no_grad():
        model.unet.head.linear.bias[3] = float("inf")
    with pytest.raises(NotFiniteError, match=r"^the next byte has no probabilities: the model went astray"):
        run(made)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_goes_on_beyond_the_window_and_a_rule_by_its_place_in_the_text(tiny_config, name):
    config = tiny_config(f"strategy.name={name}")
    strategy = config.strategy.settled(config.model, LENGTH).at(1.0)
    torch.manual_seed(6)
    model = LanguageModel(config.model, strategy)
    if strategy.fit_bytes:
        strategy.fit(model.policy, [b"to be or not to be, that is "] * 20)
    with torch.no_grad():
        model.unet.head.linear.bias[256] = -100.0
    produced = run((model, strategy), max_bytes=50)
    assert len(produced) == 50
    assert produced[:20] == run((model, strategy), max_bytes=20)
    if strategy.by_rule:
        data = PROMPT + text(produced)
        numbers = Decider("sample").uniforms(strategy, 1, len(data) + 1, 0, FP32.device)
        batch = text_batch(data, FP32.device)
        with torch.no_grad():
            whole = model.decide(strategy, model.encode(batch), batch, numbers).boundary[0, 1 + len(PROMPT) :]
        assert [boundary for _, boundary in produced] == whole.tolist()

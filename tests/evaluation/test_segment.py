"""Cutting any bytes: every byte decided and scored once, whatever the length."""

import numpy as np
import pytest
import torch

from byteseam.evaluation.decide import Decider
from byteseam.evaluation.evaluate import NotFiniteError, evaluate
from byteseam.evaluation.segment import segment, text_batch
from byteseam.language_model import LanguageModel
from byteseam.strategies import STRATEGIES, Whitespace
from byteseam.training.precision import Precision

FP32 = Precision(torch.device("cpu"), bf16=False)
LENGTH = 32
TEXT = "to be, or not to be é 中文 🎉 that is\tthe question:\r\nwhether 'tis nobler ".encode() * 3


@pytest.fixture(scope="module")
def made(tiny_config):
    """(model, strategy), the policy's weights large enough for boundaries of all probabilities."""
    return make(tiny_config())


def make(config):
    torch.manual_seed(4)
    model = LanguageModel(config.model, config.strategy)
    with torch.no_grad():
        model.unet.head.linear.weight.normal_(std=0.3)
        if config.strategy.learned:
            model.policy.policy.linear.weight.normal_(std=20.0)
    return model, config.strategy.at(1.0)


def cut(made, data, mode="threshold", length=LENGTH, **options):
    decider = Decider(mode, **options)
    return segment(*made, data, name="x", length_bytes=length, decider=decider, precision=FP32)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 15, 16, 30, 31, 32, 33, 47, 62, 63, 64, 100, len(TEXT)])
def test_the_spans_are_the_text(made, size):
    data = TEXT[:size]
    record = cut(made, data)
    spans = record.spans()
    assert b"".join(span.data for span in spans) == record.data == data
    assert [span.start for span in spans] == [0, *(span.end for span in spans)][: len(spans)]
    assert len(record.boundary) == len(record.probability) == len(record.nll_nats) == size
    assert bool((record.nll_nats > 0).all())
    assert bool((record.boundary == (record.probability > 0.5)).all())


@pytest.mark.parametrize("data", [bytes(range(256)), b"\xff\xfe\x00\xc3(\xed\xa0\x80\xf0\x9f", b"\x80" * 40, b"\x00"])
def test_any_bytes_can_be_cut(made, data):
    record = cut(made, data)
    assert b"".join(span.data for span in record.spans()) == data
    assert np.isfinite(record.nll_nats).all()


@pytest.mark.parametrize("length", [2, 3, 4, 9, 32])
def test_a_long_text_is_decided_and_scored_once_with_half_a_window_behind(made, length):
    """Each byte equals what one forward pass over the window it falls into gives, by a loop of its own."""
    (model, strategy), data = made, TEXT[:80]
    record = cut(made, data, length=length)
    window, done, start = max(length - 1, 2), 0, 0
    while done < len(data):
        end = min(start + window, len(data))
        batch = text_batch(data[start:end], FP32.device)
        with torch.no_grad():
            encoded = model.encode(batch)
            decision = model.decide(strategy, encoded, batch, torch.full(batch.byte_ids.shape, 0.5))
        probability = torch.sigmoid(decision.logits[0, 1:]).numpy()
        assert np.allclose(record.probability[done:end], probability[done - start :], atol=1e-6)
        assert done - start >= window // 2 or start == 0
        done, start = end, end - window // 2


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("mode", ["sample", "threshold"])
def test_the_costs_belong_to_the_boundaries_that_are_shown(tiny_config, history, mode):
    """A later window reads earlier bytes in less context, but with the boundaries they were given."""
    model, _ = made = make(tiny_config(f"strategy.history={history}"))
    record, window = cut(made, TEXT, mode), LENGTH - 1
    start = window - window // 2
    batch = text_batch(TEXT[start : start + window], FP32.device)
    shown = torch.zeros(batch.byte_ids.shape, dtype=torch.bool)
    shown[0, 0] = True
    shown[0, 1:] = torch.tensor(record.boundary[start : start + window])
    with torch.no_grad():
        scores = torch.log_softmax(model.unet.decode(model.encode(batch).hidden, batch.document_ids, shown), -1)[0]
    fresh = np.arange(window, start + window)
    expected = [-float(scores[index - start, TEXT[index]]) for index in fresh]
    assert np.allclose(record.nll_nats[fresh], expected, atol=1e-4)


def test_the_cost_of_a_text_that_fits_is_the_evaluation_s(made):
    data = TEXT[: LENGTH - 1]
    record, batch = cut(made, data), text_batch(data, FP32.device)
    evaluation = evaluate(*made, [(batch, torch.zeros_like(batch.targets))], Decider("threshold"), FP32)
    assert evaluation.bytes_scored == len(data)
    assert record.bits_per_byte == pytest.approx(evaluation.bits_per_byte, rel=1e-5)
    assert record.early_bits_per_byte == pytest.approx(evaluation.early_bits_per_byte, rel=1e-5)


def test_the_beginning_of_a_text_is_cut_as_the_text_is(made):
    whole = cut(made, TEXT, "sample", seed=3)
    for size in (1, 5, 31, 40, 100):
        part = cut(made, TEXT[:size], "sample", seed=3)
        assert bool((part.boundary == whole.boundary[:size]).all())
        assert np.allclose(part.probability, whole.probability[:size], atol=1e-6)


def test_drawing_follows_the_seed(made):
    assert cut(made, TEXT, "sample", seed=1) == cut(made, TEXT, "sample", seed=1)
    assert cut(made, TEXT, "sample", seed=1) != cut(made, TEXT, "sample", seed=2)
    assert cut(made, TEXT, "threshold", seed=1) == cut(made, TEXT, "threshold", seed=2)


def test_thresholds_cut_more_or_less(made):
    counts = [
        int(cut(made, TEXT, mode, threshold=at).boundary.sum()) for mode in ("threshold", "rate") for at in (0.2, 0.8)
    ]
    assert counts[0] > counts[1] > 0
    assert counts[:2] == counts[2:]
    assert bool(cut(made, TEXT, threshold=0.0).boundary.all())
    assert not cut(made, TEXT, threshold=1.0).boundary.any()


def test_the_record_says_how_it_was_decided(made, tiny_config):
    assert [cut(made, b"a b", mode).decide for mode in ("sample", "threshold", "rate")] == [
        "sample",
        "threshold",
        "rate",
    ]
    fixed = make(tiny_config("strategy.name=whitespace"))
    assert isinstance(fixed[1], Whitespace)
    record = cut(fixed, TEXT, "sample")
    assert (record.decide, record.probability) == ("whitespace", None)
    assert b"".join(span.data for span in record.spans()) == TEXT


def test_a_row_for_a_text():
    batch = text_batch(b"a\xff", FP32.device)
    assert batch.byte_ids.tolist() == [[256, 97, 255]]
    assert batch.targets.tolist() == [[97, 255, 256]]
    assert batch.mask.tolist() == [[True, True, False]]
    assert batch.document_ids.tolist() == [[0, 0, 0]]
    assert text_batch(b"", FP32.device).byte_ids.tolist() == [[256]]


def test_a_model_gone_astray_is_one_sentence(made):
    model, _ = made
    with torch.no_grad():
        bias = model.unet.early_head.linear.bias
        bias[0] = float("nan")
        try:
            with pytest.raises(NotFiniteError, match=r"^the loss on 'x' is not finite: the model went astray"):
                cut(made, TEXT)
        finally:
            bias[0] = 0.0


RULES = [name for name, cls in STRATEGIES.items() if cls.by_rule]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_decides_by_the_place_in_the_text_not_in_a_window(tiny_config, name):
    config = tiny_config(f"strategy.name={name}", "strategy.bytes_per_token=3.5")
    strategy = config.strategy.settled(config.model, LENGTH)
    model = LanguageModel(config.model, strategy)
    if strategy.fit_bytes:
        strategy.fit(model.policy, [TEXT] * 20)
    record = cut((model, strategy), TEXT, "sample")
    batch = text_batch(TEXT, FP32.device)
    numbers = Decider("sample").uniforms(strategy, 1, len(TEXT) + 1, 0, FP32.device)
    with torch.no_grad():
        whole = model.decide(strategy, model.encode(batch), batch, numbers)
    assert record.boundary.tolist() == whole.boundary[0, 1:].tolist()
    assert record.boundary.any()

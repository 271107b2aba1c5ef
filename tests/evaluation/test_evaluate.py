"""The measure of record, against a loop over documents, one at a time."""

import math

import numpy as np
import pytest
import torch

from byteseam.data.batches import evaluation_batches
from byteseam.data.corpus import Corpus
from byteseam.evaluation.agreement import agreement
from byteseam.evaluation.decide import Decider
from byteseam.evaluation.evaluate import NotFiniteError, evaluate, rate_warning
from byteseam.evaluation.segment import text_batch
from byteseam.language_model import LanguageModel
from byteseam.rl.losses import bernoulli_entropy
from byteseam.training.precision import Precision
from byteseam.types import Batch

FP32 = Precision(torch.device("cpu"), bf16=False)


@pytest.fixture(scope="module")
def corpus(tiny_corpus):
    return Corpus.open(tiny_corpus, "validation")


@pytest.fixture(scope="module")
def trained(tiny_config):
    """(model, strategy), the policy's weights large enough for boundaries of all probabilities."""
    torch.manual_seed(4)
    config = tiny_config("model.window=8")
    model = LanguageModel(config.model, config.strategy)
    with torch.no_grad():
        model.unet.head.linear.weight.normal_(std=0.3)
        model.policy.policy.linear.weight.normal_(std=20.0)
    return model, config.strategy.at(1.0)


def score(trained, batches, decider=None, **options):
    return evaluate(*trained, batches, decider or Decider("threshold"), FP32, **options)


def whole_rows(corpus):
    """Every document in a row of its own: no packing, no cuts."""
    for number in range(len(corpus)):
        data = corpus.document(number).tobytes()
        batch = text_batch(data, FP32.device)
        batch = Batch(batch.byte_ids, batch.targets, torch.ones_like(batch.mask), batch.document_ids)
        yield batch, torch.full_like(batch.targets, number)


@pytest.fixture(scope="module")
@torch.no_grad()
def naive(corpus, trained):
    """A dictionary of figures, from plain loops over documents and bytes."""
    model, strategy = trained
    bits, early_bits, sizes, boundaries, entropy = [], [], [], 0, 0.0
    where = None
    for batch, _ in whole_rows(corpus):
        data = batch.targets[0, :-1].numpy().astype(np.uint8)
        encoded = model.encode(batch)
        decision = model.decide(strategy, encoded, batch, torch.full_like(batch.targets, 0.5, dtype=torch.float32))
        scores = torch.log_softmax(model.logits(encoded, decision, batch), -1)[0]
        early_scores = torch.log_softmax(encoded.early_logits, -1)[0]
        bits.append(-sum(float(scores[i, byte]) for i, byte in enumerate(data.tolist())) / math.log(2))
        early_bits.append(-sum(float(early_scores[i, byte]) for i, byte in enumerate(data.tolist())) / math.log(2))
        sizes.append(len(data))
        boundary = decision.boundary[0, 1:].numpy()
        boundaries += int(boundary.sum())
        entropy += float(bernoulli_entropy(decision.logits)[0, 1:].sum())
        here = agreement(data, boundary)
        where = here if where is None else where + here
    size = sum(sizes)
    return {
        "bits_per_byte": sum(bits) / size,
        "early_bits_per_byte": sum(early_bits) / size,
        "rate": boundaries / size,
        "bytes_per_token": size / boundaries,
        "policy_entropy_nats": entropy / size,
        "documents": len(sizes),
        "bytes_scored": size,
        **where.values(),
    }


@pytest.fixture(scope="module")
def alone(trained, corpus):
    with torch.no_grad():
        return score(trained, whole_rows(corpus))


def test_every_figure_equals_a_plain_loop(alone, naive):
    figures = alone.to_dict()
    low, high = figures.pop("bits_per_byte_interval")
    assert figures == pytest.approx(naive, rel=1e-4, abs=1e-6)
    assert low < naive["bits_per_byte"] < high
    assert alone.interval.level == 0.95
    assert 0.1 < alone.rate < 0.9  # both kinds occur
    assert naive["bytes_scored"] > 500


def test_packing_changes_nothing_where_documents_are_whole(trained, corpus, naive):
    """Rows long enough for the whole split: the same documents packed end to end."""
    packed = score(trained, evaluation_batches(corpus, 2048, 2)).to_dict()
    del packed["bits_per_byte_interval"]
    assert packed == pytest.approx(naive, rel=1e-4, abs=1e-6)


def test_short_rows_score_every_byte_once_in_less_context(trained, corpus, alone):
    for length, rows in ((7, 5), (32, 3)):
        cut = score(trained, evaluation_batches(corpus, length, rows))
        assert (cut.bytes_scored, cut.documents) == (corpus.total_bytes, len(corpus))
        assert cut.bits_per_byte != alone.bits_per_byte
        assert cut.bits_per_byte == pytest.approx(alone.bits_per_byte, rel=0.2)


def test_marks_are_not_counted(trained, corpus, alone):
    """The model is sure that no document ends: targets that are marks would cost about 50 nats each."""
    model, _ = trained
    with torch.no_grad():
        bias = model.unet.head.linear.bias
        bias[256] = -50.0
        try:
            sure = score(trained, whole_rows(corpus))
        finally:
            bias[256] = 0.0
    assert alone.bits_per_byte - 0.2 < sure.bits_per_byte < alone.bits_per_byte
    assert sure.bytes_scored == corpus.total_bytes


def test_evaluating_is_deterministic_and_follows_the_seed(trained, corpus):
    def sampled(seed):
        return score(trained, evaluation_batches(corpus, 64, 4), Decider("sample", seed=seed)).to_dict()

    assert sampled(1) == sampled(1)
    assert sampled(1)["rate"] != sampled(2)["rate"]


def test_at_most_so_many_bytes(trained, corpus):
    for limit in (1, 50, 333):
        assert score(trained, evaluation_batches(corpus, 64, 4, limit)).bytes_scored == limit
    assert score(trained, evaluation_batches(corpus, 64, 4, 1e9)).bytes_scored == corpus.total_bytes


def test_an_interval_needs_two_documents(trained, corpus):
    one = score(trained, [next(iter(whole_rows(corpus)))])
    assert (one.documents, one.interval, one.to_dict()["bits_per_byte_interval"]) == (1, None, None)


def test_progress_hears_of_every_byte(trained, corpus):
    heard = []
    score(trained, evaluation_batches(corpus, 32, 4), progress=heard.append)
    assert len(heard) > 1
    assert sum(heard) == corpus.total_bytes


def test_nothing_to_score_is_no_number(trained):
    nothing = score(trained, [])
    assert math.isnan(nothing.bits_per_byte)
    assert (nothing.documents, nothing.bytes_scored, nothing.interval) == (0, 0, None)
    assert nothing.bytes_per_token == math.inf


def test_no_boundary_at_all_is_an_infinite_token(trained, corpus):
    none = score(trained, whole_rows(corpus), Decider("threshold", 1.0))
    assert (none.rate, none.bytes_per_token) == (0.0, math.inf)
    assert math.isnan(none.agreement.boundary_whitespace_share.value)
    assert score(trained, whole_rows(corpus), Decider("threshold", 0.0)).bytes_per_token == 1.0


def test_a_model_gone_astray_is_one_sentence(trained, corpus):
    model, _ = trained
    with torch.no_grad():
        bias = model.unet.head.linear.bias
        bias[0] = float("nan")
        try:
            with pytest.raises(NotFiniteError, match=r"^the loss on held-out text is not finite: the model went"):
                score(trained, whole_rows(corpus))
        finally:
            bias[0] = 0.0


def test_the_batch_is_left_as_it_is(trained, corpus):
    batch, documents = next(evaluation_batches(corpus, 64, 4))
    before = [getattr(batch, name).clone() for name in Batch.__dataclass_fields__]
    score(trained, [(batch, documents)])
    for name, tensor in zip(Batch.__dataclass_fields__, before, strict=True):
        assert torch.equal(getattr(batch, name), tensor)


@pytest.mark.parametrize(
    ("rate", "target", "says"),
    [
        (0.2, 0.2, None),
        (0.219, 0.2, None),
        (0.181, 0.2, None),
        (0.221, 0.2, "the rate 0.221 (4.52 bytes per token) is off its target 0.200 (5.00)"),
        (0.179, 0.2, "the rate 0.179 (5.59 bytes per token) is off its target 0.200"),
        (0.96, 0.2, "collapsed to one a byte (rate 0.960); raise strategy.rate_weight"),
        (1.0, 1.0, None),
        (0.99, 0.95, None),
        (0.005, 0.2, "the boundaries have vanished (rate 0.0050); raise strategy.rate_weight"),
        (0.0, 0.2, "vanished"),
        (0.0, 0.005, "vanished"),
        (0.005, 0.005, None),
        (math.nan, 0.2, None),
    ],
)
def test_a_rate_off_its_target_is_told_in_one_sentence(rate, target, says):
    warning = rate_warning(rate, target)
    assert warning is None if says is None else says in warning
    assert warning is None or "\n" not in warning

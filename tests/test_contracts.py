"""What must hold for every strategy, on CPU in fp32 unless a test says otherwise.

The numbers in the headings are those of the contracts' list: causality (1), prefixes (2), batches (3), padding (4),
packing (5), types (7), the ends of lengths and rates (8), all bytes (9), no surprises for the caller (10), and that
every setting changes what it names (12).
"""

import dataclasses

import pytest
import torch
from torch import Tensor

from byteseam.config import ModelConfig
from byteseam.language_model import LanguageModel
from byteseam.strategies import STRATEGIES, Bpe, Entropy, Gumbel, HNet, ScoreFunction, Strategy, Whitespace
from byteseam.training.objective import decided_by, draw_uniforms, experience, objective
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Encoded

CPU = torch.device("cpu")
WINDOW = 4
CONFIG = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=1,
    token_layers=2,
    decoder_layers=1,
    byte_mlp_width=16,
    token_mlp_width=32,
    window=WINDOW,
)
GIVEN: dict[str, Strategy] = {name: cls(bytes_per_token=3.0) for name, cls in STRATEGIES.items()} | {
    "score_function with history": ScoreFunction(history=4, bytes_per_token=3.0),
    "score_function, mean": ScoreFunction(pool="mean", bytes_per_token=3.0),
    "whitespace, plain": Whitespace(rule="whitespace", pool="mean"),
    "entropy, relative": Entropy(rule="relative", bytes_per_token=3.0),
    "bpe, lines": Bpe(within="lines", vocabulary=270),
    "gumbel, even": Gumbel(rate_control_by="even", bytes_per_token=3.0),
    "hnet, even": HNet(rate_control_by="even", bytes_per_token=3.0),
}
VARIANTS = {name: strategy.settled(CONFIG, 24) for name, strategy in GIVEN.items()}
"""A new strategy is under contract as soon as it stands in the table."""

RATE_WITHOUT_TRAINING = ("score_function", "uniform", "stride")
"""Whose rate is exact before anything is learned; the others' are what the text or training makes of them."""

ENGLISH = b"to be, or not to be: that is the question\n"
FITTED = [ENGLISH * 3, b"to be " * 20, b"not to be\n" * 10] * 4
"""What strategies that learn by counting are fitted on."""
AWKWARD = [
    bytes(range(256)),
    b"\x00" * 9,
    b"\xff\xfe" * 5,
    b"\x80\xbf\x80 lone",
    "🙂🙃 naïve €".encode(),
    b"\xf0\x9f\x99 cut, \xed\xa0\x80 surrogate, \xc0\x80 overlong",
    b"T" * 20,
    b" \t\r\n \n\n",
]


@pytest.fixture(params=VARIANTS)
def strategy(request) -> Strategy:
    return VARIANTS[request.param]


@pytest.fixture
def model(strategy: Strategy) -> LanguageModel:
    return lively(strategy)


def lively(strategy: Strategy) -> LanguageModel:
    """A model whose policy has opinions: one that starts at zero decides the same for all bytes."""
    torch.manual_seed(1)
    model = LanguageModel(CONFIG, strategy)
    if strategy.fit_bytes:
        strategy.fit(model.policy, FITTED)
    with torch.no_grad():
        for name, each in model.policy.named_parameters():
            if name.startswith("policy.linear"):
                each.normal_(std=8)
            elif name.startswith("outer.weight"):
                each.mul_(10)
        for each in model.pooling.parameters():
            each.normal_()
        for head in (model.unet.head, model.unet.early_head):
            head.linear.weight.mul_(10)
    return model


def row(*documents: bytes, length: int | None = None, left: int = 0) -> Batch:
    """One row of whole documents end to end, with padding left and right of them."""
    ids = [each for document in documents for each in (DOCUMENT_MARK, *document)]
    targets = [each for document in documents for each in (*document, DOCUMENT_MARK)]
    numbers = [number for number, document in enumerate(documents) for _ in range(len(document) + 1)]
    right = 0 if length is None else length - left - len(ids)
    numbers = [-1] * left + numbers + [len(documents)] * right
    pad = [DOCUMENT_MARK]
    tensors = (torch.tensor([pad * left + each + pad * right]) for each in (ids, targets))
    mask = torch.tensor([[False] * left + [True] * len(ids) + [False] * right])
    document_ids = torch.tensor([numbers])
    return Batch(*tensors, mask, document_ids - document_ids[:, :1])


def stack(*rows: Batch) -> Batch:
    return Batch(*(torch.cat([getattr(each, name) for each in rows]) for name in Batch.__slots__))


def crop(batch: Batch, part: slice) -> Batch:
    return Batch(*(getattr(batch, name)[:, part] for name in Batch.__slots__))


def random_rows(rows: int, length: int) -> Batch:
    """Rows of spaces and other bytes, so that every strategy has something to find."""
    texts = torch.randint(0, 256, (rows, length - 1))
    texts[torch.rand(texts.shape) < 0.25] = 32
    return stack(*(row(bytes(each)[: length - 1], length=length) for each in texts.tolist()))


@torch.no_grad()
def run(model: LanguageModel, strategy: Strategy, batch: Batch, uniforms: Tensor) -> tuple[Decision, Tensor, Encoded]:
    """(decision, logits, encoded) of one forward pass."""
    encoded = model.encode(batch)
    decision = model.decide(strategy, encoded, batch, uniforms)
    return decision, model.logits(encoded, decision, batch), encoded


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


# 1. Causality


@pytest.mark.parametrize("changed", [1, 5, 14])
def test_a_byte_changes_nothing_before_it(model, strategy, changed):
    batch, uniforms = random_rows(4, 16), torch.rand(4, 16)
    edited = dataclasses.replace(batch, byte_ids=batch.byte_ids.clone())
    edited.byte_ids[:, changed] = torch.where(batch.byte_ids[:, changed] == 32, 97, 32)
    decision, logits, encoded = run(model, strategy, batch, uniforms)
    # Boundaries redrawn with the same random numbers.
    other, found, other_encoded = run(model, strategy, edited, uniforms)
    assert torch.equal(other.boundary[:, :changed], decision.boundary[:, :changed])
    assert torch.equal(other.logits[:, :changed], decision.logits[:, :changed])
    assert torch.equal(found[:, :changed], logits[:, :changed])
    assert torch.equal(other_encoded.early_logits[:, :changed], encoded.early_logits[:, :changed])
    assert not torch.allclose(found[:, changed], logits[:, changed], atol=1e-2), "and something from there on"
    # Boundaries as they were.
    with torch.no_grad():
        fixed = model.logits(other_encoded, decision, edited)
    assert torch.equal(fixed[:, :changed], logits[:, :changed])


def test_a_target_changes_no_logits(model, strategy):
    batch, uniforms = random_rows(2, 16), torch.rand(2, 16)
    edited = dataclasses.replace(batch, targets=batch.targets.flip(1))
    decision, logits, _ = run(model, strategy, batch, uniforms)
    other, found, _ = run(model, strategy, edited, uniforms)
    assert torch.equal(other.boundary, decision.boundary)
    assert torch.equal(found, logits)


def test_a_random_number_decides_its_own_byte_and_later_ones_alone(model, strategy):
    batch, uniforms = random_rows(4, 40), torch.rand(4, 40)
    decision, _, _ = run(model, strategy, batch, uniforms)
    for place in (3, 20):
        moved = uniforms.clone()
        moved[:, place] = 1 - moved[:, place]
        other, _, _ = run(model, strategy, batch, moved)
        assert torch.equal(other.boundary[:, :place], decision.boundary[:, :place])


# 2. Prefixes


@pytest.mark.parametrize("length", [1, 2, 3, WINDOW, WINDOW + 1, 17, 69, 90])
def test_a_prefix_gives_the_prefix(model, strategy, length):
    batch, uniforms = row(ENGLISH, b"", ENGLISH * 2, length=140), torch.rand(1, 140)
    decision, logits, encoded = run(model, strategy, batch, uniforms)
    part = crop(batch, slice(length))
    other, found, other_encoded = run(model, strategy, part, uniforms[:, :length])
    assert torch.equal(other.boundary, decision.boundary[:, :length])
    assert torch.equal(other.free, decision.free[:, :length])
    close(other.logits, decision.logits[:, :length])
    close(other_encoded.hidden, encoded.hidden[:, :length])
    close(found, logits[:, :length])


# 3. Batches


def test_a_row_does_not_depend_on_the_others(model, strategy):
    batch = stack(*(row(text[:30], length=40) for text in (ENGLISH, *AWKWARD)))
    uniforms = torch.rand(batch.byte_ids.shape)
    decision, logits, _ = run(model, strategy, batch, uniforms)
    for number in range(len(uniforms)):
        one = slice(number, number + 1)
        other, found, _ = run(model, strategy, batch.rows(one), uniforms[one])
        assert torch.equal(other.boundary, decision.boundary[one])
        close(other.logits, decision.logits[one])
        close(found, logits[one])


def test_the_same_row_ten_times_gives_the_same_ten_times(model, strategy):
    batch, uniforms = row(ENGLISH), torch.rand(1, 43).expand(10, 43)
    decision, logits, _ = run(model, strategy, batch.rows(torch.zeros(10, dtype=torch.int64)), uniforms)
    assert (decision.boundary == decision.boundary[0]).all()
    close(logits, logits[:1].expand_as(logits))


# 4. Padding


@pytest.mark.parametrize(("left", "right"), [(0, 1), (0, 30), (1, 0), (7, 0), (65, 3)])
def test_padding_changes_nothing_that_is_real(model, strategy, left, right):
    size = len(ENGLISH) + 1
    uniforms = torch.rand(1, left + size + right)
    real = slice(left, left + size)
    decision, logits, _ = run(model, strategy, row(ENGLISH), uniforms[:, real])
    padded = row(ENGLISH, length=left + size + right, left=left)
    other, found, _ = run(model, strategy, padded, uniforms)
    assert torch.equal(other.boundary[:, real], decision.boundary)
    assert torch.equal(other.free[:, real], decision.free)
    assert not other.free[~padded.mask].any()
    close(found[:, real], logits)


@pytest.mark.parametrize(("left", "right"), [(0, 9), (9, 0)])
def test_padding_is_in_no_loss_and_no_metric(model, strategy, left, right):
    size = len(ENGLISH) + 1
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 2, left + size + right, CPU)
    rows = stack(row(ENGLISH), row(ENGLISH[::-1]))
    padded = stack(*(row(each, length=left + size + right, left=left) for each in (ENGLISH, ENGLISH[::-1])))
    expected, metrics = objective(model, strategy, rows, uniforms[..., left : left + size], 0.1)
    found, padded_metrics = objective(model, strategy, padded, uniforms, 0.1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for name, value in metrics.items():
        torch.testing.assert_close(padded_metrics[name], value, rtol=1e-3, atol=1e-3, msg=name)


# 5. Packing


def test_packed_documents_give_what_they_give_alone(model, strategy):
    documents = (ENGLISH, b"", b"x", b" ", ENGLISH[:7], AWKWARD[4])
    packed = row(*documents)
    uniforms = torch.rand(packed.byte_ids.shape)
    decision, logits, encoded = run(model, strategy, packed, uniforms)
    start = 0
    for document in documents:
        part = slice(start, start + len(document) + 1)
        other, found, other_encoded = run(model, strategy, row(document), uniforms[:, part])
        assert torch.equal(other.boundary, decision.boundary[:, part])
        assert torch.equal(other.free, decision.free[:, part])
        close(other.logits, decision.logits[:, part])
        close(found, logits[:, part])
        close(other_encoded.early_logits, encoded.early_logits[:, part])
        start = part.stop


def test_every_document_start_is_a_boundary_and_no_choice(model, strategy):
    packed = row(ENGLISH, b"", b"ab")
    # A number of 1 is below no probability, 0 below every one.
    for number in (0.0, 1.0):
        decision, _, _ = run(model, strategy, packed, torch.full(packed.byte_ids.shape, number))
        marks = packed.byte_ids == DOCUMENT_MARK
        assert decision.boundary[marks].all()
        assert torch.equal(decision.free, ~marks)


# 7. Types


def test_autocast_takes_the_same_boundaries_but_within_rounding(model, strategy):
    batch, uniforms = random_rows(16, 64), torch.rand(16, 64)
    decision, _, _ = run(model, strategy, batch, uniforms)
    with torch.autocast("cpu", torch.bfloat16):
        other, logits, encoded = run(model, strategy, batch, uniforms)
    assert other.logits.dtype == logits.dtype == encoded.early_logits.dtype == torch.float32
    # With a history, one flipped decision may flip the next: only a row's first is rounding's.
    flipped = (other.boundary != decision.boundary).long()
    first = (flipped.cumsum(1) == 1) & (flipped == 1)
    assert ((torch.sigmoid(decision.logits) - uniforms).abs()[first] < 0.05).all()
    assert flipped.float().mean() < 0.05
    if not strategy.learned:
        assert torch.equal(other.boundary, decision.boundary)


@pytest.mark.parametrize("autocast", [False, True])
def test_decisions_are_boolean_and_positions_integer(model, strategy, autocast, monkeypatch):
    seen = []
    from byteseam.model import unet

    def record(positions, size, base):
        seen.append(positions)
        return table(positions, size, base)

    table = unet.rotary_table
    monkeypatch.setattr(unet, "rotary_table", record)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        decision, _, _ = run(model, strategy, row(ENGLISH), torch.rand(1, 43))
    assert decision.boundary.dtype == decision.free.dtype == torch.bool
    assert {positions.dtype for positions in seen} == {torch.int64}


# 8. The ends of lengths and rates


@pytest.mark.parametrize("length", [0, 1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 64, 65])
def test_every_length_can_be_learned_from(model, strategy, length):
    batch = crop(stack(row(ENGLISH * 2, length=90), row(b"x", ENGLISH * 2, length=90)), slice(length))
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 2, length, CPU)
    loss, metrics = objective(model, strategy, batch, uniforms, 0.1)
    loss.backward()
    assert loss.isfinite()
    assert all(value.isfinite().all() for value in metrics.values())
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("bytes_per_token", [1.0, 1.0001, 1e6])
def test_rates_near_zero_and_one_stay_finite(strategy, bytes_per_token):
    strategy = dataclasses.replace(strategy, bytes_per_token=bytes_per_token)
    strategy = strategy.settled(CONFIG, 40)
    model, batch = LanguageModel(CONFIG, strategy), random_rows(2, 40)
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 2, 40, CPU)
    loss, _ = objective(model, strategy, batch, uniforms, 0.1)
    loss.backward()
    assert loss.isfinite()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
    decision, _, _ = run(model, strategy, batch, uniforms[0])
    if strategy.name in RATE_WITHOUT_TRAINING:
        share = decision.boundary[decision.free].float().mean()
        assert share < 0.05 if bytes_per_token > 1e5 else share > 0.95


@pytest.mark.parametrize("everywhere", [False, True])
def test_no_boundary_but_the_first_and_boundaries_everywhere(model, strategy, everywhere):
    batch = random_rows(2, 40)
    encoded = model.encode(batch)
    decision = model.decide(strategy, encoded, batch, torch.rand(2, 40))
    boundary = (torch.arange(40) == 0).expand(2, 40) | everywhere
    rollout = model.rollout(encoded, dataclasses.replace(decision, boundary=boundary), batch)
    rollout.nll.sum().backward()
    assert rollout.nll.isfinite().all()
    assert all(each.grad.isfinite().all() for each in model.unet.parameters() if each.grad is not None)


# 9. All bytes


@pytest.mark.parametrize("number", range(len(AWKWARD)))
def test_any_bytes_will_do(model, strategy, number):
    batch = row(AWKWARD[number])
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 1, batch.byte_ids.shape[1], CPU)
    loss, _ = objective(model, strategy, batch, uniforms, 0.1)
    loss.backward()
    assert loss.isfinite()
    decision, logits, _ = run(model, strategy, batch, uniforms[0])
    assert logits.isfinite().all()
    assert decision.logits.isfinite().all()
    assert decision.free[0].sum() == len(AWKWARD[number]), "every byte is a place for a boundary, and only bytes are"


# 10. No surprises


def test_nothing_of_the_callers_is_changed(model, strategy):
    batch = random_rows(4, 20)
    uniforms = draw_uniforms(0, 0, strategy.rollouts, 4, 20, CPU)
    given = [batch.byte_ids, batch.targets, batch.mask, batch.document_ids, uniforms]
    kept = [each.clone() for each in given]
    parameters = [each.detach().clone() for each in model.parameters()]
    objective(model, strategy, batch, uniforms, 0.1)
    encoded = model.encode(batch)
    hidden = encoded.hidden.detach().clone()
    decision = model.decide(strategy, encoded, batch, uniforms[0])
    boundary = decision.boundary.clone()
    model.rollout(encoded, decision, batch)
    assert all(torch.equal(now, then) for now, then in zip(given, kept, strict=True))
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), parameters, strict=True))
    assert torch.equal(encoded.hidden, hidden)
    assert torch.equal(decision.boundary, boundary)


def test_the_same_seed_gives_the_same_to_the_bit(model, strategy):
    batch = random_rows(4, 20)
    losses, gradients = [], []
    for noise in (0, 1):
        torch.manual_seed(noise)  # whatever the global random numbers are
        model.zero_grad()
        loss, _ = objective(model, strategy, batch, draw_uniforms(5, 6, strategy.rollouts, 4, 20, CPU), 0.1)
        loss.backward()
        losses.append(loss.detach())
        gradients.append([each.grad for each in model.parameters() if each.grad is not None])
        torch.rand(7)
    assert torch.equal(*losses)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_random_strategies_draw_anew_and_fixed_ones_do_not(model, strategy):
    batch = random_rows(4, 60)
    drawn = (decided_by(strategy, draw_uniforms(0, step, 1, 4, 60, CPU)[0]) for step in (0, 1))
    decisions = [run(model, strategy, batch, uniforms)[0] for uniforms in drawn]
    same = torch.equal(decisions[0].boundary, decisions[1].boundary)
    assert same == (not strategy.sampled)


# 12. Plumbing; `tests/strategies/test_score_function.py` has the fields of the learned strategy


def test_bytes_per_token_reaches_the_boundaries(strategy):
    if strategy.name not in RATE_WITHOUT_TRAINING:
        return  # see test_the_rate_loss_alone_brings_the_rate
    shares = []
    for bytes_per_token in (2.0, 8.0):
        asked = dataclasses.replace(strategy, bytes_per_token=bytes_per_token)
        model = LanguageModel(CONFIG, asked)
        decision, _, _ = run(model, asked, random_rows(8, 301), torch.rand(8, 301))
        shares.append(decision.boundary[decision.free].float().mean().item())
    assert shares == pytest.approx([1 / 2, 1 / 8], abs=0.02)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("score_function", 0.03),
        ("entropy", 0.03),
        ("entropy, relative", 0.03),
        ("gumbel", 0.03),
        ("gumbel, even", 0.03),
        # The angles between H-Net's states saturate on random bytes: from 0.41 the rate comes half of the way.
        ("hnet", 0.15),
        ("hnet, even", 0.15),
    ],
)
def test_the_rate_loss_alone_brings_the_rate(name, tolerance):
    strategy = dataclasses.replace(VARIANTS[name], bytes_per_token=6.0)
    model = lively(strategy)
    policy = [*model.policy.parameters()]
    optimiser = torch.optim.Adam(policy, lr=0.02)
    batch, rates = random_rows(16, 61), []
    for step in range(300):
        lived, _, _ = experience(model, strategy, batch, draw_uniforms(0, step, strategy.rollouts, 16, 61, CPU))
        loss = strategy.loss(model.policy, lived, strategy.statistics(lived)).rate
        for each, gradient in zip(policy, torch.autograd.grad(loss, policy, allow_unused=True), strict=True):
            each.grad = gradient
        optimiser.step()
        decision = lived.rollout.decision
        rates.append(decision.boundary[decision.free].float().mean().item())
    assert sum(rates[-30:]) / 30 == pytest.approx(1 / 6, abs=tolerance)


FIELDS = {
    "score_function": None,  # tests/strategies/test_score_function.py
    "uniform": ["pool"],
    "stride": ["pool"],
    "every_byte": [],
    "whitespace": ["pool", "rule"],
    "regex": ["pool"],
    "entropy": ["pool", "rule", "rate_weight"],
    "bpe": ["pool", "vocabulary", "within"],
    "gumbel": ["temperature", "rate_control_by", "rate_weight"],
    "hnet": ["rate_control_by", "rate_weight"],
    "flat": ["layers", "width", "mlp_width", "window"],
}
"""The fields of every strategy beside `bytes_per_token`; each one's own tests show that it changes what it names."""


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_field_of_a_strategy_is_known_here(name):
    if FIELDS[name] is not None:
        assert [field.name for field in dataclasses.fields(STRATEGIES[name])] == ["bytes_per_token", *FIELDS[name]]


def change(field: str, value: object) -> dict[str, Tensor]:
    """What comes out of the model when one field of its configuration differs."""
    config = dataclasses.replace(CONFIG, **{field: value})
    strategy = ScoreFunction()
    torch.manual_seed(0)
    model = LanguageModel(config, strategy)
    batch = row(ENGLISH)
    _, logits, encoded = run(model, strategy, batch, torch.zeros(batch.byte_ids.shape))
    return {
        "early": encoded.early_logits,
        "logits": logits,
        "names": [name for name, _ in model.named_parameters()],
    } | {name: torch.tensor(each.shape) for name, each in model.named_parameters()}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 24),
        ("heads", 4),
        ("encoder_layers", 2),
        ("token_layers", 3),
        ("decoder_layers", 2),
        ("byte_mlp_width", 24),
        ("token_mlp_width", 24),
        ("window", 9),
        ("rotary_base", 500.0),
    ],
)
def test_every_field_of_the_model_changes_what_it_names(field, value):
    base, other = change(field, getattr(CONFIG, field)), change(field, value)
    layers = {"encoder_layers": "encoder", "token_layers": "token_model", "decoder_layers": "decoder"}
    if field == "width":
        assert other["unet.embedding.weight"].tolist() == [257, 24]
    elif field == "heads":
        assert other["unet.encoder.0.query_key_norm.weight"].tolist() == [4]
    elif field in layers:
        count = len({name.split(".")[2] for name in other["names"] if name.startswith(f"unet.{layers[field]}.")})
        assert count == value
    elif field == "byte_mlp_width":
        changed = {name for name in base["names"] if not torch.equal(base[name], other[name])}
        assert changed == {
            f"unet.{part}.0.mlp_{way}.weight" for part in ("encoder", "decoder") for way in ("in", "out")
        }
    elif field == "token_mlp_width":
        changed = {name for name in base["names"] if not torch.equal(base[name], other[name])}
        assert changed == {f"unet.token_model.{i}.mlp_{way}.weight" for i in (0, 1) for way in ("in", "out")}
    elif field == "window":
        same = (base["early"] == other["early"]).all(-1)[0]
        torch.testing.assert_close(base["early"][:, :WINDOW], other["early"][:, :WINDOW])
        assert not same[WINDOW:].any()
    else:
        assert not torch.allclose(base["early"][:, 2:], other["early"][:, 2:], atol=1e-5)


def test_every_field_of_the_model_is_tested_above():
    marks = test_every_field_of_the_model_changes_what_it_names.pytestmark
    (cases,) = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    assert [field for field, _ in cases] == [field.name for field in dataclasses.fields(ModelConfig)]

"""What a boundary is worth: against flipping one at a time, by hand."""

import numpy as np
import pytest
import torch

from byteseam.evaluation.segment import text_batch
from byteseam.inspect import Record
from byteseam.laboratory import advantages as module
from byteseam.laboratory.advantages import advantages, by_kind, with_advantages
from byteseam.trained import Trained
from byteseam.types import Decision

TEXT = b"to be or not to be"


@pytest.fixture
def trained(tiny_run):
    return Trained.open(tiny_run)


@torch.no_grad()
def one_by_one(trained: Trained, data: bytes, uniforms: torch.Tensor, gamma: float) -> list[float]:
    """The definition: score the text with and without the boundary, nothing else being changed."""
    model, batch = trained.model, text_batch(data, torch.device("cpu"))
    encoded = model.encode(batch)
    drawn = model.decide(trained.strategy, encoded, batch, uniforms)
    worths = []
    for place in range(1, len(data) + 1):
        costs = []
        for wanted in (True, False):
            boundary = drawn.boundary.clone()
            boundary[0, place] = wanted
            costs.append(model.rollout(encoded, Decision(boundary, drawn.free, drawn.logits), batch).nll[0].double())
        later = torch.arange(place, len(data) + 1)
        worths.append((gamma ** (later - place).double() * (costs[1] - costs[0])[later]).sum().item())
    return worths


def test_the_worth_of_a_boundary_is_what_flipping_it_changes(trained):
    found = advantages(trained, TEXT, 2, seed=5)
    generator = torch.Generator().manual_seed(5)
    for each in found:
        uniforms = torch.rand(1, len(TEXT) + 1, generator=generator)
        np.testing.assert_allclose(each, one_by_one(trained, TEXT, uniforms, 0.9), atol=2e-5)
    assert np.abs(found).max() > 1e-3
    # The last byte predicts nothing that counts.
    assert (found[:, -1] == 0).all()


def test_long_texts_are_read_through_windows_and_every_byte_is_measured_once(trained):
    data = TEXT * 8
    assert len(data) > 4 * trained.config.training.length_bytes
    told = []
    found = advantages(trained, data, 1, seed=0, bar=lambda done, total: told.append((done, total)))
    assert found.shape == (1, len(data))
    assert (found != 0).mean() > 0.9
    assert told[-1] == (len(data), len(data))
    # As long as a window has not moved, its bytes are those of a text that ends with it.
    window = trained.config.training.length_bytes - 1
    first = window - window // 4
    alone = advantages(trained, data[:window], 1, seed=0)
    np.testing.assert_allclose(found[:, :first], alone[:, :first], atol=1e-6)


def test_a_record_gets_means_and_standard_errors(trained):
    bare = Record("x", TEXT, np.zeros(len(TEXT), bool))
    record = with_advantages(trained, bare, 5, seed=1)
    draws = advantages(trained, TEXT, 5, seed=1)
    np.testing.assert_allclose(record.advantage_nats, draws.mean(0))
    np.testing.assert_allclose(record.advantage_error_nats, draws.std(0, ddof=1) / 5**0.5)
    assert Record.from_json(record.to_json()) == record


def test_strategies_without_a_policy_are_flipped_too(tiny_config, tmp_path):
    from byteseam.training.loop import Listener
    from byteseam.training.start import start_run

    for name in ("whitespace", "hnet"):
        trainer = start_run(
            tiny_config(f"strategy.name={name}", "training.total_bytes=256"), tmp_path / name, Listener()
        )
        trainer.train()
        found = advantages(Trained.open(tmp_path / name), TEXT * 3, 2, seed=0)
        assert np.isfinite(found).all()
        assert (found != 0).any()


def test_kinds_of_bytes_worked_by_hand():
    data = "ab é".encode()
    record = Record(
        "x",
        data,
        [False] * 5,
        probability=[0.1, 0.2, 0.3, 0.4, 0.5],
        advantage_nats=[1.0, 2.0, 3.0, 4.0, 5.0],
        advantage_error_nats=[0.3, 0.0, 0.0, 0.0, 0.4],
    )
    kinds = {kind.name: kind for kind in by_kind([record, record])}
    assert [(name, kind.bytes) for name, kind in kinds.items()] == [
        ("white space", 2),
        ("the last byte of a word", 2),
        ("a byte inside a character", 2),
        ("any other byte", 4),
    ]
    assert kinds["white space"].advantage_nats == 3.0
    assert kinds["a byte inside a character"].probability == 0.4
    other = kinds["any other byte"]
    assert other.advantage_nats == 3.0
    assert other.error_nats == pytest.approx((2 * 0.3**2 + 2 * 0.4**2) ** 0.5 / 4)
    bare = Record("x", b" ", [True], advantage_nats=[1.0], advantage_error_nats=[0.0])
    assert by_kind([bare])[0].probability is None
    assert module.nothing(1, 2) is None

"""Choosing the next id."""

import math

import pytest
import torch

from byteseam.generation.sampling import next_id_probabilities

HALVES = torch.log(torch.tensor([0.125, 0.5, 0.25, 0.125]))


def chosen(temperature=1.0, top_k=None, top_p=None, logits=HALVES):
    return next_id_probabilities(logits, temperature, top_k, top_p).tolist()


def test_at_temperature_one_probabilities_stay():
    assert chosen() == pytest.approx([0.125, 0.5, 0.25, 0.125])


def test_temperature_sharpens_and_flattens():
    assert chosen(0.5) == pytest.approx([1 / 22, 16 / 22, 4 / 22, 1 / 22])  # squares, to sum one
    assert chosen(math.inf) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("temperature", [0, 1e-3, 1e-40, 5e-324])
def test_the_lower_the_temperature_the_more_the_likeliest(temperature):
    assert chosen(temperature) == [0.0, 1.0, 0.0, 0.0]
    huge = torch.tensor([1e30, -1e30, 3e30])
    assert chosen(temperature, logits=huge) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("top_k", "probabilities"),
    [(1, [0, 1, 0, 0]), (2, [0, 2 / 3, 1 / 3, 0]), (3, [1 / 7, 4 / 7, 2 / 7, 0]), (4, None), (99, None), (None, None)],
)
def test_top_k_keeps_the_likeliest_and_of_equals_the_first(top_k, probabilities):
    assert chosen(top_k=top_k) == pytest.approx(probabilities or [0.125, 0.5, 0.25, 0.125])


@pytest.mark.parametrize(
    ("top_p", "probabilities"),
    [
        (1e-9, [0, 1, 0, 0]),
        (0.5, [0, 1, 0, 0]),
        (0.51, [0, 2 / 3, 1 / 3, 0]),
        (0.75, [0, 2 / 3, 1 / 3, 0]),
        (0.76, [1 / 7, 4 / 7, 2 / 7, 0]),
        (1.0, [0.125, 0.5, 0.25, 0.125]),
    ],
)
def test_top_p_keeps_the_smallest_set_of_that_mass(top_p, probabilities):
    assert chosen(top_p=top_p) == pytest.approx(probabilities)


def test_both_limits_hold_at_once_and_after_the_temperature():
    assert chosen(top_k=3, top_p=0.5) == [0, 1, 0, 0]
    assert chosen(top_k=1, top_p=1.0) == [0, 1, 0, 0]
    assert chosen(0.5, top_p=16 / 22) == [0, 1, 0, 0]


def test_logits_in_bf16_are_taken_in_fp32():
    probabilities = next_id_probabilities(HALVES.bfloat16(), 1.0, None, None)
    assert probabilities.dtype == torch.float32
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-6)

"""What is measured beside bits per byte; whole runs are measured in test_runner."""

from types import SimpleNamespace

import numpy as np
import pytest

from byteseam.comparison import measure
from byteseam.comparison.bpe import reference_boundaries
from byteseam.comparison.layout import Layout
from byteseam.comparison.plan import Budget, Plan, base_text, parse_entries
from byteseam.data.corpus import Corpus
from byteseam.data.text import GoldText


def test_known_words_by_hand(monkeypatch):
    words = [GoldText("0", "天地人".encode(), [3, 9]), GoldText("1", "不仁\n".encode(), [3, 6, 7])]
    monkeypatch.setattr(measure, "fetch", lambda archive: archive)
    monkeypatch.setattr(measure, "gold_words", lambda archive: iter(words))
    cuts = {words[0].text: [2, 5], words[1].text[:6]: [2, 5]}

    def cut(trained, text, decider):
        boundary = np.zeros(len(text), np.bool_)
        boundary[cuts[text]] = True
        return SimpleNamespace(boundary=boundary)

    monkeypatch.setattr(measure, "cut", cut)
    corpus = Corpus.of([text.text for text in words])
    found = measure.gold_agreement(None, corpus, None, most=15)
    # Cuts after bytes 2, 5 | 2, 5; words end after bytes 2, 8 | 2, 5, and the line feed was cut off.
    assert found.pop("later_f1") == 0
    assert found == {"precision": 3 / 4, "recall": 3 / 4, "f1": pytest.approx(3 / 4)}
    cuts[words[0].text] = [3]
    assert measure.gold_agreement(None, corpus, None, most=9)["later_f1"] == pytest.approx(2 / 2)


def test_a_bpe_to_compare_with_is_trained_once(tiny_config, tmp_path, monkeypatch):
    config = tiny_config("strategy.bytes_per_token=2")
    plan = Plan(base_text(config), parse_entries("uniform"), (0,), Budget("bytes", 1e3), "uniform")
    found = reference_boundaries(Layout(tmp_path), plan)
    assert found.mean() == pytest.approx(1 / 2, abs=0.05)
    monkeypatch.setattr("byteseam.strategies.Bpe.fit", lambda *_: pytest.fail("trained again"))
    assert np.array_equal(reference_boundaries(Layout(tmp_path), plan), found)


def test_no_bpe_of_a_text_that_is_too_small_for_the_rate(tiny_config, tmp_path):
    config = tiny_config("strategy.bytes_per_token=200")
    plan = Plan(base_text(config), parse_entries("uniform"), (0,), Budget("bytes", 1e3), "uniform")
    assert reference_boundaries(Layout(tmp_path), plan) is None
    assert reference_boundaries(Layout(tmp_path), plan) is None, "that is kept too"

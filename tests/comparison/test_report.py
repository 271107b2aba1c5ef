"""The table's numbers, worked by hand."""

import json

import numpy as np
import pytest

from byteseam.comparison.measure import RunResult
from byteseam.comparison.plan import Budget, Plan, base_text, parse_entries
from byteseam.comparison.report import build_report, thinned, to_json
from byteseam.config import RunConfig


def report(results, entries="ours,rival", failures=None, bpe=None):
    parsed = parse_entries(entries.replace("ours", "ours:score_function").replace("rival", "rival:gumbel"))
    plan = Plan(base_text(RunConfig()), parsed, (0, 1), Budget("bytes", 1e6), "ours")
    made = build_report(plan, results, failures or {}, bpe)
    json.loads(to_json(made))
    return made, {entry["label"]: entry for entry in made["entries"]}


def test_means_spread_and_paired_difference(result):
    _, rows = report(
        [
            result("ours", 0, bits=[30.0, 60.0]),  # 3 bits a byte
            result("ours", 1, bits=[30.0, 66.0]),  # 3.2
            result("rival", 0, bits=[40.0, 80.0]),  # 4
            result("rival", 1, bits=[42.0, 84.0]),  # 4.2
        ]
    )
    ours, rival = rows["ours"], rows["rival"]
    assert ours["bits_per_byte"] == pytest.approx(3.1)
    assert ours["spread"] == pytest.approx(0.2)
    assert ours["standard_deviation"] == pytest.approx(0.2 / 2**0.5)
    assert ours["difference"]["mean"] == pytest.approx(0)
    assert rival["difference"]["by_seed"] == pytest.approx([1.0, 1.0])
    # Documents, over the seeds: 41 - 30 bits of 10 bytes, 82 - 63 of 20: the extremes of two drawn with replacement.
    assert rival["difference"]["low"] == pytest.approx(19 / 20)
    assert rival["difference"]["high"] == pytest.approx(11 / 10)
    assert rival["bytes_per_second"] == pytest.approx(2000)
    assert rival["training_flops"] == pytest.approx(1e10)


def test_a_difference_is_over_the_seeds_that_both_have(result):
    _, rows = report(
        [
            result("ours", 1, bits=[30.0, 60.0]),
            result("rival", 0, bits=[0.0, 0.0]),
            result("rival", 1, bits=[33.0, 60.0]),
        ]
    )
    assert rows["rival"]["difference"]["by_seed"] == pytest.approx([0.1])
    assert rows["rival"]["seeds"] == [0, 1]
    _, rows = report([result("rival", 0, bits=[0.0, 0.0])])
    assert rows["rival"]["difference"] is None


@pytest.mark.parametrize(("rate", "comparable"), [(0.2098, True), (0.1902, True), (0.2102, False), (0.1898, False)])
def test_a_rate_more_than_five_percent_off_is_flagged(result, rate, comparable):
    _, rows = report([result("ours", bits=[1.0, 2.0], rate=rate)])
    assert rows["ours"]["comparable"] is comparable
    assert (rows["ours"]["rate_note"] is None) is comparable


def test_no_difference_compares_with_a_reference_off_the_rate(result):
    _, rows = report([result("ours", bits=[1.0, 2.0], rate=0.3), result("rival", bits=[1.0, 2.0])])
    assert rows["rival"]["comparable"]
    assert not rows["rival"]["difference_comparable"]
    _, rows = report([result("ours", bits=[1.0, 2.0]), result("rival", bits=[1.0, 2.0])])
    assert rows["rival"]["difference_comparable"]


def test_every_seeds_rate_counts_not_their_mean(result):
    _, rows = report([result("ours", 0, bits=[1.0, 2.0], rate=0.12), result("ours", 1, bits=[1.0, 2.0], rate=0.28)])
    assert rows["ours"]["rate"] == pytest.approx(0.2)
    assert not rows["ours"]["comparable"]


def test_why_a_row_does_not_compare(result):
    _, rows = report(
        [
            result("ours", bits=[1.0, 2.0], rate=0.3, steered=False),
            result("rival", bits=[1.0, 2.0], rate=1.0, whole_bytes=True),
        ]
    )
    assert rows["ours"]["rate_note"] == "rate 0.300 instead of 0.200, which is the rule's own"
    assert rows["rival"]["rate_note"] == "one token a byte"
    assert not rows["rival"]["comparable"]


def test_agreement_with_each_other_and_with_bpe(result):
    results = [
        result("ours", bits=[1.0, 2.0], boundary=(2, 5, 8)),
        result("rival", bits=[1.0, 2.0], boundary=(5, 8, 9, 10, 11)),
    ]
    bpe = np.zeros(25, np.bool_)
    bpe[[2, 8]] = True
    made, rows = report(results, bpe=bpe)
    # 2 of 3 and 5 in common
    assert made["pairwise_f1"] == [[1.0, pytest.approx(0.5)], [pytest.approx(0.5), 1.0]]
    assert rows["ours"]["bpe_f1"] == pytest.approx(4 / 5)
    assert rows["ours"]["agreement"] == {"whitespace_boundary_share": 0.5, "boundary_inside_character_share": None}


def test_thresholds_that_match_the_rate(result):
    matched = {"threshold": 0.4, "rate": 0.2, "bits_per_byte": 2.0, "document_bits": [21.0, 42.0]}
    _, rows = report([result("ours", bits=[30.0, 60.0]), result("rival", bits=[9.0, 9.0], rate=0.5, matched=matched)])
    assert rows["ours"]["matched"] is None
    assert rows["rival"]["matched"]["difference"]["mean"] == pytest.approx((63 - 90) / 30)
    assert rows["rival"]["matched"]["comparable"]
    missed = matched | {"rate": 0.05}
    _, rows = report(
        [result("ours", bits=[30.0, 60.0], matched=matched), result("rival", bits=[9.0, 9.0], matched=missed)]
    )
    assert not rows["rival"]["matched"]["comparable"]
    assert rows["ours"]["matched"]["difference"]["mean"] == 0, "matched against matched"


def test_what_failed_and_what_has_not_begun(result):
    made, rows = report([], failures={("rival", 1): "out of luck"})
    assert rows["rival"]["seeds"] == []
    assert made["failures"] == [{"label": "rival", "seed": 1, "reason": "out of luck"}]
    assert made["pairwise_f1"] == [[None, None], [None, None]]


def test_long_curves_are_averaged_in_groups_and_evaluations_kept():
    points = [{"step": step, "bytes_seen": step, "bits_per_byte": float(step), "held_out": 0.0} for step in range(1000)]
    points.insert(500, {"step": 7, "bytes_seen": 7, "bits_per_byte": 1.0, "held_out": 1.0})
    found = thinned(points, most=100)
    assert found[0]["held_out"] == 1
    assert len(found) == 101
    assert found[1]["bits_per_byte"] == pytest.approx(4.5)


def test_a_result_comes_back_from_its_file(result):
    one = result("ours", bits=[1.0, 2.0], probes={"case": 2.0}, gold={"f1": 0.5})
    assert RunResult.from_json(one.to_json()) == one

"""Rules are budgeted at the rate that the text makes of them."""

import dataclasses

import pytest

from byteseam.comparison.plan import Budget, Plan, base_text, parse_entries
from byteseam.comparison.rates import rate_of_rule, rates_of_rules
from byteseam.model.flops import training_flops
from byteseam.strategies import Whitespace


def test_the_rate_of_a_rule_by_hand():
    # Three runs of space-like bytes in the first, the comma and the space after it being one, and one in the second.
    assert rate_of_rule(Whitespace(), [b"to be, or not", b"a cat"]) == pytest.approx(4 / 18)
    assert rate_of_rule(Whitespace(), []) == 0


def test_only_rules_with_a_rate_of_their_own_have_one_and_it_reaches_the_budget(tiny_config):
    config = tiny_config()
    entries = parse_entries("score_function,uniform,whitespace,regex,every_byte,flat,stride")
    plan = Plan(base_text(config), entries, (0,), Budget("flops", 1e9), "score_function")
    rates = rates_of_rules(plan)
    assert set(rates) == {"whitespace", "regex"}
    priced = dataclasses.replace(plan, rates=rates)
    for label, rate in rates.items():
        entry = plan.entry(label)
        strategy = plan.run_config(entry, 0).strategy
        cost = sum(training_flops(config.model, strategy, config.training.length_bytes, rate=rate).values())
        assert rate != pytest.approx(strategy.rate, rel=0.02)
        assert priced.total_bytes(entry) == pytest.approx(1e9 / cost)
        assert priced.total_bytes(entry) != pytest.approx(plan.total_bytes(entry), rel=0.005)

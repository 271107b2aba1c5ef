"""What is asked for, word by word, and how a comparison grows or is refused."""

import dataclasses
import json

import pytest

from byteseam.comparison.plan import (
    Budget,
    Entry,
    Plan,
    base_text,
    check,
    open_plan,
    parse_budget,
    parse_entries,
    parse_seeds,
    save_plan,
)
from byteseam.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from byteseam.errors import UserError
from byteseam.model.flops import training_flops
from byteseam.strategies import Gumbel, ScoreFunction

CONFIG = RunConfig(
    data=DataConfig(source="nowhere"),
    model=ModelConfig(width=16, heads=2, token_layers=1, window=4),
    strategy=ScoreFunction(bytes_per_token=4.0, gamma=0.5),
    training=TrainingConfig(length_bytes=32, batch_rows=4, total_bytes=1000.0, warmup_bytes=100.0),
)


def plan(words: str = "score_function,gumbel", **changes) -> Plan:
    parsed = parse_entries(words)
    base = Plan(base_text(CONFIG), parsed, (0, 1), Budget("bytes", 4000.0), parsed[0].label)
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("uniform", [("uniform", ("strategy.name=uniform",))]),
        ("uniform, hnet ", [("uniform", ("strategy.name=uniform",)), ("hnet", ("strategy.name=hnet",))]),
        (
            "gumbel[temperature=1.0;training.learning_rate=1e-3]",
            [
                (
                    "gumbel[temperature=1.0;training.learning_rate=1e-3]",
                    ("strategy.name=gumbel", "strategy.temperature=1.0", "training.learning_rate=1e-3"),
                )
            ],
        ),
        ("old:bpe[vocabulary=300]", [("old", ("strategy.name=bpe", "strategy.vocabulary=300"))]),
        (
            "score_function[gamma=[[0,0.5],[1,0.9]]],flat",
            [
                (
                    "score_function[gamma=[[0,0.5],[1,0.9]]]",
                    ("strategy.name=score_function", "strategy.gamma=[[0,0.5],[1,0.9]]"),
                ),
                ("flat", ("strategy.name=flat",)),
            ],
        ),
    ],
)
def test_entries(text, entries):
    assert parse_entries(text) == tuple(Entry(label, overrides) for label, overrides in entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no strategy"),
        ("uniform,uniform", "two entries of the label 'uniform'"),
        ("a b:uniform,a-b:hnet", "two entries of the label 'a-b'"),
        ("gumbel[temperature]", "'temperature' in 'gumbel\\[temperature\\]' sets nothing"),
        ("gum bel", "cannot read 'gum bel'"),
        ("hnet[data.source=x]", "data.source in 'hnet\\[data.source=x\\]' is the same for all"),
        ("hnet[training.total_bytes=9]", "training.total_bytes in .* is the same for all"),
        ("hnet[seed=9]", "seed in .* is the same for all"),
        ("?:gumbel", "the label '\\?' must be text with letters"),
        ("x" * 101 + ":gumbel", "of at most 100 characters"),
        ("a\udcff:gumbel", "must be text"),
    ],
)
def test_entries_that_are_none(text, message):
    with pytest.raises(UserError, match=message):
        parse_entries(text)


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("bytes=20M", "bytes", 20e6),
        ("flops=3e15", "flops", 3e15),
        ("minutes=0.5", "minutes", 0.5),
        ("bytes=2.5k", "bytes", 2500),
    ],
)
def test_budgets(text, kind, amount):
    assert parse_budget(text) == Budget(kind, pytest.approx(amount))


@pytest.mark.parametrize(
    "text", ["bytes", "20M", "bytes=-3", "bytes=0", "hours=3", "bytes=1e999", "bytes=1.2.3", "bytes=3X"]
)
def test_budgets_that_are_none(text):
    with pytest.raises(UserError, match=r"--budget .* cannot be read; write bytes=20M, flops=3e15 or minutes=5"):
        parse_budget(text)


def test_seeds():
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("4,7") == (4, 7)
    for text in ("0", "-1", "x", "", "1,1", "1.5"):
        with pytest.raises(UserError, match="--seeds"):
            parse_seeds(text)


def test_a_run_has_its_own_strategy_and_shares_all_else():
    ours, rival = plan().run_config(plan().entries[0], 7), plan().run_config(plan().entries[1], 7)
    assert ours.strategy == CONFIG.strategy
    assert rival.strategy == Gumbel(bytes_per_token=4.0), "nothing of the other strategy's settings but the rate"
    assert dataclasses.replace(ours, strategy=rival.strategy) == rival
    assert (ours.seed, ours.data, ours.model) == (7, CONFIG.data, CONFIG.model)


def test_whatever_is_counted_in_bytes_keeps_its_share():
    training = plan().run_config(plan().entries[0], 0).training
    assert (training.total_bytes, training.warmup_bytes) == (4000.0, 400.0)
    assert training.evaluate_every_bytes == 4 * CONFIG.training.evaluate_every_bytes
    assert training.learning_rate == CONFIG.training.learning_rate


def test_a_budget_of_flops_buys_fewer_bytes_of_what_costs_more():
    one = plan("score_function,uniform", budget=Budget("flops", 1e9))
    bought = [one.total_bytes(entry) for entry in one.entries]
    cost = sum(training_flops(CONFIG.model, CONFIG.strategy, 32).values())
    assert bought[0] == pytest.approx(1e9 / cost)
    assert bought[0] < bought[1]


def test_a_budget_of_minutes_buys_what_was_measured():
    one = plan(budget=Budget("minutes", 2.0), bytes_per_second={"score_function": 50.0, "gumbel": 40.0})
    assert [one.total_bytes(entry) for entry in one.entries] == [6000.0, 4800.0]
    assert check(dataclasses.replace(one, bytes_per_second={})).total_bytes(one.entries[0]) == 1000, "not timed yet"


def test_a_budget_below_one_step_is_refused():
    with pytest.raises(UserError, match=r"bytes=100 gives score_function 100 bytes, less than one step of 128"):
        check(plan(budget=Budget("bytes", 100.0)))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("gumble", 'strategy.name must be one of .* got "gumble"; did you mean "gumbel"'),
        ("uniform[temperature=1]", "unknown key strategy.temperature = 1"),
        ("uniform[bytes_per_token=0.5]", "bytes_per_token"),
        ("flat[layers=90;width=16]", "strategy.layers = 90 of width 16 cost more"),
    ],
)
def test_what_cannot_run_is_said_before_anything_runs(entries, message):
    with pytest.raises(UserError, match=message):
        check(plan(entries))


def test_a_reference_must_take_part():
    with pytest.raises(UserError, match="--reference 'bpe' is none of the entries: score_function, gumbel"):
        check(plan(reference="bpe"))


def test_a_plan_comes_back_from_its_file(tmp_path):
    one = plan(probes=("case",), match_rate=True, bytes_per_second={"gumbel": 3.0})
    save_plan(tmp_path, one)
    assert Plan.from_json((tmp_path / "comparison.json").read_text(), "x") == one


def test_a_comparison_grows_and_keeps_what_it_had(tmp_path):
    save_plan(tmp_path, plan("score_function,uniform", bytes_per_second={"uniform": 3.0}))
    wider = open_plan(tmp_path, plan("hnet,score_function", seeds=(1, 5), probes=("case",), reference="hnet"))
    assert [entry.label for entry in wider.entries] == ["score_function", "uniform", "hnet"]
    assert (wider.seeds, wider.probes, wider.bytes_per_second) == ((0, 1, 5), ("case",), {"uniform": 3.0})
    assert wider.reference == "hnet"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"budget": Budget("bytes", 5000.0)}, "its --budget differs"),
        ({"config": base_text(dataclasses.replace(CONFIG, model=ModelConfig()))}, "its configuration differs"),
        ({"max_bytes": 10.0}, "its --max-bytes differs"),
        ({"match_rate": True}, "its --match-rate differs"),
        ({"entries": parse_entries("gumbel:hnet,score_function")}, "holds another 'gumbel', with other settings"),
    ],
)
def test_another_comparison_is_refused(tmp_path, change, what):
    save_plan(tmp_path, plan())
    with pytest.raises(UserError, match=what):
        open_plan(tmp_path, plan(**change))


def test_a_place_that_is_none_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="exists and holds no comparison"):
        open_plan(tmp_path, plan())
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(UserError, match=r"comparison.json is damaged"):
        open_plan(tmp_path, plan())
    (tmp_path / "comparison.json").write_text(json.dumps({"format_version": 99}))
    with pytest.raises(UserError, match="has format 99; this byteseam reads up to 1"):
        open_plan(tmp_path, plan())

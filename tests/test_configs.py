"""Every configuration that is shipped can be used, and the paper's two are the paper's."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

from byteseam.commands.params import count_parameters
from byteseam.config_file import dump, from_table, load
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.toml"))
PAPER = {path.stem: path for path in CONFIGS if path.stem.startswith("paper-")}

every_config = pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])


def test_what_is_shipped():
    assert {"laptop", "small", "paper-147m", "paper-90m-code"} <= {path.stem for path in CONFIGS}


@every_config
def test_it_is_read_and_survives_writing(path):
    config = load(path)
    assert from_table(tomllib.loads(dump(config)), "x") == config


@every_config
def test_it_makes_a_model(path):
    config = load(path)
    with torch.device("meta"):
        model = LanguageModel(config.model, config.strategy)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    counts = count_parameters(config)
    assert min(counts.values()) >= 0
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())


@every_config
def test_its_budget_holds_together(path):
    training = load(path).training
    step_bytes = training.batch_rows * training.length_bytes
    assert training.total_bytes >= 100 * step_bytes
    assert step_bytes <= training.warmup_bytes <= 0.1 * training.total_bytes
    for every in (training.sample_every_bytes, training.evaluate_every_bytes, training.checkpoint_every_bytes):
        assert step_bytes <= every <= training.total_bytes


@every_config
def test_its_comments_name_files_that_exist(path):
    for name in re.findall(r"[\w-]+\.toml", path.read_text(encoding="utf-8")):
        assert (path.parent / name).is_file()


@pytest.mark.parametrize(("name", "millions"), [("paper-147m", 147.1), ("paper-90m-code", 90.4), ("small", 10)])
def test_its_name_says_its_size(name, millions):
    counts = count_parameters(load(Path(CONFIGS[0].parent, f"{name}.toml")))
    assert sum(counts.values()) / 1e6 == pytest.approx(millions, rel=0.05 if name == "small" else 0.01)


@pytest.mark.parametrize(
    ("name", "token_layers", "learning_rate", "warmup_bytes", "total_bytes", "text_field"),
    [("paper-147m", 12, 1.5e-3, 0.45e9, 6e9, "text"), ("paper-90m-code", 6, 2e-3, 0.25e9, 3.4e9, "content")],
)
def test_the_papers_settings(name, token_layers, learning_rate, warmup_bytes, total_bytes, text_field):
    config = load(PAPER[name])
    model, training, strategy = config.model, config.training, config.strategy
    assert (model.width, model.heads, model.window) == (768, 12, 64)
    assert (model.encoder_layers, model.token_layers, model.decoder_layers) == (4, token_layers, 4)
    assert (model.byte_mlp_width, model.token_mlp_width) == (768, 3072)
    assert (training.length_bytes, training.batch_rows, config.data.layout) == (4096, 128, "prefix")
    assert (training.learning_rate, training.warmup_bytes, training.total_bytes) == (
        learning_rate,
        warmup_bytes,
        total_bytes,
    )
    assert (training.optimiser, training.policy_learning_rate) == ("adamw", None)
    assert (training.beta2, training.weight_decay, training.clip_gradient) == (0.999, 0.01, 1.0)
    assert training.early_exit_weight == 0.1
    assert strategy == ScoreFunction(
        bytes_per_token=5.0,
        history=1,
        logit_divisor=16.0,
        logit_cap=6.0,
        gamma=0.99,
        early_exit=True,
        baseline="batch",
        policy_weight=0.01,
        rate_weight=0.01,
        random_fraction=0.0,
        reach=1.0,
    )
    assert config.data.text_field == text_field


def test_the_papers_two_differ_only_where_the_paper_says():
    prose, code = (tomllib.loads(dump(load(PAPER[name]))) for name in ("paper-147m", "paper-90m-code"))
    different = {(table, key) for table in prose if table != "seed" for key in prose[table]} - {
        (table, key)
        for table in code
        if table != "seed"
        for key in code[table]
        if prose[table][key] == code[table][key]
    }
    assert different == {
        ("data", "source"),
        ("data", "text_field"),
        ("model", "token_layers"),
        ("training", "learning_rate"),
        ("training", "warmup_bytes"),
        ("training", "total_bytes"),
    }

"""What all tests share: one thread, fixed seeds, the command line in a process of its own, a tiny trained run."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from byteseam.config import RunConfig

torch.set_num_threads(1)
settings.register_profile("byteseam", deadline=None, derandomize=True)
settings.load_profile("byteseam")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``python("-c", "...")``: a fresh interpreter, so that what it imports, prints and exits with can be told."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "COLUMNS": "100"}
        return subprocess.run(
            [sys.executable, *arguments],
            **{"capture_output": True, "encoding": "utf-8", "timeout": 120, "env": environment, **options},
        )

    return run


@pytest.fixture
def byteseam(python) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``byteseam("eval", "runs/x")``: the command line as a user calls it."""
    return lambda *arguments, **options: python("-m", "byteseam", *arguments, **options)


TINY = """
[data]
source = "{corpus}"
validation_fraction = 0.2

[model]
width = 16
heads = 2
encoder_layers = 1
token_layers = 1
decoder_layers = 1
byte_mlp_width = 16
token_mlp_width = 16
window = 4

[strategy]
name = "score_function"
bytes_per_token = 3
samples = 2
sample_rows = 0.5

[training]
length_bytes = 32
batch_rows = 4
total_bytes = {total_bytes}
warmup_bytes = 256
learning_rate = 1e-2
precision = "fp32"
sample_every_bytes = 512
evaluate_every_bytes = 640
checkpoint_every_bytes = 640
log_every_steps = 3

[evaluation]
max_bytes = 200
"""
STEP_BYTES = 4 * 32


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus: 60 documents of 20 to 100 bytes."""
    from byteseam.data.documents import Document, Source
    from byteseam.data.prepare import prepare

    words = ["to", "be", "or", "not", "the", "whale", "é", "中文", "\n", "\t"]
    draw = random.Random(1)
    texts = [" ".join(draw.choices(words, k=draw.randint(8, 25))).encode() for _ in range(60)]
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    source = Source("tiny", lambda: "made by a test", lambda: iter(documents), lambda: None, lambda: None)
    directory = tmp_path_factory.mktemp("corpus") / "tiny"
    prepare(source, directory, validation_fraction=0.2)
    return directory


@pytest.fixture(scope="session")
def tiny_toml(tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path) -> Path:
    """A configuration of some thousand parameters and 20 steps on `tiny_corpus`."""
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(TINY.format(corpus=tiny_corpus, total_bytes=20 * STEP_BYTES), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_config(tiny_toml: Path) -> "Callable[..., RunConfig]":
    """``tiny_config("training.batch_rows=2")``: what `tiny_toml` and overrides give."""
    from byteseam.config_file import load

    return lambda *overrides: load(tiny_toml, overrides)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_config: "Callable[..., RunConfig]") -> Path:
    """A finished run of `tiny_config`. Copy it before you write to it."""
    from byteseam.training.loop import Listener
    from byteseam.training.start import start_run

    trainer = start_run(tiny_config(), tmp_path_factory.mktemp("runs") / "tiny", Listener())
    trainer.train()
    return trainer.run.directory

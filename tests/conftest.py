"""What all tests share: one thread, fixed seeds, the command line in a process of its own."""

import os
import random
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import settings

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

"""What a run ran on, so that its figures can be read later."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

import byteseam
from byteseam.training.precision import Precision


def processor_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_environment(precision: Precision, corpus: dict[str, Any]) -> dict[str, Any]:
    """Versions, processor, arithmetic and the corpus's own summary, its source as it was given."""
    return {
        "byteseam": byteseam.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(precision.device),
        "bf16": precision.bf16,
        "corpus": corpus,
    }

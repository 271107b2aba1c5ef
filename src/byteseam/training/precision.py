"""Which arithmetic the matrix work runs in."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True, slots=True)
class Precision:
    """Parameters and optimiser stay in fp32; `autocast` wraps the forward pass."""

    device: torch.device
    bf16: bool

    def autocast(self) -> AbstractContextManager[object]:
        """bf16 for matrix products, or nothing."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext()


def processor_has_bf16() -> bool:
    """True where the CPU has matrix units for bf16 (AMX); emulated bf16 is slower than fp32."""
    # Older releases of PyTorch cannot tell; they get fp32.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("amx_bf16"))


def choose_precision(wanted: Literal["auto", "fp32", "bf16"], device: torch.device) -> Precision:
    """``auto``: bf16 on GPUs that have it and on processors with matrix units for it, else fp32."""
    if wanted != "auto":
        return Precision(device, wanted == "bf16")
    if device.type == "cuda":
        return Precision(device, torch.cuda.is_bf16_supported())
    return Precision(device, device.type == "cpu" and processor_has_bf16())

"""A boundary at every byte: the U-Net without compression."""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_starts
from byteseam.strategies.base import EXACT, Strategy, fixed_decision
from byteseam.types import Batch, Decision, Encoded


@dataclass(frozen=True, kw_only=True, config=EXACT)
class EveryByte(Strategy):
    """Every byte is a token: what the U-Net can do if the token model may run at every byte. Learns nothing.

    `bytes_per_token` changes nothing: it is always 1, and a step costs what that costs.
    """

    name: ClassVar[str] = "every_byte"
    rate_control: ClassVar[str] = "none: one token a byte"
    source: ClassVar[str] = "a byte-level model inside the U-Net"
    by_rule: ClassVar[bool] = True
    steered: ClassVar[bool] = False
    whole_bytes: ClassVar[bool] = True

    @property
    def rate(self) -> float:
        return 1.0

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Everywhere."""
        return fixed_decision(torch.ones_like(batch.mask), document_starts(batch.document_ids), batch.mask)

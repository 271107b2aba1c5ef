"""Boundaries at equal distances: MegaByte's patches."""

from typing import ClassVar

from jaxtyping import Float
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_positions, document_starts
from byteseam.strategies.base import EXACT, Pooled, fixed_decision
from byteseam.types import Batch, Decision, Encoded


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Stride(Pooled):
    """A token ends with every `bytes_per_token`-th byte of a document. Learns nothing.

    MegaByte takes a whole number; here a fraction alternates between its neighbours, so that any rate can be had:
    byte n ends a token where ``floor(n / bytes_per_token)`` rises.
    """

    name: ClassVar[str] = "stride"
    rate_control: ClassVar[str] = "exact"
    source: ClassVar[str] = "MegaByte (Yu et al. 2023, arXiv 2305.07185)"
    by_rule: ClassVar[bool] = True

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Counts the bytes since the document's start; certain."""
        # In float64, where a byte's number times a rate is exact enough for any document.
        place = document_positions(batch.document_ids).double()
        # The nudge keeps exact multiples from being rounded down.
        steps = (place / self.bytes_per_token + 1e-9).floor()
        before = ((place - 1) / self.bytes_per_token + 1e-9).floor()
        return fixed_decision(steps > before, document_starts(batch.document_ids), batch.mask)

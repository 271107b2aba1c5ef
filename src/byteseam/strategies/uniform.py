"""Boundaries at random: the control that every learned strategy must beat."""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_positions, document_starts
from byteseam.strategies.base import EXACT, Pooled, log_odds
from byteseam.types import Batch, Decision, Encoded

BLOCK_BYTES = 100
"""About how many bytes make a block, in which the number of boundaries is exact; more where a token is longer."""


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Uniform(Pooled):
    """Every set of so many boundaries among the bytes of a block is equally likely, redrawn each pass.

    The paper draws an exact number over the whole row, which depends on where the row ends. Here the number is exact
    in each block of a document, of the whole tokens that come nearest to 100 bytes, drawn byte by byte (selection
    sampling, Knuth's algorithm S), so that the decisions on a prefix are the prefix of the decisions. Learns nothing.
    """

    name: ClassVar[str] = "uniform"
    rate_control: ClassVar[str] = "exact in every 100 bytes or so"
    source: ClassVar[str] = "Dauncey and Wattenhofer 2026 (their control)"
    by_rule: ClassVar[bool] = True
    random: ClassVar[bool] = True
    sampled: ClassVar[bool] = True

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """A boundary where ``uniform < (still to place in the block) / (bytes left in the block)``."""
        starts = document_starts(batch.document_ids)
        # The document mark is position 0 and no choice; blocks count from the first byte.
        quota = max(1, round(BLOCK_BYTES * self.rate))
        block = round(quota * self.bytes_per_token)
        place = (document_positions(batch.document_ids) - 1) % block
        boundary = starts.clone()
        left = place.new_full(place.shape[:1], quota)
        for index in range(uniforms.shape[1]):
            left = left.where(place[:, index] != 0, quota)
            drawn = uniforms[:, index] * (block - place[:, index]) < left
            drawn = drawn & ~starts[:, index]
            boundary[:, index] |= drawn
            left = left - drawn.to(left.dtype)
        logits = torch.full_like(uniforms, log_odds(min(max(self.rate, 1e-6), 1 - 1e-6)))
        return Decision(boundary, batch.mask & ~starts, logits)

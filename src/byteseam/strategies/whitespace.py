"""Boundaries given by white space: what a person would do by hand, and SpaceByte does."""

from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_starts
from byteseam.strategies.base import EXACT, Pooled, fixed_decision
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Encoded


def is_white_space(byte_ids: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """ASCII white space: tab, line feed, vertical tab, form feed, carriage return, space."""
    return ((byte_ids >= 9) & (byte_ids <= 13)) | (byte_ids == 32)


def is_space_like(byte_ids: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Neither a letter, a digit, nor a UTF-8 continuation byte (Slagle 2024); the document mark is not."""
    digit = (byte_ids >= 48) & (byte_ids <= 57)
    letter = ((byte_ids >= 65) & (byte_ids <= 90)) | ((byte_ids >= 97) & (byte_ids <= 122))
    continuation = (byte_ids >= 0x80) & (byte_ids <= 0xBF)
    return ~(digit | letter | continuation | (byte_ids == DOCUMENT_MARK))


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Whitespace(Pooled):
    """A token ends with a space. Learns nothing; the rate is what the text makes of it, not `bytes_per_token`.

    ``rule = "spacebyte"``: at a space-like byte whose predecessor is not space-like (SpaceByte, Slagle 2024).
    ``rule = "whitespace"``: at every ASCII white-space byte.
    """

    name: ClassVar[str] = "whitespace"
    source: ClassVar[str] = "SpaceByte (Slagle 2024, arXiv 2404.14408)"
    by_rule: ClassVar[bool] = True
    steered: ClassVar[bool] = False

    rule: Literal["spacebyte", "whitespace"] = "spacebyte"

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Looks at the byte and the one before; certain."""
        starts = document_starts(batch.document_ids)
        if self.rule == "whitespace":
            return fixed_decision(is_white_space(batch.byte_ids), starts, batch.mask)
        space = is_space_like(batch.byte_ids)
        before = F.pad(space[:, :-1], (1, 0), value=False) & ~starts
        return fixed_decision(space & ~before, starts, batch.mask)

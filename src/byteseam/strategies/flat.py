"""No U-Net at all: a byte-level transformer of equal cost, the baseline that is hard to beat at small scale."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.errors import UserError
from byteseam.model.flops import forward_flops
from byteseam.model.pooling import Pooling, Segments
from byteseam.model.unet import document_starts
from byteseam.strategies.base import EXACT, Strategy, fixed_decision
from byteseam.strategies.stride import Stride
from byteseam.types import Batch, Decision, Encoded

if TYPE_CHECKING:
    from byteseam.config import ModelConfig


MLP_RATIO = 3
"""The MLPs' width over the bytes', at least, where both are left to the tool."""


class NoTokens(Pooling):
    """There is no token model: bytes go on as they are."""

    def up(
        self, hidden: Float[Tensor, "B L D"], tokens: Float[Tensor, "B S D"], parts: Segments
    ) -> Float[Tensor, "B L D"]:
        return hidden


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Flat(Strategy):
    """A transformer over bytes, every layer with full attention over the row and an early exit after the first.

    It is sized to the FLOPs a byte of the U-Net of `[model]` at `bytes_per_token`, forward, and so backward: what a
    byte costs with fixed boundaries, in training and after. Left alone (``None``) it is as deep as the U-Net's token
    model and as wide as leaves the MLPs three times the width; the MLPs take up what is left. At a given size, wide and
    shallow was much worse (docs/results.md).
    Every byte counts as a token of its own; there is nothing to decide and nothing is learned about it.
    """

    name: ClassVar[str] = "flat"
    rate_control: ClassVar[str] = "none: one token a byte"
    source: ClassVar[str] = "a byte-level transformer of equal FLOPs"
    by_rule: ClassVar[bool] = True
    steered: ClassVar[bool] = False
    whole_bytes: ClassVar[bool] = True

    layers: int | None = Field(default=None, ge=2)
    """Layers; ``None``: as many as the token model has."""
    width: int | None = Field(default=None, ge=8, multiple_of=2)
    """Width of the bytes' vectors; ``None``: the largest multiple of 8 that leaves MLPs `MLP_RATIO` times as wide."""
    mlp_width: int | None = Field(default=None, ge=1)
    """Width of the MLPs; ``None``: what makes the FLOPs equal."""
    window: int | None = Field(default=None, ge=1)
    """Bytes that a position sees; ``None``: a whole row."""

    def network(self, model: "ModelConfig") -> "ModelConfig":
        """The layers, with the last all but one called the decoder, and no token model.

        Raises:
            ValueError: before `settled`.
        """
        if self.layers is None or self.width is None or self.mlp_width is None or self.window is None:
            raise ValueError("the flat model has no size yet; take the strategy from settled(model, length_bytes)")
        return replace(
            model,
            width=self.width,
            heads=heads_for(self.width, model),
            encoder_layers=1,
            token_layers=0,
            decoder_layers=self.layers - 1,
            byte_mlp_width=self.mlp_width,
            window=self.window,
        )

    def settled(self, model: "ModelConfig", length_bytes: int) -> "Flat":
        sized = replace(self, window=self.window or length_bytes, layers=self.layers or max(2, model.token_layers))
        if self.width is not None and self.mlp_width is not None:
            return sized
        target = flops(model, Stride(bytes_per_token=self.bytes_per_token), length_bytes)

        def cost(width: int, mlp_width: int) -> int:
            return flops(model, replace(sized, width=width, mlp_width=mlp_width), length_bytes)

        width = self.width
        if width is None:
            width = 8
            while cost(width + 8, self.mlp_width or MLP_RATIO * (width + 8)) <= target:
                width += 8
        if self.mlp_width is not None:
            return replace(sized, width=width)
        # The cost is linear in the MLPs' width.
        narrow, slope = cost(width, 1), cost(width, 2) - cost(width, 1)
        mlp_width = 1 + round((target - narrow) / slope)
        if mlp_width < 1:
            raise UserError(
                f"strategy.layers = {sized.layers} of width {width} cost more than the U-Net's {target:,} FLOPs a "
                "byte; lower strategy.width or strategy.layers"
            )
        return replace(sized, width=width, mlp_width=mlp_width)

    def pooling(self, width: int) -> Pooling:
        return NoTokens()

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Everywhere."""
        return fixed_decision(torch.ones_like(batch.mask), document_starts(batch.document_ids), batch.mask)


def flops(model: "ModelConfig", strategy: Strategy, length_bytes: int) -> int:
    """FLOPs a byte, forward."""
    return sum(forward_flops(model, strategy, length_bytes).values())


def heads_for(width: int, model: "ModelConfig") -> int:
    """Heads of about the U-Net's head width that split `width` evenly."""
    wanted = max(1, round(width * model.heads / model.width))
    fitting = [heads for heads in range(1, width // 2 + 1) if width % (2 * heads) == 0]
    return min(fitting, key=lambda heads: abs(heads - wanted))

"""No U-Net at all: a byte-level transformer of equal cost, the baseline that is hard to beat at small scale."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float
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


class NoTokens(Pooling):
    """There is no token model: bytes go on as they are."""

    def up(
        self,
        hidden: Float[Tensor, "B L D"],
        tokens: Float[Tensor, "B S D"],
        parts: Segments,
        boundary: Bool[Tensor, "B L"],
        relaxed: Float[Tensor, "B L"] | None,
        starts: Bool[Tensor, "B L"],
    ) -> Float[Tensor, "B L D"]:
        return hidden


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Flat(Strategy):
    """A transformer over bytes, every layer with full attention over the row and an early exit after the first.

    It is sized to the FLOPs a byte of the U-Net of `[model]` at `bytes_per_token`, forward, and so backward: what a
    byte costs with fixed boundaries, in training and after. Left alone (``None``), the depth is `layers` of the U-Net's
    width and the MLP takes up what is left; `width` and `layers` can be chosen, and the MLP follows.
    Every byte counts as a token of its own; there is nothing to decide and nothing is learned about it.
    """

    name: ClassVar[str] = "flat"
    rate_control: ClassVar[str] = "none: one token a byte"
    source: ClassVar[str] = "a byte-level transformer of equal FLOPs"
    steered: ClassVar[bool] = False

    layers: int | None = Field(default=None, ge=2)
    """Layers; ``None``: as many as fit with an MLP of at least twice the width."""
    width: int | None = Field(default=None, ge=8)
    """Width of the bytes' vectors; ``None``: the U-Net's."""
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
        window = self.window or length_bytes
        width = self.width or model.width
        if self.layers is not None and self.mlp_width is not None:
            return replace(self, width=width, window=window)
        target = flops(model, Stride(bytes_per_token=self.bytes_per_token), length_bytes)

        def sized(layers: int, mlp_width: int) -> "Flat":
            return replace(self, layers=layers, width=width, mlp_width=mlp_width, window=window)

        def cost(layers: int, mlp_width: int) -> int:
            return flops(model, sized(layers, mlp_width), length_bytes)

        layers = self.layers
        if layers is None:
            wide = self.mlp_width or 2 * width
            layers = max((n for n in range(2, 257) if cost(n, wide) <= target), default=2)
        if self.mlp_width is not None:
            return sized(layers, self.mlp_width)
        # The cost is linear in the MLP's width.
        narrow, slope = cost(layers, 1), cost(layers, 2) - cost(layers, 1)
        mlp_width = 1 + round((target - narrow) / slope)
        if mlp_width < 1:
            raise UserError(
                f"strategy.layers = {layers} at width {width} cost more than the U-Net's {target:,} FLOPs a byte; "
                "lower strategy.width or strategy.layers"
            )
        return sized(layers, mlp_width)

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

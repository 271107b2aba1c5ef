"""The autoregressive U-Net: bytes -> encoder -> (boundaries) -> token model -> decoder -> next byte."""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from byteseam.model.attention import FullCausal, windowed_attention
from byteseam.model.layers import Attention, Block, Norm, rotary_table
from byteseam.model.pooling import Pooling, segments
from byteseam.types import VOCABULARY, Batch, Encoded

if TYPE_CHECKING:
    from byteseam.config import ModelConfig


def document_starts(document_ids: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """True at the first position of every document, the row's first included."""
    return F.pad(document_ids[:, 1:] != document_ids[:, :-1], (1, 0), value=True)[:, : document_ids.shape[1]]


def document_positions(document_ids: Int[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """int64, how far each position is from the start of its document: packed rows then equal separate ones."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand_as(document_ids)
    starts = index.where(document_starts(document_ids), torch.zeros_like(index))
    return index - (starts.cummax(dim=1).values if index.shape[1] else starts)


class Head(nn.Module):
    """A final norm and a linear map to next-id logits, in fp32 whatever the autocast type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.linear = nn.Linear(width, VOCABULARY)

    def forward(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B L V"]:
        # Rewards are small differences of these losses: bf16 logits would round them away.
        with torch.autocast(hidden.device.type, enabled=False):
            return self.linear(self.norm(hidden))


class Stack(nn.ModuleList):
    """Layers that share one attention pattern."""

    def forward(self, hidden: Tensor, attention: Attention, rotary: Tensor) -> Tensor:
        for layer in self:
            hidden = layer(hidden, attention, rotary)
        return hidden


class UNet(nn.Module):
    """Encoder, token model, decoder and the two heads. It knows boundaries, not where they come from."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.config = config
        width, heads = config.width, config.heads
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.encoder = Stack(Block(width, heads, config.byte_mlp_width) for _ in range(config.encoder_layers))
        self.early_head = Head(width)
        self.token_model = Stack(Block(width, heads, config.token_mlp_width) for _ in range(config.token_layers))
        self.token_norm = Norm(width)
        self.decoder = Stack(Block(width, heads, config.byte_mlp_width) for _ in range(config.decoder_layers))
        self.head = Head(width)
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal(0, 1/sqrt(fan-in)) for matrices, smaller where residual branches end; a unit embedding."""
        layers = len(self.encoder) + len(self.token_model) + len(self.decoder)
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                continue
            if name.endswith("bias"):
                parameter.zero_()
                continue
            if parameter is self.embedding.weight:
                parameter.normal_()
                continue
            std = parameter.shape[1] ** -0.5
            if name.endswith(("attention_out.weight", "mlp_out.weight")):
                std /= math.sqrt(2 * layers)
            if name.endswith("head.linear.weight"):
                std *= 0.1
            parameter.normal_(std=std)

    def byte_context(self, document_ids: Int[Tensor, "B L"]) -> tuple[Attention, Tensor]:
        """What all byte-level layers share: the windowed attention and the rotary tables."""
        rotary = rotary_table(
            document_positions(document_ids), self.config.width // self.config.heads, self.config.rotary_base
        )
        return windowed_attention(document_ids, self.config.window), rotary

    def encode(self, batch: Batch) -> Encoded:
        """Bytes to the encoder's hidden states and the early-exit logits; no boundary is involved."""
        hidden = self.encoder(self.embedding(batch.byte_ids), *self.byte_context(batch.document_ids))
        return Encoded(hidden, self.early_head(hidden))

    def decode(
        self,
        hidden: Float[Tensor, "B L D"],
        document_ids: Int[Tensor, "B L"],
        boundary: Bool[Tensor, "B L"],
        relaxed: Float[Tensor, "B L"] | None = None,
        pooling: Pooling | None = None,
    ) -> Float[Tensor, "B L V"]:
        """fp32 next-id logits for a segmentation, from the encoder's hidden states.

        Args:
            relaxed: see `byteseam.types.Decision`.
            pooling: how bytes become tokens and tokens reach bytes; selecting and adding, unless given.
        """
        pooling = pooling or Pooling()
        parts = segments(boundary, starts=document_starts(document_ids), relaxed=relaxed)
        positions = document_positions(document_ids)
        token_documents = document_ids.gather(1, parts.token_positions).masked_fill(~parts.token_mask, -1)
        rotary = rotary_table(
            positions.gather(1, parts.token_positions),
            self.config.width // self.config.heads,
            self.config.rotary_base,
        )
        tokens = pooling.down(hidden, parts)
        tokens = self.token_norm(self.token_model(tokens, FullCausal.build(token_documents), rotary))
        mixed = pooling.up(hidden, tokens, parts)
        return self.head(self.decoder(mixed, *self.byte_context(document_ids)))


def next_id_nll(
    logits: Float[Tensor, "B L V"], targets: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, "B L"]:
    """``-log p(target)`` in nats, fp32; 0 where masked."""
    nll = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").view_as(targets)
    return nll.masked_fill(~mask, 0.0)

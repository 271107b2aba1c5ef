"""Causal attention within documents: a sliding window for bytes, full for tokens.

Windowed attention costs O(L * window). On CPU the row is cut into blocks of `window` queries, each of which sees its
own block and the one before; no L x L mask exists. On CUDA the same pattern is a FlexAttention block mask.
Both kinds of mask are built once a forward pass and shared by all layers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Bool[Tensor, "N 1 Q K"]) -> Tensor:
    """Softmax attention [N H Q E] under a boolean mask in which every query sees at least one key.

    On CPU in bf16 the plain formula is several times faster than PyTorch's fused kernel backward; elsewhere the
    fused kernel wins.
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -1e9)
        scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2)) + bias
        return torch.matmul(torch.softmax(scores, dim=-1), value)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@dataclass(frozen=True, slots=True)
class BlockedWindow:
    """Sliding-window attention in blocks, plain PyTorch, any device."""

    window: int
    mask: Bool[Tensor, "BN 1 W 2*W"]
    """True where a query of a block may see a key of its own block or the block before."""

    @staticmethod
    def build(document_ids: Int[Tensor, "B L"], window: int) -> "BlockedWindow":
        """The pattern of rows with these documents; a position sees `window` bytes, itself included."""
        rows, length = document_ids.shape
        blocks = -(-length // window)
        padded = F.pad(document_ids, (window, blocks * window - length), value=-1)
        keys = padded.unfold(1, 2 * window, window)[:, :blocks]
        queries = padded[:, window:].view(rows, blocks, window)
        index = torch.arange(2 * window, device=document_ids.device)
        distance = index[window:, None] - index
        near = (distance >= 0) & (distance < window)
        mask = near & (queries[..., None] == keys[:, :, None, :])
        return BlockedWindow(window, mask.view(rows * blocks, 1, window, 2 * window))

    def __call__(
        self, query: Float[Tensor, "B L H E"], key: Float[Tensor, "B L H E"], value: Float[Tensor, "B L H E"]
    ) -> Float[Tensor, "B L H E"]:
        """Attention output, same shape and dtype as `query`."""
        rows, length, heads, size = query.shape
        window = self.window
        blocks = -(-length // window)
        tail = blocks * window - length

        def with_previous(tensor: Tensor) -> Tensor:
            own = to_blocks(tensor)
            # Not unfold, whose backward is slow: the block before is the same tensor one block later.
            before = F.pad(own[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
            return torch.cat((before, own), dim=2).flatten(0, 1).transpose(1, 2)

        def to_blocks(tensor: Tensor) -> Tensor:
            padded = F.pad(tensor, (0, 0, 0, 0, 0, tail)) if tail else tensor
            return padded.reshape(rows, blocks, window, heads, size)

        own = to_blocks(query).flatten(0, 1).transpose(1, 2)
        out = attend(own, with_previous(key), with_previous(value), self.mask)
        return out.transpose(1, 2).reshape(rows, blocks * window, heads, size)[:, :length]


@dataclass(frozen=True, slots=True)
class FullCausal:
    """Causal attention over all earlier tokens of the same document."""

    mask: Bool[Tensor, "B 1 S S"]

    @staticmethod
    def build(token_document_ids: Int[Tensor, "B S"]) -> "FullCausal":
        """The pattern of rows whose tokens belong to these documents."""
        size = token_document_ids.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool, device=token_document_ids.device).tril()
        same = token_document_ids[:, :, None] == token_document_ids[:, None, :]
        return FullCausal((causal & same)[:, None])

    def __call__(
        self, query: Float[Tensor, "B S H E"], key: Float[Tensor, "B S H E"], value: Float[Tensor, "B S H E"]
    ) -> Float[Tensor, "B S H E"]:
        """Attention output, same shape and dtype as `query`."""
        out = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), self.mask)
        return out.transpose(1, 2)

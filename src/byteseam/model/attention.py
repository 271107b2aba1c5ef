"""Causal attention within documents: a sliding window for bytes, full for tokens.

Windowed attention costs O(L * window). On CPU the row is cut into blocks of queries, each of which meets its own
block and the `window` positions before it; no L x L mask exists. On CUDA the same pattern is a FlexAttention
block mask.
Both kinds of mask are built once a forward pass and shared by all layers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

SHORT = 512
"""Keys up to which the plain formula is the faster one on CPU in bf16, forward and backward together."""


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Bool[Tensor, "N 1 Q K"]) -> Tensor:
    """Softmax attention [N H Q E] under a boolean mask in which every query sees at least one key.

    PyTorch's fused kernel, except for few keys on CPU in bf16, where the plain formula is several times faster.
    """
    if query.device.type == "cpu" and query.dtype == torch.bfloat16 and key.shape[-2] <= SHORT:
        bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -1e9)
        scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2)) + bias
        return torch.matmul(torch.softmax(scores, dim=-1), value)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


BLOCK = 64
"""Queries of a block, unless the window is wider: smaller blocks waste fewer keys but make for slow small products."""


def block_size(window: int) -> int:
    """Queries that are handled together; each meets ``block_size + window`` keys, of which it may see `window`."""
    return max(window, BLOCK)


@dataclass(frozen=True, slots=True)
class BlockedWindow:
    """Sliding-window attention in blocks, plain PyTorch, any device."""

    window: int
    mask: Bool[Tensor, "BN 1 block keys"]
    """True where a query of a block may see a key of its own block or one of the `window` positions before it."""

    @staticmethod
    def build(document_ids: Int[Tensor, "B L"], window: int) -> "BlockedWindow":
        """The pattern of rows with these documents; a position sees `window` bytes, itself included."""
        rows, length = document_ids.shape
        block = block_size(window)
        blocks = max(1, -(-length // block))
        padded = F.pad(document_ids, (window, blocks * block - length), value=-1)
        keys = padded.unfold(1, block + window, block)[:, :blocks]
        queries = padded[:, window:].view(rows, blocks, block)
        index = torch.arange(block + window, device=document_ids.device)
        distance = index[window:, None] - index
        near = (distance >= 0) & (distance < window)
        mask = near & (queries[..., None] == keys[:, :, None, :])
        return BlockedWindow(window, mask.view(rows * blocks, 1, block, block + window))

    def __call__(
        self, query: Float[Tensor, "B L H E"], key: Float[Tensor, "B L H E"], value: Float[Tensor, "B L H E"]
    ) -> Float[Tensor, "B L H E"]:
        """Attention output, same shape and dtype as `query`."""
        rows, length, heads, size = query.shape
        block = block_size(self.window)
        blocks = max(1, -(-length // block))
        tail = blocks * block - length

        def to_blocks(tensor: Tensor) -> Tensor:
            padded = F.pad(tensor, (0, 0, 0, 0, 0, tail)) if tail else tensor
            return padded.reshape(rows, blocks, block, heads, size)

        def with_previous(tensor: Tensor) -> Tensor:
            own = to_blocks(tensor)
            # Not unfold, whose backward is slow: what stands before a block is the end of the block before.
            before = F.pad(own[:, :-1, block - self.window :], (0, 0, 0, 0, 0, 0, 1, 0))
            return torch.cat((before, own), dim=2).flatten(0, 1).transpose(1, 2)

        own = to_blocks(query).flatten(0, 1).transpose(1, 2)
        out = attend(own, with_previous(key), with_previous(value), self.mask)
        return out.transpose(1, 2).reshape(rows, blocks * block, heads, size)[:, :length]


@dataclass(frozen=True, slots=True)
class FlexWindow:
    """The same pattern as a FlexAttention block mask, whose kernels exist for CUDA.

    FlexAttention is imported where it is used: it costs a second, and the CPU never needs it.
    """

    block_mask: Any

    @staticmethod
    def build(document_ids: Int[Tensor, "B L"], window: int) -> "FlexWindow":
        """See `BlockedWindow.build`."""
        from torch.nn.attention.flex_attention import create_block_mask

        rows, length = document_ids.shape

        def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            near = (query >= key) & (query - key < window)
            return near & (document_ids[row, query] == document_ids[row, key])

        return FlexWindow(create_block_mask(visible, rows, None, length, length, device=document_ids.device))

    def __call__(
        self, query: Float[Tensor, "B L H E"], key: Float[Tensor, "B L H E"], value: Float[Tensor, "B L H E"]
    ) -> Float[Tensor, "B L H E"]:
        """Attention output, same shape and dtype as `query`."""
        out = flex_attention_for(query.device.type)(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), block_mask=self.block_mask
        )
        return out.transpose(1, 2)


@cache
def flex_attention_for(device_type: str) -> Any:
    """FlexAttention, compiled on CUDA, where it is fast only so; the plain one elsewhere serves as a reference."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if device_type == "cuda" else flex_attention


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


def windowed_attention(document_ids: Int[Tensor, "B L"], window: int) -> BlockedWindow | FlexWindow | FullCausal:
    """Sliding-window attention for rows with these documents, by the backend that fits the device.

    A window that holds the whole row is full attention, which blocks would only make dearer.
    """
    if document_ids.is_cuda:
        return FlexWindow.build(document_ids, window)
    if window >= document_ids.shape[1]:
        return FullCausal.build(document_ids)
    return BlockedWindow.build(document_ids, window)


def window_keys(window: int, length: int) -> int:
    """Keys that a query meets in rows of so many positions, seen or not: what attention costs on a CPU."""
    return length if window >= length else block_size(window) + window

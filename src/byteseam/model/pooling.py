"""From bytes to tokens and back: selection and distribution, and what stands between them. Imports torch alone."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

BUCKET = 16
"""Token counts are padded up to a multiple of this, so that compiled graphs and allocations stay few."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Which bytes are tokens, and which token each byte reads."""

    segment_ids: Int[Tensor, "B L"]
    """int64, the token that a byte reads: the latest boundary at or before it."""
    token_positions: Int[Tensor, "B S"]
    """int64, the index in the row of the byte that ends the token; 0 on padding."""
    token_mask: Bool[Tensor, "B S"]
    """False on padding, which stands at the end of a row."""
    boundary: Bool[Tensor, "B L"]
    """What was cut: True where a token ends after this position."""
    starts: Bool[Tensor, "B L"]
    """True at the first position of every document, which is always a boundary."""
    relaxed: Float[Tensor, "B L"] | None
    """`byteseam.types.Decision.relaxed`."""


def segments(
    boundary: Bool[Tensor, "B L"],
    bucket: int = BUCKET,
    starts: Bool[Tensor, "B L"] | None = None,
    relaxed: Float[Tensor, "B L"] | None = None,
) -> Segments:
    """Index tensors for a segmentation whose first position is always a boundary.

    Without `starts` a row is one document. The number of tokens S is the longest row's, rounded up to `bucket` (one
    host synchronisation).
    """
    rows, length = boundary.shape
    order = torch.cumsum(boundary, dim=1, dtype=torch.int64)
    counts = order[:, -1] if length else order.new_zeros(rows)
    longest = int(counts.max()) if counts.numel() else 0
    tokens = -(-longest // bucket) * bucket
    segment_ids = order - 1
    # Bytes that are no boundary write to a spare last column, which is cut off again.
    slots = segment_ids.where(boundary, tokens)
    bytes_index = torch.arange(length, device=boundary.device).expand(rows, length)
    token_positions = bytes_index.new_zeros(rows, tokens + 1).scatter_(1, slots, bytes_index)[:, :tokens]
    token_mask = torch.arange(tokens, device=boundary.device) < counts[:, None]
    if starts is None:
        starts = (torch.arange(length, device=boundary.device) == 0).expand_as(boundary)
    return Segments(segment_ids, token_positions, token_mask, boundary, starts, relaxed)


def select(hidden: Float[Tensor, "B L D"], token_positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """One vector a token: the hidden state at the byte that ends it."""
    return hidden.gather(1, token_positions[..., None].expand(-1, -1, hidden.shape[-1]))


def distribute(tokens: Float[Tensor, "B S D"], segment_ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
    """Every byte receives the vector of the token it reads."""
    return tokens.gather(1, segment_ids[..., None].expand(-1, -1, tokens.shape[-1]))


class Pooling(nn.Module):
    """How bytes become tokens and tokens reach bytes; this one selects and adds, and learns nothing (the paper's).

    Causal: a token may use the bytes up to its last one, and reaches bytes from that one on.
    """

    def down(self, hidden: Float[Tensor, "B L D"], parts: Segments) -> Float[Tensor, "B S D"]:
        """One vector a token, from what the encoder wrote."""
        return select(hidden, parts.token_positions)

    def up(
        self, hidden: Float[Tensor, "B L D"], tokens: Float[Tensor, "B S D"], parts: Segments
    ) -> Float[Tensor, "B L D"]:
        """What the decoder reads, from what the encoder wrote and what the token model made of the tokens."""
        return hidden + distribute(tokens, parts.segment_ids)


class MeanPooling(Pooling):
    """A token is the mean of its bytes; a document's first token, which has no bytes, is a learned vector.

    Gradients reach the boundaries through the weights of the mean: were the boundary before a byte a little more of
    one, that byte would weigh more in its token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.null = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.null)

    def down(self, hidden: Float[Tensor, "B L D"], parts: Segments) -> Float[Tensor, "B S D"]:
        with torch.autocast(hidden.device.type, enabled=False):
            ended = parts.boundary.float()
            if parts.relaxed is not None:
                ended = ended + (parts.relaxed - parts.relaxed.detach())
            # Tokens that ended strictly before a byte; its value is a whole number, its gradient the relaxed one's.
            closed = ended.cumsum(dim=1) - ended
            weight = 1 + closed - closed.detach()
            # A byte belongs to the token that ends at it or next: one further than the token that it reads, unless it
            # ends one itself. Bytes whose token never ends go to a place that nobody reads.
            size = parts.token_positions.shape[1]
            token = (parts.segment_ids + (~parts.boundary).long()).clamp(max=size)
            spread = token[..., None].expand(-1, -1, hidden.shape[-1])
            sums = hidden.new_zeros(len(hidden), size + 1, hidden.shape[-1], dtype=torch.float32)
            sums = sums.scatter_add(1, spread, weight[..., None] * hidden.float())[:, :size]
            weights = weight.new_zeros(len(weight), size + 1).scatter_add(1, token, weight)[:, :size]
            tokens = sums / weights.clamp(min=0.5)[..., None]
            first = parts.starts.gather(1, parts.token_positions) & parts.token_mask
            tokens = torch.where(first[..., None], self.null, tokens)
            return tokens.masked_fill(~parts.token_mask[..., None], 0.0).to(hidden.dtype)

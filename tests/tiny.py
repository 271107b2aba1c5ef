"""What many tests build small models and rows from."""

import torch
from torch import nn

from byteseam.config import ModelConfig
from byteseam.strategies import Strategy
from byteseam.types import DOCUMENT_MARK, Batch, Encoded

TINY_MODEL = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=1,
    token_layers=1,
    decoder_layers=1,
    byte_mlp_width=16,
    token_mlp_width=16,
    window=4,
)


def packed(*documents: bytes) -> Batch:
    """Documents end to end in one row, each with its mark."""
    ids = [each for document in documents for each in (DOCUMENT_MARK, *document)]
    targets = [each for document in documents for each in (*document, DOCUMENT_MARK)]
    numbers = [number for number, document in enumerate(documents) for _ in range(len(document) + 1)]
    byte_ids, target_ids, document_ids = (torch.tensor([each], dtype=torch.int64) for each in (ids, targets, numbers))
    return Batch(byte_ids, target_ids, torch.ones_like(byte_ids, dtype=torch.bool), document_ids)


def marks(strategy: Strategy, *documents: bytes, policy: nn.Module | None = None) -> str:
    """What a certain rule makes of packed documents: below each byte ``|`` where a token ends; ``M`` at marks."""
    batch = packed(*documents)
    nothing = torch.zeros(batch.byte_ids.shape)
    encoded = Encoded(nothing[..., None], nothing[..., None])
    decision = strategy.decide(policy or nn.Module(), encoded, batch, torch.rand(nothing.shape))
    starts = batch.byte_ids[0] == DOCUMENT_MARK
    assert decision.boundary[0][starts].all()
    assert torch.equal(decision.free[0], ~starts)
    assert ((decision.logits > 0) == decision.boundary).all()
    signs = zip(starts.tolist(), decision.boundary[0].tolist(), strict=True)
    return "".join("M" if start else "|" if end else "." for start, end in signs)

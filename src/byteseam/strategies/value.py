"""A learned prediction of the return, as a baseline that may look ahead in the text but never at a[>= i]."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from byteseam.model.layers import Norm
from byteseam.rl.returns import continues, discounted_returns

SCALE_BYTES = 8.0
"""Distances to the last boundary are squashed as ``d / (d + 8)``."""


class ValueHead(nn.Module):
    """An MLP on the encoder state, the discounted early-exit loss of the bytes ahead, the byte's own early-exit loss
    and the distance to the last boundary before the byte.

    The text ahead is allowed: it does not depend on the decision at i or later ones (hindsight is unbiased as long
    as it is the text's, not the decisions'). The last layer starts at zero. Nothing flows into the encoder.
    """

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.inner = nn.Linear(width + 3, hidden_width)
        self.outer = nn.Linear(hidden_width, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(
        self,
        hidden: Float[Tensor, "B L D"],
        early_nll: Float[Tensor, "B L"],
        boundary: Bool[Tensor, "B L"],
        document_ids: Int[Tensor, "B L"],
        gamma: float,
    ) -> Float[Tensor, "B L"]:
        """fp32 predictions of G, nats."""
        ahead = discounted_returns(early_nll.float(), gamma, continues(document_ids))
        index = torch.arange(boundary.shape[1], device=boundary.device).expand_as(boundary)
        # The latest boundary strictly before i: position 0 of a document, a boundary itself, has none and gets -1.
        latest = F.pad(index.where(boundary, -1).cummax(dim=1).values[:, :-1], (1, 0), value=-1)
        distance = (index - latest).float()
        with torch.autocast(hidden.device.type, enabled=False):
            features = torch.stack((early_nll.float(), ahead, distance / (distance + SCALE_BYTES)), dim=-1)
            inner = F.gelu(self.inner(torch.cat((self.norm(hidden.detach().float()), features), dim=-1)))
            return self.outer(inner)[..., 0]

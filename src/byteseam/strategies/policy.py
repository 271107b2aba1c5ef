"""The boundary policy: log-odds of a boundary from encoder states and a window of earlier decisions."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from byteseam.model.layers import Norm
from byteseam.model.unet import document_starts
from byteseam.strategies.base import log_odds
from byteseam.types import Decision


class BoundaryPolicy(nn.Module):
    """``V = W norm(X) + b`` in R^w a byte;  ``l_raw[i] = V[i][0] + sum_j V[i][j] a[i-j]``, j = 1..w-1;
    ``l = cap * tanh((l_raw / divisor + logit(rate)) / cap)``.

    W and b start at zero, so every probability starts at the target rate, but for what the cap takes off.
    History never reaches into another document. All in fp32, whatever the autocast type.
    """

    def __init__(self, width: int, window: int, rate: float, divisor: float, cap: float) -> None:
        super().__init__()
        self.window, self.divisor, self.cap = window, divisor, cap
        # A rate of one (a boundary at every byte) has no finite log-odds; the cap bounds them anyway.
        self.offset = log_odds(min(max(rate, 1e-4), 1 - 1e-4))
        self.norm = Norm(width)
        self.linear = nn.Linear(width, window)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def taps(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B L w"]:
        """V, the weight of a constant and of each earlier decision."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.linear(self.norm(hidden.float()))

    def squash(self, raw: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Raw sums to bounded log-odds."""
        return self.cap * torch.tanh((raw / self.divisor + self.offset) / self.cap)

    def log_odds_given(
        self, taps: Float[Tensor, "B L w"], boundary: Bool[Tensor, "B L"], document_ids: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B L"]:
        """The log-odds of every decision given the earlier ones, in one vectorised pass."""
        raw = taps[..., 0]
        for back in range(1, min(self.window, boundary.shape[1])):
            same = document_ids[:, back:] == document_ids[:, :-back]
            history = F.pad((boundary[:, :-back] & same).to(taps.dtype), (back, 0))
            raw = raw + taps[..., back] * history
        return self.squash(raw)

    def forward(
        self,
        hidden: Float[Tensor, "B L D"],
        document_ids: Int[Tensor, "B L"],
        mask: Bool[Tensor, "B L"],
        uniforms: Float[Tensor, "B L"],
    ) -> Decision:
        """Draw the boundaries, then give the log-odds they were drawn with, differentiable."""
        starts = document_starts(document_ids)
        taps = self.taps(hidden)
        if self.window == 1:
            logits = self.squash(taps[..., 0])
            boundary = (uniforms < torch.sigmoid(logits.detach())) | starts
        else:
            boundary = self.scan(taps.detach(), document_ids, starts, uniforms)
            logits = self.log_odds_given(taps, boundary, document_ids)
        return Decision(boundary, mask & ~starts, logits)

    @torch.no_grad()
    def scan(
        self,
        taps: Float[Tensor, "B L w"],
        document_ids: Int[Tensor, "B L"],
        starts: Bool[Tensor, "B L"],
        uniforms: Float[Tensor, "B L"],
    ) -> Bool[Tensor, "B L"]:
        """Draw byte by byte, each decision seeing the ones before it (forced ones included, as they were)."""
        boundary = starts.clone()
        for index in range(uniforms.shape[1]):
            first = max(0, index - self.window + 1)
            same = document_ids[:, first:index] == document_ids[:, index : index + 1]
            history = (boundary[:, first:index] & same).to(taps.dtype).flip(1)
            raw = taps[:, index, 0]
            # One tap after the other, as in the vectorised pass, so that both round alike.
            for back in range(history.shape[1]):
                raw = raw + taps[:, index, back + 1] * history[:, back]
            boundary[:, index] |= uniforms[:, index] < torch.sigmoid(self.squash(raw))
        return boundary

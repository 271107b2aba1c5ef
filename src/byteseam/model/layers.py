"""Transformer layers shared by encoder, token model and decoder."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""query, key, value [B L H E] -> [B L H E]; carries its own mask (`byteseam.model.attention`)."""

EPSILON = 1e-6


class Norm(nn.Module):
    """Layer norm with a learned gain and no bias, in fp32.

    Not RMSNorm: PyTorch fuses this one forward and backward on every device, on CPU about three times as fast.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return F.layer_norm(hidden.float(), self.weight.shape, self.weight, None, EPSILON)


def rotary_table(positions: Int[Tensor, "B L"], size: int, base: float) -> Complex[Tensor, "B L 1 half"]:
    """Unit complex numbers that rotary embeddings multiply by, for integer positions (Su et al. 2021).

    complex64: the angle is computed in fp32, never in bf16, whose 8 bits of mantissa merge neighbouring bytes.
    """
    frequency = base ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
    angle = positions[:, :, None, None].to(torch.float32) * frequency
    return torch.polar(torch.ones_like(angle), angle)


def rotate(hidden: Float[Tensor, "B L H E"], rotary: Complex[Tensor, "B L 1 half"]) -> Float[Tensor, "B L H E"]:
    """Turn each neighbouring pair of a head's numbers by the position's angle; fp32."""
    pairs = hidden.float().unflatten(-1, (-1, 2))
    if torch.compiler.is_compiling():
        # The compiler cannot fuse complex products, which are the fastest otherwise; the same in real ones.
        even, odd = pairs.unbind(-1)
        cos, sin = torch.view_as_real(rotary).unbind(-1)
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotary).flatten(-2)


class Block(nn.Module):
    """Pre-norm attention and gated MLP. Queries and keys are normalised, which tolerates high learning rates."""

    def __init__(self, width: int, heads: int, mlp_width: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.attention_norm = Norm(width)
        self.query_key = nn.Linear(width, 2 * width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.query_key_norm = Norm(width // heads)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = Norm(width)
        self.mlp_in = nn.Linear(width, 2 * mlp_width, bias=False)
        self.mlp_out = nn.Linear(mlp_width, width, bias=False)

    def forward(
        self, hidden: Float[Tensor, "B L D"], attention: Attention, rotary: Complex[Tensor, "B L 1 half"]
    ) -> Float[Tensor, "B L D"]:
        normed = self.attention_norm(hidden)
        value = self.value(normed).unflatten(-1, (-1, self.head_width))
        query_key = self.query_key(normed).unflatten(-1, (-1, self.head_width))
        query, key = rotate(self.query_key_norm(query_key), rotary).to(value.dtype).chunk(2, dim=-2)
        hidden = hidden + self.attention_out(attention(query, key, value).flatten(-2))
        gate, up = self.mlp_in(self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.mlp_out(F.gelu(gate) * up)

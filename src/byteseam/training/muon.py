"""Muon: momentum whose every matrix is orthogonalised before it is applied (Jordan 2024)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from byteseam.training.precision import processor_has_bf16

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic ``a x + b x^3 + c x^5``: five rounds take singular values in (0.01, 1] into about (0.68, 1.14)."""

ROUNDS = 5


def orthogonalised(matrices: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """About ``U V^T`` of each matrix ``U S V^T``, by Newton-Schulz iteration; zero for zero."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, at the size that AdamW's steps would have (``0.2 sqrt(max(R, C))``).

    `torch.optim.Muon` does the same in bf16, which takes seven times as long as the rest of a training step of
    ``configs/laptop.toml`` on a processor without units for it. Here it is fp32 there, and matrices of one shape go
    together.
    """

    def __init__(self, params: Iterable[dict[str, Any]], lr: float, weight_decay: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    # PyTorch's signature also has closures, which compute the loss anew; nothing here has one, and none is taken.
    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply the gradients; a parameter without one stays."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for shape, parameters in alike.items():
                directions = torch.stack([self.momentum(each, group["momentum"]) for each in parameters])
                fast = torch.bfloat16 if directions.is_cuda or processor_has_bf16() else torch.float32
                updates = orthogonalised(directions.to(fast)).to(directions.dtype)
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, updates.unbind(), alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)

    def momentum(self, parameter: Tensor, decay: float) -> Tensor:
        """The gradient blended into its moving average, and a step ahead of it (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(parameter.grad, 1 - decay)
        return parameter.grad.lerp(state["momentum_buffer"], decay)

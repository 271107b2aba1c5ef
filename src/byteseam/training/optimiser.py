"""AdamW or Muon in groups, their learning rates, and clipping of model and policy apart."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from byteseam.config import TrainingConfig
from byteseam.language_model import LanguageModel
from byteseam.training.muon import Muon


def model_parameters(model: LanguageModel) -> list[nn.Parameter]:
    """The U-Net's parameters, and those of the way from bytes to tokens and back."""
    return [*model.unet.parameters(), *model.pooling.parameters()]


def policy_parameters(model: LanguageModel) -> list[nn.Parameter]:
    """What the strategy learns; empty for a fixed rule."""
    return list(model.policy.parameters())


_GATHERED: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum_buffer",),
}


class Optimiser:
    """One or two optimisers that act as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parts; each has a ``peak`` learning rate."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        """Apply the gradients."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def kinds(self) -> dict[Tensor, tuple[str, ...]]:
        """The names of what each parameter gathers."""
        return {
            parameter: _GATHERED[type(part)]
            for part in self.parts
            for group in part.param_groups
            for parameter in group["params"]
        }

    def moments(self) -> dict[Tensor, dict[str, Tensor]]:
        """What each parameter has gathered; a parameter that never had a gradient has nothing."""
        return {parameter: dict(state) for part in self.parts for parameter, state in part.state.items()}

    def restore(self, moments: dict[Tensor, dict[str, Tensor]]) -> None:
        """Put back what `moments` gave."""
        for part in self.parts:
            own = [parameter for group in part.param_groups for parameter in group["params"]]
            part.state.update({parameter: moments[parameter] for parameter in own if parameter in moments})


def build_optimiser(model: LanguageModel, config: TrainingConfig) -> Optimiser:
    """AdamW, weight decay decoupled and on the U-Net's matrices only: not on embedding, gains, biases, policy.

    With ``optimiser = "muon"`` the matrices of the layers take Muon's orthogonalised steps instead (Jordan 2024), at
    the size that AdamW's would have.
    """
    layers: list[nn.Parameter] = []
    heads: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.unet.named_parameters():
        if parameter.dim() < 2 or name.startswith("embedding"):
            vectors.append(parameter)
        else:
            (heads if "head." in name else layers).append(parameter)
    vectors += model.pooling.parameters()
    muon = config.optimiser == "muon"
    matrices = heads if muon else heads + layers
    rate, decay = config.learning_rate, config.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": decay, "peak": rate},
        {"params": vectors, "weight_decay": 0.0, "peak": rate},
    ]
    if policy := policy_parameters(model):
        peak = config.policy_learning_rate or rate
        groups.append({"params": policy, "weight_decay": 0.0, "peak": peak, "eps": config.policy_epsilon})
    adam = torch.optim.AdamW(groups, lr=rate, betas=(config.beta1, config.beta2), fused=True)
    if not muon:
        return Optimiser(adam)
    group = {"params": layers, "peak": rate}
    return Optimiser(adam, Muon([group], lr=rate, weight_decay=decay))


def learning_rate_factor(bytes_seen: float, config: TrainingConfig) -> float:
    """Share of the peak learning rate: linear over the warm-up, then a cosine to zero at the end of the budget."""
    if bytes_seen < config.warmup_bytes:
        return bytes_seen / config.warmup_bytes
    span = config.total_bytes - config.warmup_bytes
    progress = min((bytes_seen - config.warmup_bytes) / span, 1.0) if span > 0 else 1.0
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rates(optimiser: Optimiser, factor: float) -> None:
    """Scale every group's peak."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak"] * factor


def clip(parameters: list[nn.Parameter], limit: float | None) -> Tensor:
    """Scale the gradients down to at most this norm; the norm before. ``None``: measured, not scaled."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.nn.utils.get_total_norm(gradients)
    if limit is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm

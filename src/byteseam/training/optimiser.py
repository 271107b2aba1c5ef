"""AdamW in three groups, its learning rates, and clipping of model and policy apart."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from byteseam.config import TrainingConfig
from byteseam.language_model import LanguageModel


def model_parameters(model: LanguageModel) -> list[nn.Parameter]:
    """The U-Net's parameters."""
    return list(model.unet.parameters())


def policy_parameters(model: LanguageModel) -> list[nn.Parameter]:
    """What the strategy learns; empty for a fixed rule."""
    return list(model.policy.parameters())


def build_optimiser(model: LanguageModel, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW, weight decay decoupled and on the U-Net's matrices only: not on embedding, gains, biases, policy."""
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.unet.named_parameters():
        matrix = parameter.dim() > 1 and not name.startswith("embedding")
        (matrices if matrix else vectors).append(parameter)
    policy_rate = config.policy_learning_rate or config.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay, "peak": config.learning_rate},
        {"params": vectors, "weight_decay": 0.0, "peak": config.learning_rate},
    ]
    if policy := policy_parameters(model):
        groups.append({"params": policy, "weight_decay": 0.0, "peak": policy_rate})
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)


def learning_rate_factor(bytes_seen: float, config: TrainingConfig) -> float:
    """Share of the peak learning rate: linear over the warm-up, then a cosine to zero at the end of the budget."""
    if bytes_seen < config.warmup_bytes:
        return bytes_seen / config.warmup_bytes
    span = config.total_bytes - config.warmup_bytes
    progress = min((bytes_seen - config.warmup_bytes) / span, 1.0) if span > 0 else 1.0
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
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

"""Floating-point operations a byte, counted part by part; nothing is run.

What is counted is matrix products, two operations a multiplication and addition, as they are executed: a position of
the byte-level layers meets ``block + window`` keys (its own block and the window before it; the whole row where the
window is as wide), a token meets all ``S``
tokens of its row (the causal half that a mask throws away is computed too), ``S = rate * length_bytes``. Not counted:
norms, activations, softmax, rotary positions, the optimiser; nor padding, that of token counts to a bucket or of a row
to whole blocks. The counts are therefore exact for long rows and slightly low for short ones. They hold for the blocked
attention of CPUs; FlexAttention's kernels cut the window into blocks of their own.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn

from byteseam.model.attention import window_keys
from byteseam.types import VOCABULARY

if TYPE_CHECKING:
    from byteseam.config import ModelConfig
    from byteseam.strategies import Strategy

PARTS = ("embedding", "encoder", "early_head", "policy", "token_model", "pooling", "decoder", "head")
"""The parts of a language model, in the order in which a byte meets them."""

_DECODING = ("token_model", "pooling", "decoder", "head")


def forward_flops(
    config: "ModelConfig", strategy: "Strategy", length_bytes: int, rate: float | None = None
) -> dict[str, int]:
    """FLOPs a byte of scoring rows of ``length_bytes`` in one pass: part -> FLOPs, rounded to whole ones.

    Args:
        rate: tokens a byte; ``None``: the strategy's target, also for rules whose rate is what the text makes of it.
    """
    return _whole(_forward(config, strategy, length_bytes, strategy.rate if rate is None else rate))


def training_flops(
    config: "ModelConfig",
    strategy: "Strategy",
    length_bytes: int,
    micro_batches: int = 1,
    rate: float | None = None,
) -> dict[str, int]:
    """FLOPs a byte of a training step: part -> FLOPs, rounded to whole ones.

    * One rollout of every row carries gradients; going backward costs twice as much as going forward.
    * ``rollouts - 1`` further ones of the share ``rollout_rows`` of the rows run forward only from the token model on;
      the policy's log-odds of each carry gradients.
    * A learned value runs on the rows that the policy learns from.
    * With more than one micro-batch a pass without gradients gathers the whole batch's statistics first: encoder,
      early head and policy, or everything where the baseline needs returns.

    A strategy whose settings move in training is counted as if its policy learned; give ``strategy.at(progress)`` for
    a certain moment.

    Args:
        micro_batches: into how many parts a step's rows are cut.
        rate: see `forward_flops`.
    """
    forward = _forward(config, strategy, length_bytes, strategy.rate if rate is None else rate)
    further = (strategy.rollouts - 1) * strategy.rollout_rows
    step = {part: 3.0 * flops for part, flops in forward.items()}
    step["policy"] += 3.0 * (
        further * forward["policy"] + strategy.rollout_rows * _value(_learned(strategy.network(config), strategy)[0])
    )
    for part in _DECODING:
        step[part] += further * forward[part]
    if micro_batches > 1:
        for part in PARTS:
            if part not in _DECODING:
                step[part] += forward[part]
            elif strategy.needs_returns:
                step[part] += (1.0 + further) * forward[part]
        if strategy.needs_returns:
            step["policy"] += further * forward["policy"]
    return _whole(step)


def token_model_share(by_part: dict[str, int]) -> float:
    """The token model's share of the whole, in [0, 1]; of FLOPs or of parameters."""
    return by_part["token_model"] / sum(by_part.values())


def _forward(given: "ModelConfig", strategy: "Strategy", length_bytes: int, rate: float) -> dict[str, float]:
    config = strategy.network(given)
    keys = float(window_keys(config.window, length_bytes))
    byte_block = _block(config.width, config.byte_mlp_width, keys)
    token_block = _block(config.width, config.token_mlp_width, keys=rate * length_bytes)
    head = 2.0 * config.width * VOCABULARY
    policy, pooling = _learned(config, strategy)
    return {
        "embedding": 0.0,
        "encoder": config.encoder_layers * byte_block,
        "early_head": head,
        "policy": _linear(policy) - _value(policy),
        "token_model": rate * config.token_layers * token_block,
        "pooling": _linear(pooling),
        "decoder": config.decoder_layers * byte_block,
        "head": head,
    }


def _block(width: int, mlp_width: int, keys: float) -> float:
    """FLOPs a position of one layer (`byteseam.model.layers.Block`) in which a query meets so many keys."""
    attention_maps = 4 * width * width  # query, key, value, out
    mlp_maps = 3 * width * mlp_width  # gate, up, out
    return 2.0 * (attention_maps + mlp_maps) + 4.0 * keys * width  # scores and their sum of values


def _learned(network: "ModelConfig", strategy: "Strategy") -> tuple[nn.Module, nn.Module]:
    """What the strategy learns, policy and pooling, without memory behind it."""
    with torch.device("meta"):
        return strategy.build(network.width), strategy.pooling(network.width)


def _value(policy: nn.Module) -> float:
    """FLOPs a byte of a learned value: the child of that name, which the loss alone consults."""
    value = getattr(policy, "value", None)
    return _linear(value) if isinstance(value, nn.Module) else 0.0


def _linear(module: nn.Module) -> float:
    """FLOPs a position of a module's linear maps."""
    maps = (child for child in module.modules() if isinstance(child, nn.Linear))
    return float(sum(2 * child.in_features * child.out_features for child in maps))


def _whole(flops: dict[str, float]) -> dict[str, int]:
    return {part: round(flops[part]) for part in PARTS}

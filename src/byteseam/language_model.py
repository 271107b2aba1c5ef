"""The whole model: the U-Net and what its strategy learns, with the one way from a batch to next-byte losses."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from byteseam.config import ModelConfig
from byteseam.model.unet import UNet, next_id_nll
from byteseam.strategies import Strategy
from byteseam.types import Batch, Decision, Encoded, Rollout


class LanguageModel(nn.Module):
    """A U-Net and the learned parts of a strategy. The strategy itself is passed in: its schedules move."""

    def __init__(self, config: ModelConfig, strategy: Strategy) -> None:
        super().__init__()
        network = strategy.network(config)
        self.unet = UNet(network)
        self.policy = strategy.build(network.width)
        self.pooling = strategy.pooling(network.width)

    def encode(self, batch: Batch) -> Encoded:
        """Encoder states and early-exit logits."""
        return self.unet.encode(batch)

    def decide(self, strategy: Strategy, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Boundaries, by the strategy."""
        return strategy.decide(self.policy, encoded, batch, uniforms)

    def early_nll(self, encoded: Encoded, batch: Batch) -> Float[Tensor, "B L"]:
        """Next-id loss of the early-exit head, nats."""
        return next_id_nll(encoded.early_logits, batch.targets, batch.mask)

    def logits(self, encoded: Encoded, decision: Decision, batch: Batch) -> Float[Tensor, "B L V"]:
        """Next-id logits given the boundaries."""
        return self.unet.decode(encoded.hidden, batch.document_ids, decision.boundary, decision.relaxed, self.pooling)

    def rollout(self, encoded: Encoded, decision: Decision, batch: Batch) -> Rollout:
        """A segmentation with what it cost."""
        return Rollout(decision, next_id_nll(self.logits(encoded, decision, batch), batch.targets, batch.mask))

    def forward(self, strategy: Strategy, batch: Batch, uniforms: Float[Tensor, "B L"]) -> tuple[Encoded, Rollout]:
        """Encode, decide, decode."""
        encoded = self.encode(batch)
        decision = self.decide(strategy, encoded, batch, uniforms)
        return encoded, self.rollout(encoded, decision, batch)


def further_rollouts(
    model: LanguageModel, strategy: Strategy, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "K B L"]
) -> Rollout:
    """K more segmentations of a batch, forward only but for the policy's log-odds; tensors [K, B, L].

    The encoder does not run again; token model and decoder see all K * B rows at once.
    """
    count, rows, _ = uniforms.shape

    def repeat(tensor: Tensor) -> Tensor:
        return tensor.repeat(count, *[1] * (tensor.dim() - 1))

    def apart(tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (count, rows))

    many = Batch(repeat(batch.byte_ids), repeat(batch.targets), repeat(batch.mask), repeat(batch.document_ids))
    copies = Encoded(repeat(encoded.hidden), repeat(encoded.early_logits))
    decision = model.decide(strategy, copies, many, uniforms.flatten(0, 1))
    with torch.no_grad():
        nll = model.rollout(copies, decision, many).nll
    return Rollout(Decision(apart(decision.boundary), apart(decision.free), apart(decision.logits)), apart(nll))

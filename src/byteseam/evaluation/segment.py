"""Cut any bytes into tokens: from (model, bytes) to the plain record that every view is made from."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from byteseam.evaluation.decide import Decider
from byteseam.evaluation.evaluate import NotFiniteError
from byteseam.inspect import Record
from byteseam.language_model import LanguageModel
from byteseam.strategies import Strategy
from byteseam.training.precision import Precision
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Encoded


def text_batch(data: bytes, device: torch.device) -> Batch:
    """One row for a text of n bytes: n + 1 positions, the last of which has no target that counts."""
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8).long() if data else torch.zeros(0, dtype=torch.long)
    mark = torch.tensor([DOCUMENT_MARK])
    byte_ids, targets = torch.cat((mark, values))[None], torch.cat((values, mark))[None]
    mask = torch.ones_like(byte_ids, dtype=torch.bool)
    mask[:, -1] = False
    return Batch(byte_ids.to(device), targets.to(device), mask.to(device), torch.zeros_like(byte_ids).to(device))


@torch.no_grad()
def boundaries_by_rule(
    strategy: Strategy, policy: nn.Module, data: bytes, numbers: Float[Tensor, "1 L"] | None = None
) -> Bool[Tensor, "1 L"]:
    """What a strategy that needs no encoder decides on a whole text: its place in the text counts, not in a window.

    Args:
        policy: what the strategy learned (`Strategy.build`).
        numbers: see `Strategy.decide`; zeros unless given.
    """
    if numbers is None:
        numbers = torch.zeros(1, len(data) + 1)
    batch = text_batch(data, numbers.device)
    nothing = numbers.new_zeros(*numbers.shape, 1)
    return strategy.decide(policy, Encoded(nothing, nothing), batch, numbers).boundary


def in_window(decision: Decision, boundary: Bool[Tensor, "1 N"], start: int) -> Decision:
    """The decision with the boundaries of the whole text; a window's first position is always one."""
    part = boundary[:, start : start + decision.boundary.shape[1]].clone()
    part[:, :1] = True
    return replace(decision, boundary=part)


@torch.no_grad()
def segment(
    model: LanguageModel,
    strategy: Strategy,
    data: bytes,
    *,
    name: str,
    length_bytes: int,
    decider: Decider,
    precision: Precision,
) -> Record:
    """Boundaries, probabilities and costs of every byte, in bounded memory.

    A text longer than the model was trained on is read through a sliding window of `length_bytes` that moves by half
    of it: every byte is decided and scored exactly once, with at least half a window of context behind it.

    Raises:
        NotFiniteError: if the loss of a byte is not finite.
    """
    size = len(data)
    boundary, probability = np.zeros(size, np.bool_), np.zeros(size)
    nll, early = np.zeros(size), np.zeros(size)
    numbers = decider.uniforms(strategy, 1, size + 1, 0, precision.device)
    rule = boundaries_by_rule(strategy, model.policy, data, numbers) if strategy.by_rule else None
    window = max(length_bytes - 1, 2)
    model.eval()
    start = first = 0
    while first < size:
        end = min(start + window, size)
        batch = text_batch(data[start:end], precision.device)
        with precision.autocast():
            # Position 0 is the mark; position i + 1 is byte i, and decides whether a token ends there.
            encoded = model.encode(batch)
            decision = model.decide(strategy, encoded, batch, numbers[:, start : end + 1])
            if rule is not None:
                decision = in_window(decision, rule, start)
            rollout = model.rollout(encoded, decision, batch)
            early_nll = model.early_nll(encoded, batch)
        fresh, target = slice(first - start, end - start), slice(first, end)
        boundary[target] = decision.boundary[0, 1:].cpu().numpy()[fresh]
        probability[target] = torch.sigmoid(decision.logits[0, 1:].float()).cpu().numpy()[fresh]
        nll[target] = rollout.nll[0, :-1].cpu().numpy()[fresh]
        early[target] = early_nll[0, :-1].cpu().numpy()[fresh]
        # Decided once: the next window draws these again below any probability, or never.
        numbers[:, first + 1 : end + 1] = 1.0 - decision.boundary[:, 1:][:, fresh].float()
        first = end
        start = end - window // 2
    model.train()
    if not np.isfinite((nll, early, probability)).all():
        raise NotFiniteError(f"the loss on '{name}' is not finite: the model went astray in training")
    mode = decider.mode if strategy.learned else type(strategy).name
    return Record(name, data, boundary, probability if strategy.learned else None, nll, early, decide=mode)

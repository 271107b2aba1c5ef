"""Continuation by the plain full forward: every byte runs the whole context again. Right, not fast."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from byteseam.evaluation.decide import Decider
from byteseam.evaluation.evaluate import NotFiniteError
from byteseam.evaluation.segment import boundaries_by_rule, in_window, text_batch
from byteseam.generation.sampling import next_id_probabilities
from byteseam.language_model import LanguageModel
from byteseam.strategies import Strategy
from byteseam.training.precision import Precision
from byteseam.types import DOCUMENT_MARK


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next byte is drawn."""

    temperature: float = 1.0
    """0 takes the likeliest byte."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


@torch.no_grad()
def generate(
    model: LanguageModel,
    strategy: Strategy,
    prompt: bytes,
    *,
    max_bytes: int,
    length_bytes: int,
    decider: Decider,
    sampling: Sampling,
    precision: Precision,
) -> Iterator[tuple[int, bool]]:
    """Yields (byte, whether a token ends after it), at most `max_bytes` times, until the model ends the document.

    The context is the newest ``length_bytes - 1`` bytes. A byte's boundary is decided once it is read, with a random
    number of its own, and then stays, also when the context that it was decided in is gone.

    Raises:
        NotFiniteError: if the model gives no probabilities.
    """
    data = bytearray(prompt)
    numbers = decider.uniforms(strategy, 1, len(prompt) + max_bytes + 1, 0, precision.device)
    generator = torch.Generator().manual_seed(sampling.seed % 2**63)
    pending: int | None = None
    for count in range(max_bytes + 1):
        start = max(0, len(data) - (length_bytes - 1))
        batch = text_batch(bytes(data[start:]), precision.device)
        with precision.autocast():
            encoded = model.encode(batch)
            decision = model.decide(strategy, encoded, batch, numbers[:, start : len(data) + 1])
            if strategy.by_rule:
                rule = boundaries_by_rule(strategy, model.policy, bytes(data), numbers[:, : len(data) + 1])
                decision = in_window(decision, rule, start)
            logits = model.logits(encoded, decision, batch)[0, -1].cpu()
        if not strategy.by_rule:
            # Decided: from now on drawn again below any probability, or never.
            numbers[:, start + 1 : len(data) + 1] = 1.0 - decision.boundary[:, 1:].float()
        if not bool(logits.isfinite().all()):
            raise NotFiniteError("the next byte has no probabilities: the model went astray in training")
        if pending is not None:
            yield pending, bool(decision.boundary[0, -1])
        if count == max_bytes:
            return
        probabilities = next_id_probabilities(logits, sampling.temperature, sampling.top_k, sampling.top_p)
        chosen = int(torch.multinomial(probabilities, 1, generator=generator))
        if chosen == DOCUMENT_MARK:
            return
        pending = chosen
        data.append(chosen)

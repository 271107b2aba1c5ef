"""What a finished run is worth, as plain numbers: the same for every strategy."""

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byteseam.comparison.plan import Entry, Plan
from byteseam.comparison.probes import noisy
from byteseam.data.archives import fetch
from byteseam.data.corpus import Corpus
from byteseam.data.recipes import RECIPES, gold_words
from byteseam.evaluation.agreement import Match, match
from byteseam.evaluation.decide import Decider
from byteseam.evaluation.segment import segment
from byteseam.inspect import Record
from byteseam.model.flops import forward_flops, training_flops
from byteseam.trained import Trained
from byteseam.training.loop import evaluate_corpus
from byteseam.training.run import open_run, read_jsonl

AGREEMENT_BYTES = 60_000
"""Held-out text, whole documents from the first on, on which strategies' boundaries are compared with each other's."""

GOLD_CORPUS = "chinese-gold"
"""The named corpus whose words are known."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run's numbers. ``None`` where there is nothing to say."""

    label: str
    seed: int
    strategy: str
    settings: dict[str, Any]
    """The strategy's, as they were in the run."""
    bits_per_byte: float
    early_bits_per_byte: float
    document_bits: list[float]
    """Held-out documents in order."""
    document_bytes: list[int]
    rate: float
    target_rate: float
    """Of the comparison; not every strategy can be held to it."""
    steered: bool
    """Whether the strategy steers to a rate at all."""
    whole_bytes: bool
    """Whether every byte is a token of its own by definition: then there is no rate to compare."""
    training_flops_per_byte: float
    """At the realised rate."""
    inference_flops_per_byte: float
    parameters: int
    bytes_trained: int
    seconds: float
    agreement: dict[str, float | None]
    boundaries: str
    """Of the agreement text: packed bits, base64."""
    gold: dict[str, float] | None
    """Precision, recall and F1 against known words, where the corpus has them, and F1 one byte later."""
    matched: dict[str, Any] | None
    """With ``--match-rate``: threshold, rate, bits per byte and those of the documents."""
    probes: dict[str, float | None]
    curve: list[dict[str, float]]
    """Lines of metrics.jsonl: step, bytes_seen, seconds, bits_per_byte, rate; ``held_out`` is 1 for evaluations."""
    passage: dict[str, Any]
    """The run's held-out passage as it is cut now (`byteseam.inspect.Record.to_json`)."""

    @property
    def bytes_per_second(self) -> float:
        """Trained bytes over wall time, evaluations included."""
        return self.bytes_trained / self.seconds if self.seconds else math.nan

    def boundary(self, size: int) -> NDArray[np.bool_]:
        """The boundaries of the agreement text."""
        return np.unpackbits(np.frombuffer(base64.b64decode(self.boundaries), np.uint8))[:size].astype(np.bool_)

    def to_json(self) -> str:
        """For a file."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> "RunResult":
        """From a file."""
        return RunResult(**json.loads(text))


def measure(directory: Path, entry: Entry, seed: int, plan: Plan, known: RunResult | None = None) -> RunResult:
    """Everything about a finished run; of probes only those that `known` lacks.

    Raises:
        UserError: if the run has no checkpoint, or its data cannot be had.
    """
    trained = Trained.open(directory)
    corpus = trained.corpus()
    if known is not None:
        return replace(known, probes=known.probes | probe_all(trained, corpus, plan, known.probes))
    evaluation = evaluate_corpus(
        trained.model, trained.config, trained.strategy, corpus, trained.precision, plan.max_bytes
    )
    training, strategy, decider = trained.config.training, trained.strategy, own_decider(trained)
    parts = training.batch_rows // (training.micro_batch_rows or training.batch_rows)
    flops = [
        sum(counted.values())
        for counted in (
            training_flops(
                trained.config.model, trained.config.strategy, training.length_bytes, parts, evaluation.rate
            ),
            forward_flops(trained.config.model, strategy, training.length_bytes, evaluation.rate),
        )
    ]
    boundary = np.concatenate([cut(trained, text, decider).boundary for text in agreement_texts(corpus)])
    return RunResult(
        label=entry.label,
        seed=seed,
        strategy=type(strategy).name,
        settings=asdict(strategy),
        bits_per_byte=evaluation.bits_per_byte,
        early_bits_per_byte=evaluation.early_bits_per_byte,
        document_bits=evaluation.document_bits,
        document_bytes=evaluation.document_bytes,
        rate=evaluation.rate,
        target_rate=1 / plan.base().strategy.bytes_per_token,
        steered=strategy.steered,
        whole_bytes=strategy.whole_bytes,
        training_flops_per_byte=flops[0],
        inference_flops_per_byte=flops[1],
        parameters=sum(each.numel() for each in trained.model.parameters()),
        bytes_trained=trained.state.bytes_seen,
        seconds=trained.state.seconds,
        agreement=finite(evaluation.agreement.values()),
        boundaries=base64.b64encode(np.packbits(boundary).tobytes()).decode(),
        gold=gold_agreement(trained, corpus, decider) if trained.config.data.source == GOLD_CORPUS else None,
        matched=matched(trained, corpus, plan) if plan.match_rate and strategy.learned else None,
        probes=probe_all(trained, corpus, plan, {}),
        curve=curve(directory),
        passage=json.loads(
            cut(trained, open_run(directory).passage_path.read_bytes(), decider, "held-out passage").to_json()
        ),
    )


def own_decider(trained: Trained) -> Decider:
    """The run's own way to decide. Made once: to bring a rate about takes many passes over held-out text."""
    return trained.decider(trained.config.evaluation.decide, None, None, trained.config.seed)


def cut(trained: Trained, text: bytes, decider: Decider, name: str = "") -> Record:
    """A text as the run decides it."""
    return segment(
        trained.model,
        trained.strategy,
        text,
        name=name,
        length_bytes=trained.config.training.length_bytes,
        decider=decider,
        precision=trained.precision,
    )


def agreement_texts(corpus: Corpus, most: int = AGREEMENT_BYTES) -> Iterator[bytes]:
    """The first documents, as many as fit, the last cut to fit; for the same corpus the same."""
    for number in range(len(corpus)):
        if most <= 0:
            return
        text = corpus.document(number)[:most].tobytes()
        most -= len(text)
        yield text


def matched(trained: Trained, corpus: Corpus, plan: Plan) -> dict[str, Any]:
    """The evaluation with the threshold that gives the comparison's rate on held-out text."""
    wanted = plan.base().strategy.bytes_per_token
    decider = trained.decider("rate", None, wanted, trained.config.seed)
    found = evaluate_corpus(
        trained.model, trained.config, trained.strategy, corpus, trained.precision, plan.max_bytes, decider
    )
    return {
        "threshold": decider.threshold,
        "rate": found.rate,
        "bits_per_byte": found.bits_per_byte,
        "document_bits": found.document_bits,
    }


def probe_all(trained: Trained, corpus: Corpus, plan: Plan, known: dict[str, float | None]) -> dict[str, float | None]:
    """Bits per byte of the comparison's probes, but for those known; bits are over the bytes of the probe's text."""
    found = {probe: probe_one(trained, corpus, probe, plan.max_bytes) for probe in plan.probes if probe not in known}
    return finite(found)  # a probe that leaves no text has none


def probe_one(trained: Trained, corpus: Corpus, probe: str, max_bytes: float | None) -> float:
    """Bits per byte of one probe."""
    if probe.startswith("text="):
        text = trained.corpus(probe.removeprefix("text="))
    else:
        most = corpus.total_bytes if max_bytes is None else int(max_bytes)
        texts = [noisy(text, probe, number) for number, text in enumerate(agreement_texts(corpus, most))]
        text = Corpus.of([each for each in texts if each])
    found = evaluate_corpus(
        trained.model, trained.config, trained.strategy, text, trained.precision, max_bytes, own_decider(trained)
    )
    return found.bits_per_byte


def gold_agreement(trained: Trained, corpus: Corpus, decider: Decider, most: int = AGREEMENT_BYTES) -> dict[str, float]:
    """Boundaries against the ends of known words, over held-out text.

    ``later_f1`` is against the first byte of the next word: there a strategy cuts that has to see that a word began.
    """
    archive = RECIPES[GOLD_CORPUS].archive
    assert archive is not None
    ends = {gold.text: gold.word_ends for gold in gold_words(fetch(archive))}
    total, later = Match(0, 0, 0), Match(0, 0, 0)
    for text in agreement_texts(corpus, most):
        # The last text may be cut; its words are then those of the whole that ends later.
        whole = text if text in ends else next(known for known in ends if known.startswith(text))
        gold = np.zeros(len(text), np.bool_)
        gold[np.array([end - 1 for end in ends[whole] if end <= len(text)], np.int64)] = True
        boundary = cut(trained, text, decider).boundary
        total += match(boundary, gold)
        later += match(boundary, np.concatenate([[False], gold[:-1]]))
    return {
        "precision": total.precision.value,
        "recall": total.recall.value,
        "f1": total.f1.value,
        "later_f1": later.f1.value,
    }


def curve(directory: Path) -> list[dict[str, float]]:
    """The run's metrics over time, what the curves need of them."""
    keys = ("step", "bytes_seen", "seconds", "bits_per_byte", "rate")
    return [
        {key: line[key] for key in keys if line.get(key) is not None}
        | {"held_out": float(line["kind"] == "evaluation")}
        for line in read_jsonl(open_run(directory).metrics_path)
        if line.get("kind") in ("train", "evaluation")
    ]


def finite(values: dict[str, float]) -> dict[str, float | None]:
    """Without numbers that JSON cannot hold."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}

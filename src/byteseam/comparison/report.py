"""From the results of all runs to one table: plain JSON, from which every view is made."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byteseam.comparison.measure import RunResult
from byteseam.comparison.plan import Plan
from byteseam.evaluation.agreement import match
from byteseam.evaluation.confidence import paired_difference_interval

RATE_TOLERANCE = 0.05
"""A realised rate further than this share from the comparison's is flagged: its row does not compare as if equal."""

Failures = Mapping[tuple[str, int], str]


def build_report(
    plan: Plan, results: Sequence[RunResult], failures: Failures, bpe: NDArray[np.bool_] | None
) -> dict[str, Any]:
    """The whole comparison as JSON.

    Args:
        bpe: boundaries of a BPE on the agreement text; None where none could be had.
    """
    found: dict[str, dict[int, RunResult]] = {entry.label: {} for entry in plan.entries}
    for result in results:
        found[result.label][result.seed] = result
    config = plan.base()
    rate = 1 / config.strategy.bytes_per_token
    rows = [row(runs, found[plan.reference], rate, bpe) for runs in found.values()]
    reference = rows[[entry.label for entry in plan.entries].index(plan.reference)]
    for cells in rows:
        # A difference is one between two: the reference's rate counts as much as the row's own.
        cells["difference_comparable"] = bool(cells["comparable"] and reference["comparable"])
    return {
        "source": config.data.source,
        "bytes_per_token": config.strategy.bytes_per_token,
        "budget": asdict(plan.budget),
        "reference": plan.reference,
        "seeds": list(plan.seeds),
        "probes": list(plan.probes),
        "entries": [
            {"label": entry.label, "settings": list(entry.overrides), **cells}
            for entry, cells in zip(plan.entries, rows, strict=True)
        ],
        "pairwise_f1": pairwise(found),
        "failures": [{"label": label, "seed": seed, "reason": reason} for (label, seed), reason in failures.items()],
        "curves": [
            {
                "label": result.label,
                "seed": result.seed,
                "flops_per_byte": result.training_flops_per_byte,
                "points": thinned(result.curve),
            }
            for result in results
        ],
        "passages": [
            {"label": runs[min(runs)].label, "record": runs[min(runs)].passage} for runs in found.values() if runs
        ],
    }


def row(
    runs: dict[int, RunResult], reference: dict[int, RunResult], rate: float, bpe: NDArray[np.bool_] | None
) -> dict[str, Any]:
    """The cells of one entry; empty but for the seeds where nothing has finished."""
    cells: dict[str, Any] = {"seeds": sorted(runs), "comparable": None}
    if not runs:
        return cells
    each = [runs[seed] for seed in sorted(runs)]

    def mean(number: Callable[[RunResult], float | None]) -> float | None:
        numbers = [value for result in each if (value := number(result)) is not None]
        return fmean(numbers) if numbers else None

    bits = [result.bits_per_byte for result in each]
    realised = fmean(result.rate for result in each)
    first = each[0]
    comparable = not first.whole_bytes and all(abs(result.rate - rate) <= RATE_TOLERANCE * rate for result in each)
    return cells | {
        "strategy": first.strategy,
        "bits_per_byte": fmean(bits),
        "bits_per_byte_by_seed": bits,
        "spread": max(bits) - min(bits),
        "standard_deviation": stdev(bits) if len(bits) > 1 else None,
        "early_bits_per_byte": mean(lambda result: result.early_bits_per_byte),
        "difference": difference(runs, reference),
        "rate": realised,
        "bytes_per_token": 1 / realised if realised else None,
        "comparable": comparable,
        "rate_note": rate_note(first, realised, rate, comparable),
        "training_flops_per_byte": mean(lambda result: result.training_flops_per_byte),
        "inference_flops_per_byte": mean(lambda result: result.inference_flops_per_byte),
        "training_flops": mean(lambda result: result.training_flops_per_byte * result.bytes_trained),
        "parameters": first.parameters,
        "bytes_trained": mean(lambda result: float(result.bytes_trained)),
        "seconds": mean(lambda result: result.seconds),
        "bytes_per_second": mean(lambda result: result.bytes_per_second),
        "agreement": {name: mean(of_agreement(name)) for name in first.agreement},
        "bpe_f1": None if bpe is None else mean(lambda result: f1(result.boundary(len(bpe)), bpe)),
        "gold_f1": mean(lambda result: None if result.gold is None else result.gold["f1"]),
        "gold_later_f1": mean(lambda result: None if result.gold is None else result.gold["later_f1"]),
        "probes": {name: mean(of_probe(name)) for name in first.probes},
        "matched": matched(runs, reference, rate),
    }


def of_agreement(name: str) -> Callable[[RunResult], float | None]:
    """The share of that name (`byteseam.evaluation.agreement.Agreement`)."""
    return lambda result: result.agreement[name]


def of_probe(name: str) -> Callable[[RunResult], float | None]:
    """The bits per byte of that probe."""
    return lambda result: result.probes.get(name)


def rate_note(result: RunResult, realised: float, rate: float, comparable: bool) -> str | None:
    """Why a row does not compare as if its rate were the comparison's; None if it does."""
    if result.whole_bytes:
        return "one token a byte"
    if comparable:
        return None
    off = f"rate {realised:.3f} instead of {rate:.3f}"
    return off if result.steered else f"{off}, which is the rule's own"


def difference(
    runs: dict[int, RunResult], reference: dict[int, RunResult], bits: Callable[[RunResult], list[float]] | None = None
) -> dict[str, Any] | None:
    """Bits per byte less the reference's, over the seeds that both have; None without any.

    The interval is a paired bootstrap over documents, each document's bits averaged over these seeds.
    """
    common = sorted(set(runs) & set(reference))
    if not common:
        return None

    def own(result: RunResult) -> list[float]:
        return result.document_bits

    bits = bits or own
    sizes = np.array(reference[common[0]].document_bytes, np.float64)
    ours = np.array([bits(runs[seed]) for seed in common])
    theirs = np.array([(own if reference[seed].matched is None else bits)(reference[seed]) for seed in common])
    by_seed = ((ours - theirs).sum(1) / sizes.sum()).tolist()
    interval = paired_difference_interval(ours.mean(0), sizes, theirs.mean(0), sizes, seed=0)
    return {
        "mean": fmean(by_seed),
        "by_seed": by_seed,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def matched(runs: dict[int, RunResult], reference: dict[int, RunResult], rate: float) -> dict[str, Any] | None:
    """What the thresholds that match the rate make of it; None where the entry has none."""
    having = {seed: result for seed, result in runs.items() if result.matched is not None}
    if not having:
        return None

    def of(name: str) -> float:
        return fmean(result.matched[name] for result in having.values() if result.matched is not None)

    def bits(result: RunResult) -> list[float]:
        assert result.matched is not None
        found: list[float] = result.matched["document_bits"]
        return found

    rates = [result.matched["rate"] for result in having.values() if result.matched is not None]
    return {
        "bits_per_byte": of("bits_per_byte"),
        "rate": of("rate"),
        "comparable": all(abs(each - rate) <= RATE_TOLERANCE * rate for each in rates),
        "difference": difference(having, reference, bits),
    }


def pairwise(found: Mapping[str, dict[int, RunResult]]) -> list[list[float | None]]:
    """F1 of every two entries' boundaries, the mean over the seeds that both have; rows and columns as the entries."""

    def between(ours: dict[int, RunResult], theirs: dict[int, RunResult]) -> float | None:
        common = sorted(set(ours) & set(theirs))
        return fmean(f1_of(ours[seed], theirs[seed]) for seed in common) if common else None

    return [[between(ours, theirs) for theirs in found.values()] for ours in found.values()]


def f1_of(ours: RunResult, theirs: RunResult) -> float:
    """F1 of two runs' boundaries; packed bits beyond the text are zero on both sides."""
    size = 8 * len(base64.b64decode(ours.boundaries))
    return f1(ours.boundary(size), theirs.boundary(size))


def f1(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
    """F1; 1 where neither has a boundary."""
    value = match(ours, theirs).f1.value
    return 1.0 if math.isnan(value) else value


def thinned(points: list[dict[str, float]], most: int = 120) -> list[dict[str, float]]:
    """All evaluations, and training lines averaged in groups, so that a page stays small."""
    held_out = [point for point in points if point["held_out"]]
    training = [point for point in points if not point["held_out"] and "bits_per_byte" in point]
    size = max(1, -(-len(training) // most))
    groups = [training[first : first + size] for first in range(0, len(training), size)]
    keys = ("step", "bytes_seen", "seconds", "bits_per_byte", "rate", "held_out")
    return held_out + [
        {key: fmean(point[key] for point in group if key in point) for key in keys if key in group[0]}
        for group in groups
    ]


def to_json(report: dict[str, Any]) -> str:
    """For a file; NaN, which JSON lacks, does not occur."""
    return json.dumps(report, ensure_ascii=False, allow_nan=False, indent=1) + "\n"

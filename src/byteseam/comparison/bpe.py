"""Boundaries of a byte-pair encoding on the text where strategies are compared, whether or not one takes part."""

import json
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from byteseam.comparison.layout import Layout
from byteseam.comparison.measure import agreement_texts
from byteseam.comparison.plan import Plan
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.errors import UserError
from byteseam.evaluation.segment import boundaries_by_rule
from byteseam.strategies import Bpe
from byteseam.training.run import write_atomically
from byteseam.training.start import documents_for_fitting


def reference_boundaries(layout: Layout, plan: Plan) -> NDArray[np.bool_] | None:
    """[n] over the agreement text; trained once on the training text and kept.

    Merges stay within words where the rate can be had so, else within lines. None where it cannot be had at all, or
    the `tokenizers` library is missing.
    """
    path = layout.directory / "bpe.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        return None if known is None else boundaries_from(known["positions"], known["bytes"])
    directory = resolve(plan.base().data)
    documents = documents_for_fitting(Corpus.open(directory, "train"), Bpe.fit_bytes)
    texts = list(agreement_texts(Corpus.open(directory, "validation")))
    found = None
    for within in ("words", "lines"):
        strategy = Bpe(bytes_per_token=plan.base().strategy.bytes_per_token, within=within)
        policy = strategy.build(1)
        try:
            strategy.fit(policy, documents)
        except UserError:
            continue
        found = np.concatenate([boundaries_by_rule(strategy, policy, text)[0, 1:].numpy() for text in texts])
        break
    answer = None if found is None else {"positions": np.flatnonzero(found).tolist(), "bytes": len(found)}
    if find_spec("tokenizers"):  # else it may be installed later
        write_atomically(path, json.dumps(answer) + "\n")
    return found


def boundaries_from(positions: list[int], size: int) -> NDArray[np.bool_]:
    """[size], True at the positions."""
    out = np.zeros(size, np.bool_)
    out[np.array(positions, np.int64)] = True
    return out

"""Batches as a pure function of (corpus, seed, step, rank): resuming needs no loader state and is exact.

The targets of a corpus are every document's bytes followed by the document mark, documents in order: a stream. Layouts:

``packed``
    The stream is cut into rows of L. Every epoch cuts it elsewhere (an offset, drawn from 0..rows * L - total, is
    padding before the stream; the rest, after it) and reads the rows in another order. Every target occurs once an
    epoch.
``prefix``
    One row a document: its first L targets, padded. Every document occurs once an epoch, in another order each time.

A position reads the target before it; the first of a row, and of a document, reads the mark. On padding, byte id and
target are the mark, the mask is False, and the document id is one of its own. A worked row is in `byteseam.types`.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from byteseam.data.corpus import Corpus
from byteseam.data.permutation import mix, permute
from byteseam.errors import UserError
from byteseam.types import DOCUMENT_MARK, Batch

_Ints = NDArray[np.int64]
_ORDER, _OFFSET = 1, 2  # what a random number is for


class Batches:
    """The batches of a run over one corpus."""

    def __init__(
        self, corpus: Corpus, *, length_bytes: int, layout: Literal["packed", "prefix"] = "packed", seed: int = 0
    ) -> None:
        """Rows of ``length_bytes`` positions.

        Raises:
            UserError: the corpus, packed, does not fill one row.
        """
        if layout == "packed" and corpus.total_targets < length_bytes:
            raise UserError(
                f"the {corpus.split} split of '{corpus.directory}' has {corpus.total_bytes} bytes, less than one row "
                f"of {length_bytes}: lower training.length_bytes or give more text"
            )
        self.corpus = corpus
        self.length_bytes = length_bytes
        self.layout = layout
        self.seed = seed
        packed = layout == "packed"
        starts = corpus.target_starts if packed else np.arange(len(corpus) + 1) * length_bytes
        self._stream = _Stream(corpus, starts)
        self.items: int = corpus.total_targets // length_bytes + 1 if packed else len(corpus)
        """Rows of an epoch."""

    def epoch(self, step: int, batch_rows: int) -> float:
        """How many times the corpus has been read before a step."""
        return step * batch_rows / self.items

    def batch(self, step: int, batch_rows: int, rank: int = 0, ranks: int = 1) -> Batch:
        """The rows of a step that are ``rank``'s; all ranks' rows in turn are the whole batch, whatever ``ranks``.

        Raises:
            UserError: ``batch_rows`` does not divide by ``ranks``.
        """
        if batch_rows % ranks:
            raise UserError(f"training.batch_rows is {batch_rows}, which does not divide by the {ranks} processes")
        rows = batch_rows // ranks
        # In Python's integers first: a run may be longer than int64 has room for products.
        epoch, first = divmod(step * batch_rows + rank * rows, self.items)
        starts = []
        while rows:
            here = min(rows, self.items - first)
            starts.append(self._row_starts(np.arange(first, first + here), epoch))
            rows, first, epoch = rows - here, 0, epoch + 1
        return self._stream.rows(np.concatenate(starts), self.length_bytes)[0]

    def _row_starts(self, items: _Ints, epoch: int) -> _Ints:
        """Where the rows start in the stream."""
        order = permute(items, self.items, mix(self.seed, epoch, _ORDER))
        if self.layout == "prefix":
            return order * self.length_bytes
        slack = self.items * self.length_bytes - self.corpus.total_targets
        return order * self.length_bytes - mix(self.seed, epoch, _OFFSET) % (slack + 1)


def evaluation_batches(
    corpus: Corpus, length_bytes: int, batch_rows: int, max_bytes: float | None = None
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """The corpus in order, packed without an offset, every target once.

    Every batch has ``batch_rows`` rows; the last is filled up with padding. With each comes, int64 [B, L], the number
    of the document in the corpus of every target, -1 on padding, for sums by document. If the corpus has more than
    ``max_bytes`` bytes, whole documents are taken, spread evenly over it and always the same; the last of them is cut
    to fit and then has no mark.
    """
    stream = _whole(corpus) if max_bytes is None or corpus.total_bytes <= max_bytes else _spread(corpus, int(max_bytes))
    rows = -(-stream.total // length_bytes)
    for first in range(0, rows, batch_rows):
        batch, document = stream.rows(np.arange(first, first + batch_rows) * length_bytes, length_bytes)
        yield batch, torch.where(batch.mask, torch.from_numpy(document), -1)


def _whole(corpus: Corpus) -> "_Stream":
    return _Stream(corpus, corpus.target_starts)


def _spread(corpus: Corpus, max_bytes: int) -> "_Stream":
    """Documents spread over the corpus, ``max_bytes`` in all, in the corpus' order."""
    limit, documents = max(max_bytes, 1), len(corpus)
    # Steps of the golden ratio around the corpus: however many are taken, they lie apart.
    stride = round(documents * 0.6180339887) or 1
    while math.gcd(stride, documents) > 1:
        stride += 1
    order = np.arange(documents) * stride % documents
    sizes = np.diff(corpus.byte_starts)[order]
    before = np.cumsum(sizes) - sizes
    chosen = before < limit
    # All are whole, with a mark, but the last where it does not fit.
    targets = np.minimum(sizes + 1, limit - before)[chosen]
    rising = np.argsort(order[chosen])
    return _Stream(corpus, np.concatenate([[0], np.cumsum(targets[rising])]), order[chosen][rising])


class _Stream:
    """Parts of documents one after another.

    Part k is targets of document ``documents[k]`` (``None``: of document k), from its first on, as many as there are
    and fit between ``starts[k]`` and ``starts[k + 1]``; what is left there is padding, as is all outside the stream.
    """

    def __init__(self, corpus: Corpus, starts: _Ints, documents: _Ints | None = None) -> None:
        self.corpus, self.starts, self.documents = corpus, starts, documents
        self.total = int(starts[-1])

    def rows(self, first: _Ints, length: int) -> tuple[Batch, _Ints]:
        """Rows of ``length`` positions from ``first`` [R] on, and every position's document in the corpus [R, L]."""
        rows, corpus = len(first), self.corpus
        # The parts that the rows meet, k_first to k_last of each, in one list.
        inside = np.clip(first, 0, self.total - 1)
        k_first = np.searchsorted(self.starts, inside, "right") - 1
        k_last = np.searchsorted(self.starts, np.minimum(first + length, self.total), "left") - 1
        counts = np.maximum(k_last - k_first, 0) + 1
        listed = np.cumsum(counts) - counts  # where a row's parts begin in the list
        row = np.repeat(np.arange(rows), counts)
        part = np.arange(len(row)) + (k_first - listed)[row]
        document = part if self.documents is None else self.documents[part]
        byte_start = corpus.byte_starts[document]
        start = self.starts[part]
        mark = start + corpus.byte_starts[document + 1] - byte_start
        stop = np.minimum(mark + 1, self.starts[part + 1])

        # From the list to flat positions: a row's first part is there from column 0, a later one from its start.
        to_flat = row * length - first[row]
        begins = start + to_flat
        begins[listed] = np.arange(rows) * length
        here = np.repeat(np.arange(len(row)), np.diff(begins, append=rows * length)).reshape(rows, length)
        position = first[:, None] + np.arange(length)
        bytes_at = position + (byte_start - start)[here]
        # At a mark and on padding this is another byte, or none; it is overwritten below.
        targets = corpus.take(np.clip(bytes_at, 0, corpus.total_bytes - 1)).astype(np.int64)
        marks = (mark + to_flat)[(mark >= first[row]) & (mark < np.minimum(stop, first[row] + length))]
        targets.reshape(-1)[marks] = DOCUMENT_MARK
        document_ids = here - listed[:, None]

        mask = np.ones(targets.shape, np.bool_)
        if first.min() < 0 or (stop + to_flat < np.append(begins[1:], rows * length)).any():
            before, after = position < 0, position >= stop[here]
            mask = ~(before | after)
            targets[~mask] = DOCUMENT_MARK
            document_ids = document_ids + after - before
            document_ids -= document_ids[:, :1].copy()
        byte_ids = np.full_like(targets, DOCUMENT_MARK)
        byte_ids[:, 1:] = targets[:, :-1]
        byte_ids.reshape(-1)[begins] = DOCUMENT_MARK
        byte_ids[~mask] = DOCUMENT_MARK
        tensors = (torch.from_numpy(array) for array in (byte_ids, targets, mask, document_ids))
        return Batch(*tensors), document[here]

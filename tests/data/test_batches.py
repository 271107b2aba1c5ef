import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byteseam.data.batches import Batches, evaluation_batches
from byteseam.data.permutation import mix
from byteseam.errors import UserError
from byteseam.types import DOCUMENT_MARK as M
from byteseam.types import Batch

documents_strategy = st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=12)


def stream_of(documents):
    """[(document, target)] of a corpus."""
    return [(i, target) for i, text in enumerate(documents) for target in (*text, M)]


def naive_row(stream, first, length):
    """One row, position by position, as the definition says it."""
    row = []
    previous, number = None, 0
    for position in range(first, first + length):
        document, target = stream[position] if 0 <= position < len(stream) else (None, M)
        starts = not row or document != previous
        if row and document != previous:
            number += 1
        byte = M if starts or document is None else row[-1][1]
        row.append((byte, target, document is not None, number, -1 if document is None else document))
        previous = document
    return row


def rows_of(batch, extra=None):
    extra = extra if extra is not None else torch.zeros_like(batch.targets)
    fields = (batch.byte_ids, batch.targets, batch.mask, batch.document_ids, extra)
    return [list(zip(*(field[i].tolist() for field in fields), strict=True)) for i in range(len(batch.targets))]


def without_extra(row):
    return [position[:4] for position in row]


def test_the_worked_row_of_the_types(corpus_of):
    (batch, document), (rest, _) = evaluation_batches(corpus_of([b"to be", b"or"]), 8, 1)
    assert batch.byte_ids.tolist() == [[M, *b"to be", M, ord("o")]]
    assert batch.targets.tolist() == [[*b"to be", M, *b"or"]]
    assert batch.document_ids.tolist() == [[0] * 6 + [1] * 2]
    assert document.tolist() == [[0] * 6 + [1] * 2]
    assert rest.targets.tolist() == [[M] * 8]
    assert rest.mask.tolist() == [[True] + [False] * 7]


@settings(max_examples=60)
@given(documents_strategy, st.integers(1, 12), st.integers(1, 7), st.integers(0, 5), st.integers(1, 20))
def test_packed_rows_are_as_defined_and_cover_an_epoch(corpus_of, documents, length, batch_rows, seed, shard_bytes):
    corpus = corpus_of(documents, shard_bytes)
    stream = stream_of(documents)
    if len(stream) < length:
        return
    batches = Batches(corpus, length_bytes=length, layout="packed", seed=seed)
    assert batches.items == len(stream) // length + 1
    rows = [
        row for step in range(-(-3 * batches.items // batch_rows)) for row in rows_of(batches.batch(step, batch_rows))
    ]
    for epoch in range(3):
        got = rows[epoch * batches.items : (epoch + 1) * batches.items]
        # Some offset explains the whole epoch, and it is within its bounds.
        slack = batches.items * length - len(stream)
        offset = mix(seed, epoch, 2) % (slack + 1)
        expected = [without_extra(naive_row(stream, i * length - offset, length)) for i in range(batches.items)]
        assert Counter(map(tuple, map(without_extra, got))) == Counter(map(tuple, expected))
        # Every target once.
        targets = Counter(target for row in got for _, target, real, *_ in row if real)
        assert targets == Counter(target for _, target in stream)


@settings(max_examples=40)
@given(documents_strategy, st.integers(1, 12), st.integers(1, 7), st.integers(0, 5), st.integers(1, 20))
def test_prefix_rows_are_the_beginnings_of_documents(corpus_of, documents, length, batch_rows, seed, shard_bytes):
    batches = Batches(corpus_of(documents, shard_bytes), length_bytes=length, layout="prefix", seed=seed)
    assert batches.items == len(documents)
    rows = [
        row for step in range(-(-2 * batches.items // batch_rows)) for row in rows_of(batches.batch(step, batch_rows))
    ]
    for epoch in range(2):
        got = rows[epoch * batches.items : (epoch + 1) * batches.items]
        expected = [without_extra(naive_row(stream_of([text])[:length], 0, length)) for text in documents]
        assert Counter(map(tuple, map(without_extra, got))) == Counter(map(tuple, expected))


@settings(max_examples=60)
@given(documents_strategy, st.integers(1, 12), st.integers(1, 5), st.none() | st.integers(1, 80), st.integers(1, 20))
def test_evaluation_takes_every_target_once(corpus_of, documents, length, batch_rows, max_bytes, shard_bytes):
    corpus = corpus_of(documents, shard_bytes)
    found = list(evaluation_batches(corpus, length, batch_rows, max_bytes))
    again = list(evaluation_batches(corpus, length, batch_rows, max_bytes))
    assert all(
        torch.equal(a[0].targets, b[0].targets) and torch.equal(a[1], b[1]) for a, b in zip(found, again, strict=True)
    )
    rows = [row for batch, document in found for row in rows_of(batch, document)]
    assert all(batch.targets.shape == (batch_rows, length) for batch, _ in found)
    stream = stream_of(documents)
    taken = [(document, target) for row in rows for _, target, real, _, document in row if real]
    if max_bytes is None or max_bytes >= corpus.total_bytes:
        assert taken == stream
    else:
        assert sum(target != M for _, target in taken) == max_bytes
        by_document = {k: [t for _, t in g] for k, g in itertools.groupby(taken, key=lambda pair: pair[0])}
        assert list(by_document) == sorted(by_document)
        cut = [k for k, got in by_document.items() if got != [*documents[k], M]]
        assert len(cut) <= 1
        assert all(by_document[k] == [*documents[k]][: len(by_document[k])] for k in cut)
    assert len(rows) == -(-len(taken) // (length * batch_rows)) * batch_rows
    expected = [naive_row(taken, i * length, length) for i in range(len(rows))]
    assert rows == expected


def test_a_limited_evaluation_is_spread_over_the_corpus(corpus_of):
    corpus = corpus_of([bytes([i]) * 10 for i in range(100)])
    ((_, document),) = evaluation_batches(corpus, 400, 1, 100)
    taken = [i for i in document.unique().tolist() if i >= 0]
    assert len(taken) == 10
    assert all(any(i in taken for i in range(start, start + 20)) for start in range(0, 100, 20))


@pytest.mark.parametrize("layout", ["packed", "prefix"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_the_ranks_rows_in_turn_are_the_batch(corpus_of, layout, ranks):
    batches = Batches(corpus_of([b"abcdefg", b"hi", b"jklmnop"] * 3), length_bytes=5, layout=layout, seed=3)
    for step in range(20):  # epochs end inside batches and inside ranks
        whole = batches.batch(step, 6)
        parts = [batches.batch(step, 6, rank, ranks) for rank in range(ranks)]
        for name in Batch.__slots__:
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


@pytest.mark.parametrize("layout", ["packed", "prefix"])
def test_a_batch_depends_on_nothing_but_its_step(corpus_of, layout):
    corpus = corpus_of([b"abcdefg", b"hi", b"jklmnop"] * 3)
    forward = Batches(corpus, length_bytes=5, layout=layout, seed=3)
    expected = [forward.batch(step, 4) for step in range(12)]
    fresh = Batches(corpus, length_bytes=5, layout=layout, seed=3)
    torch.manual_seed(99)
    for step in (7, 0, 11, 7):
        for name in Batch.__slots__:
            assert torch.equal(getattr(fresh.batch(step, 4), name), getattr(expected[step], name))


def test_seeds_and_epochs_differ(corpus_of):
    corpus = corpus_of([bytes(range(256))])
    first, other = (Batches(corpus, length_bytes=8, layout="packed", seed=seed) for seed in (0, 1))
    epoch = first.items
    assert not torch.equal(first.batch(0, epoch).targets, other.batch(0, epoch).targets)
    assert not torch.equal(first.batch(0, epoch).targets, first.batch(1, epoch).targets)


def test_a_tiny_corpus_fills_a_batch_of_many_epochs(corpus_of):
    batches = Batches(corpus_of([b"ab"]), length_bytes=3, layout="packed", seed=0)
    batch = batches.batch(0, 64)
    assert batch.targets.shape == (64, 3)
    assert int(batch.mask.sum()) == 64 // batches.items * 3
    assert batches.epoch(3, 64) == 96


def test_steps_far_away_are_exact(corpus_of):
    batches = Batches(corpus_of([b"abcdefg" * 9]), length_bytes=5, layout="packed", seed=3)
    assert batches.batch(10**17, 1000, 3, 500).targets.shape == (2, 5)


def test_types_are_what_the_model_reads(corpus_of):
    batches = Batches(corpus_of([bytes(range(256))]), length_bytes=16, layout="packed", seed=0)
    batch = batches.batch(0, batches.items)
    assert batch.byte_ids.dtype == batch.targets.dtype == batch.document_ids.dtype == torch.int64
    assert batch.mask.dtype == torch.bool
    assert sorted(batch.targets[batch.mask].tolist()) == list(range(257))
    batch.byte_ids.add_(1)  # the caller's own: nobody else's batch changes
    assert int(batches.batch(0, batches.items).byte_ids.max()) == M


def test_a_corpus_shorter_than_a_row_is_named(corpus_of, one_sentence):
    corpus = corpus_of([b"too short"])
    with pytest.raises(UserError, match="less than one row of 256") as error:
        Batches(corpus, length_bytes=256, layout="packed", seed=0)
    one_sentence(error, corpus.directory, "9 bytes", "training.length_bytes")
    assert Batches(corpus, length_bytes=256, layout="prefix", seed=0).batch(0, 2).mask.sum() == 20
    assert Batches(corpus, length_bytes=10, layout="packed", seed=0).items == 2


def test_rows_that_do_not_divide_are_named(corpus_of, one_sentence):
    batches = Batches(corpus_of([b"abcdefg"]), length_bytes=4, layout="packed", seed=0)
    with pytest.raises(UserError, match="does not divide") as error:
        batches.batch(0, 5, 0, 2)
    one_sentence(error, "training.batch_rows is 5", "2 processes")

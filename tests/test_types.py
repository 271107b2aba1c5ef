import math

import pytest
import torch

import byteseam.types
from byteseam.model.pooling import segments
from byteseam.model.unet import document_starts
from byteseam.rl.returns import continues
from byteseam.types import DOCUMENT_MARK, Batch, Mean, total_and_count


def worked_row() -> dict[str, list[str]]:
    """The table in the module's docstring: name -> the eight entries."""
    lines = [line.split() for line in byteseam.types.__doc__.splitlines() if line.startswith("    ")]
    return {line[0]: line[1:9] for line in lines}


def test_the_worked_row_is_what_the_code_does():
    row = worked_row()
    assert row["position"] == list("01234567")
    document_ids = torch.tensor([[int(entry) for entry in row["document_ids"]]])
    boundary = torch.tensor([[entry == "1" for entry in row["boundary"]]])
    segment_ids = [[int(entry) for entry in row["segment_ids"]]]
    assert segments(boundary).segment_ids.tolist() == segment_ids
    starts = document_starts(document_ids)[0]
    assert [entry == "M" for entry in row["byte_ids"]] == starts.tolist()
    assert (boundary[0] | ~starts).all(), "every document start is a boundary"
    # What is read next is the target, but for the mark that starts a document, which also ends the one before.
    assert row["byte_ids"][1:] == row["targets"][:-1]
    assert continues(document_ids)[0].tolist() == [True] * 5 + [False, True, False]
    assert "".join(row["byte_ids"]).replace("_", " ") == "Mto beMo"


def test_some_rows_of_a_batch():
    ids = torch.arange(12).reshape(3, 4)
    batch = Batch(ids, ids + 1, ids > 2, ids * 0)
    for index in (slice(1, 3), torch.tensor([1, 2])):
        part = batch.rows(index)
        assert torch.equal(part.byte_ids, ids[1:])
        assert torch.equal(part.targets, ids[1:] + 1)
        assert torch.equal(part.mask, ids[1:] > 2)
        assert torch.equal(part.document_ids, ids[1:] * 0)


def test_records_cannot_be_changed():
    with pytest.raises(AttributeError):
        Mean(1.0, 2.0).total = 3.0  # type: ignore[misc]


def test_means_of_ragged_parts_combine_exactly():
    values = torch.randn(10, dtype=torch.float64).tolist()
    parts = [values[:1], values[1:4], values[4:]]
    combined = sum((Mean(sum(part), float(len(part))) for part in parts), Mean(0.0, 0.0))
    assert combined.value == pytest.approx(sum(values) / 10)
    assert combined.count == 10


def test_the_mean_of_nothing_is_not_a_number_and_adds_nothing():
    assert math.isnan(Mean(0.0, 0.0).value)
    assert Mean(0.0, 0.0) + Mean(3.0, 2.0) == Mean(3.0, 2.0)


def test_total_and_count_leaves_out_what_is_masked():
    values = torch.tensor([[1.0, math.nan], [4.0, math.inf]])
    assert total_and_count(values, torch.tensor([[True, False], [True, False]])).tolist() == [5.0, 2.0]
    assert total_and_count(values, torch.zeros(2, 2, dtype=torch.bool)).tolist() == [0.0, 0.0]


def test_the_document_mark_is_no_byte():
    assert DOCUMENT_MARK not in range(256)
    assert byteseam.types.VOCABULARY == 257

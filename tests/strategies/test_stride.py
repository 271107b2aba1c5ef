"""Boundaries at equal distances."""

import pytest
from tiny import marks

from byteseam.strategies import Stride


@pytest.mark.parametrize(
    ("bytes_per_token", "expected"),
    [
        (1.0, "M||||||||"),
        (2.0, "M.|.|.|.|"),
        (3.0, "M..|..|.."),
        (2.5, "M..|.|..|"),  # 2.5, 5, 7.5 bytes: at bytes 3, 5, 8
        (100.0, "M........"),
    ],
)
def test_by_hand(bytes_per_token, expected):
    assert marks(Stride(bytes_per_token=bytes_per_token), b"abcdefgh") == expected


def test_every_document_counts_for_itself():
    assert marks(Stride(bytes_per_token=2.0), b"abc", b"", b"de") == "M.|.MM.|"


@pytest.mark.parametrize("bytes_per_token", [1.7, 3.3, 5.0, 7.9])
def test_the_rate_is_exact(bytes_per_token):
    found = marks(Stride(bytes_per_token=bytes_per_token), b"x" * 7900)
    assert abs(found.count("|") - 7900 / bytes_per_token) < 1

from collections.abc import Callable

import numpy as np
import pytest

from byteseam.inspect import Record

HOSTILE = (
    b"\x00\x1b[31mred\x7f\r\n </pre><script>alert('1')</script> \"q\" &amp; <!-- ]]> \xff\xfe \xed\xa0\x80 \xe2\x82"
    + "\u202etxt.exe\u202c \u2066\u200f a\u0300\u0301\u0302\u0303\u0304 \u200b\ufeff\u2028 é€🙂 · ⟨ff⟩ │".encode()
)


@pytest.fixture
def hostile() -> bytes:
    return HOSTILE


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a record of bytes: every ``every``-th byte ends a token, and all numbers are known."""

    def make(data: bytes, every: int = 3, *, name: str = "text", known: bool = True) -> Record:
        place = np.arange(len(data))
        boundary = place % every == every - 1
        if not known:
            return Record(name, data, boundary)
        return Record(name, data, boundary, (place % 11) / 10, (place % 7) / 2, (place % 5) / 2, "sample")

    return make

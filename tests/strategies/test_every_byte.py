"""One token a byte."""

from tiny import marks

from byteseam.strategies import EveryByte


def test_everywhere_whatever_is_asked():
    strategy = EveryByte(bytes_per_token=7.0)
    assert marks(strategy, b"a b", b"") == "M|||M"
    assert strategy.rate == 1.0

"""Noise on text: of the announced amount, whole characters, the same for a seed."""

import pytest

from byteseam.comparison.probes import NOISES, SHARE, noisy, parse_probes, split_characters
from byteseam.errors import UserError

TEXT = "Then the whale, é中🙂, swam on and on. ".encode() * 60
LETTERS = sum(chr(byte).isalpha() for byte in TEXT if byte < 128)


def test_names():
    assert parse_probes(["case", "noise"]) == ("case", "drop", "double", "swap", "nospace")
    assert parse_probes(["text=a/b,drop", "drop"]) == ("text=a/b", "drop")
    for word in ("nois", "text="):
        with pytest.raises(UserError, match=f"--probe '{word}' is none of case, drop"):
            parse_probes([word])


def test_characters_are_whole_and_nothing_is_lost():
    assert b"".join(split_characters(b"\xff" + TEXT + b"\xe4")) == b"\xff" + TEXT + b"\xe4"
    assert [part.decode() for part in split_characters("aé中🙂".encode())] == ["a", "é", "中", "🙂"]
    assert split_characters(b"") == []


@pytest.mark.parametrize("noise", NOISES)
def test_the_same_seed_gives_the_same_and_characters_stay_whole(noise):
    found = noisy(TEXT, noise, 3)
    assert found == noisy(TEXT, noise, 3)
    assert found != TEXT
    found.decode()
    assert (found == noisy(TEXT, noise, 4)) == (noise == "nospace")
    assert noisy(b"", noise, 0) == b""


def test_amounts():
    size = len(split_characters(TEXT))
    flipped = sum(one != other for one, other in zip(TEXT, noisy(TEXT, "case", 0), strict=True))
    assert flipped == pytest.approx(SHARE["case"] * LETTERS, rel=0.25)
    for noise, sign in (("drop", -1), ("double", 1)):
        more = len(split_characters(noisy(TEXT, noise, 0))) - size
        assert sign * more == pytest.approx(SHARE[noise] * size, rel=0.4)
    assert sorted(split_characters(noisy(TEXT, "swap", 0))) == sorted(split_characters(TEXT))
    assert noisy(b" a\tb\r\nc ", "nospace", 0) == b"abc"

"""Every way of placing boundaries, one file each. The table is literal: a new strategy is a file and a line here."""

from byteseam.strategies.base import DEFAULT_THRESHOLD, Experience, Schedule, Statistics, Strategy
from byteseam.strategies.bpe import Bpe
from byteseam.strategies.entropy import Entropy
from byteseam.strategies.every_byte import EveryByte
from byteseam.strategies.flat import Flat
from byteseam.strategies.gumbel import Gumbel
from byteseam.strategies.hnet import HNet
from byteseam.strategies.regex import Regex
from byteseam.strategies.score_function import ScoreFunction
from byteseam.strategies.stride import Stride
from byteseam.strategies.uniform import Uniform
from byteseam.strategies.whitespace import Whitespace

STRATEGIES: dict[str, type[Strategy]] = {
    "score_function": ScoreFunction,
    "uniform": Uniform,
    "stride": Stride,
    "every_byte": EveryByte,
    "whitespace": Whitespace,
    "regex": Regex,
    "entropy": Entropy,
    "bpe": Bpe,
    "gumbel": Gumbel,
    "hnet": HNet,
    "flat": Flat,
}

__all__ = [
    "DEFAULT_THRESHOLD",
    "STRATEGIES",
    "Bpe",
    "Entropy",
    "EveryByte",
    "Experience",
    "Flat",
    "Gumbel",
    "HNet",
    "Regex",
    "Schedule",
    "ScoreFunction",
    "Statistics",
    "Strategy",
    "Stride",
    "Uniform",
    "Whitespace",
]

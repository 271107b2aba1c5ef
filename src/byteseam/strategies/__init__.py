"""Every way of placing boundaries, one file each. The table is literal: a new strategy is a file and a line here."""

from byteseam.strategies.base import Experience, Schedule, Statistics, Strategy
from byteseam.strategies.score_function import ScoreFunction
from byteseam.strategies.uniform import Uniform
from byteseam.strategies.whitespace import Whitespace

STRATEGIES: dict[str, type[Strategy]] = {
    "score_function": ScoreFunction,
    "uniform": Uniform,
    "whitespace": Whitespace,
}

__all__ = [
    "STRATEGIES",
    "Experience",
    "Schedule",
    "ScoreFunction",
    "Statistics",
    "Strategy",
    "Uniform",
    "Whitespace",
]

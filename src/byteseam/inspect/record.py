"""`Record`: one text with its boundaries and what they cost. Every picture is made from it and from nothing else."""

import base64
import binascii
import json
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from byteseam.errors import UserError
from byteseam.text import utf8_character_ends

_FORMAT = 1
_SERIES = ("probability", "nll_nats", "early_nll_nats")
_FURTHER_SERIES = ("advantage_nats", "advantage_error_nats")
"""Written only where there are any."""


@dataclass(frozen=True, slots=True)
class Span:
    """One token: the bytes ``[start, end)`` of a record."""

    start: int
    end: int
    data: bytes
    closed: bool
    """True where a boundary ends it; False for the last token of a text that stops before one."""
    probability: float | None
    """The policy's probability of the boundary that closes it; None when open, or when nothing is known."""
    nll_nats: float | None
    """What predicting its bytes cost, summed."""
    inside_character: bool
    """True when it ends inside a UTF-8 character."""

    @property
    def text(self) -> str | None:
        """Its bytes as text; None when they are not valid UTF-8 by themselves."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def hex(self) -> str:
        """Its bytes as lower-case hexadecimal, two digits a byte."""
        return self.data.hex()


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A text of n bytes and what a model did with it. Arrays are copied and cannot be written to.

    Raises ValueError for arrays of another length, probabilities outside [0, 1], or costs that are not finite.
    """

    name: str
    data: bytes
    boundary: NDArray[np.bool_]
    """[n], True where a token ends after this byte."""
    probability: NDArray[np.float64] | None = None
    """[n], the policy's probability of a boundary after this byte; None for fixed rules."""
    nll_nats: NDArray[np.float64] | None = None
    """[n], what predicting THIS byte cost, with the tokens' help."""
    early_nll_nats: NDArray[np.float64] | None = None
    """[n], the same without tokens, at the early exit."""
    decide: str | None = None
    """How boundaries were decided: ``sample``, ``threshold``, ``rate``, or the name of a rule."""
    advantage_nats: NDArray[np.float64] | None = None
    """[n], what a boundary after this byte buys from there on, discounted; below 0 where it costs."""
    advantage_error_nats: NDArray[np.float64] | None = None
    """[n], its standard error."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes(self.data))
        object.__setattr__(self, "boundary", self._series("boundary", self.boundary, np.bool_))
        for name in _SERIES + _FURTHER_SERIES:
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._series(name, values, np.float64))
        if self.probability is not None and not ((self.probability >= 0) & (self.probability <= 1)).all():
            raise ValueError(f"record {self.name!r}: probability must lie in [0, 1]")

    def _series(self, name: str, values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
        array = np.array(values, dtype)
        if array.shape != (len(self.data),):
            raise ValueError(f"record {self.name!r}: {name} has shape {array.shape}, the text {len(self.data)} bytes")
        if not np.isfinite(array).all():
            raise ValueError(f"record {self.name!r}: {name} holds a value that is not finite")
        array.flags.writeable = False
        return array

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.data))

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes per boundary; None without a boundary."""
        boundaries = int(self.boundary.sum())
        return len(self.data) / boundaries if boundaries else None

    @property
    def bits_per_byte(self) -> float | None:
        """Mean cost of a byte in bits; None for an empty text or unknown costs."""
        return _mean_bits(self.nll_nats)

    @property
    def early_bits_per_byte(self) -> float | None:
        """The same at the early exit, without tokens."""
        return _mean_bits(self.early_nll_nats)

    def spans(self) -> list[Span]:
        """The tokens in order; their bytes, one after the other, are ``data``."""
        ends: list[int] = (np.flatnonzero(self.boundary) + 1).tolist()
        closed = len(ends)
        if self.data and (not ends or ends[-1] < len(self.data)):
            ends.append(len(self.data))
        whole = utf8_character_ends(np.frombuffer(self.data, np.uint8)).tolist()
        probability = None if self.probability is None else self.probability.tolist()
        running = None if self.nll_nats is None else [0.0, *np.cumsum(self.nll_nats).tolist()]
        spans, start = [], 0
        for index, end in enumerate(ends):
            spans.append(
                Span(
                    start=start,
                    end=end,
                    data=self.data[start:end],
                    closed=index < closed,
                    probability=None if probability is None or index >= closed else probability[end - 1],
                    nll_nats=None if running is None else running[end] - running[start],
                    inside_character=not whole[end - 1],
                )
            )
            start = end
        return spans

    def to_json(self) -> str:
        """One line of JSON (ASCII) that `from_json` turns back into an equal record, bit for bit.

        ``text`` holds the bytes when they are valid UTF-8, ``base64`` otherwise; ``boundary`` lists the bytes after
        which a token ends; ``bytes_per_token`` is there for the reader.
        """
        fields: dict[str, Any] = {"format": _FORMAT, "name": self.name}
        try:
            fields["text"] = self.data.decode()
        except UnicodeDecodeError:
            fields["base64"] = base64.b64encode(self.data).decode()
        fields |= {"decide": self.decide, "bytes_per_token": self.bytes_per_token}
        fields["boundary"] = np.flatnonzero(self.boundary).tolist()
        fields |= {name: None if getattr(self, name) is None else getattr(self, name).tolist() for name in _SERIES}
        further = {name: getattr(self, name) for name in _FURTHER_SERIES}
        fields |= {name: values.tolist() for name, values in further.items() if values is not None}
        return json.dumps(fields, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """The record that `to_json` wrote. Raises UserError when ``line`` is something else."""
        try:
            fields = json.loads(line)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']!r} is not {_FORMAT}")
            data = fields["text"].encode() if "text" in fields else base64.b64decode(fields["base64"], validate=True)
            name, decide, positions = fields["name"], fields["decide"], fields["boundary"]
            if not isinstance(name, str) or not isinstance(decide, str | None):
                raise ValueError("name or decide is no text")
            if not all(type(position) is int and 0 <= position < len(data) for position in positions):
                raise ValueError("boundary holds something else than offsets of bytes")
            boundary = np.zeros(len(data), np.bool_)
            boundary[np.array(positions, np.int64)] = True
            series = {series: fields[series] for series in _SERIES}
            series |= {series: fields.get(series) for series in _FURTHER_SERIES}
            return cls(name, data, boundary, **series, decide=decide)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            binascii.Error,
        ) as error:
            raise UserError(f"this is not a byteseam record ({error}): write one with Record.to_json.") from error


def _mean_bits(nats: NDArray[np.float64] | None) -> float | None:
    return None if nats is None or not len(nats) else float(nats.mean()) / log(2)

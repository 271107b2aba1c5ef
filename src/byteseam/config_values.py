"""What a setting may hold, read off its annotation: one judgement for files and overrides, and words for messages."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Kind:
    """What a key may hold, from its annotation and its bounds."""

    types: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    items: "Kind | None" = None
    size: int | None = None
    """How many items, where that is fixed."""
    nullable: bool = False
    bounds: tuple[str, ...] = ()
    opaque: bool = False
    """An annotation unknown here; pydantic alone judges."""

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(
            self.types + other.types,
            self.choices + other.choices,
            self.items or other.items,
            self.size or other.size,
            self.nullable or other.nullable,
            self.bounds + other.bounds,
            self.opaque or other.opaque,
        )

    def takes_text(self) -> bool:
        """Whether some text fits."""
        return str in self.types or any(map(is_text, self.choices))

    def takes_numbers(self) -> bool:
        """Whether some number fits."""
        return int in self.types or float in self.types

    def accepts(self, value: object) -> bool:
        """Whether a value fits, bounds aside: a whole float is a whole number, a number is never a truth value."""
        if self.opaque or any(type(choice) is type(value) and choice == value for choice in self.choices):
            return True
        match value:
            case bool():
                return bool in self.types
            case int():
                return self.takes_numbers()
            case float():
                return math.isfinite(value) and (float in self.types or (int in self.types and value.is_integer()))
            case str():
                return str in self.types and _is_utf8(value)
            case list() | tuple():
                fits = self.size in (None, len(value))
                return self.items is not None and fits and all(map(self.items.accepts, value))
        return value is None and self.nullable

    def description(self) -> str:
        """What fits, in words that go on from *must be*."""
        nouns = []
        if self.choices:
            nouns.append(("one of " if len(self.choices) > 1 else "") + ", ".join(map(toml_text, self.choices)))
        if bool in self.types:
            nouns.append("true or false")
        if self.takes_numbers():
            bounds = " and ".join(self.bounds)
            noun = "a finite number" if float in self.types else "a whole number"
            nouns.append(f"{noun}{' of' if bounds.startswith('at ') else ''} {bounds}".rstrip())
        if str in self.types:
            nouns.append("text")
        if self.items is not None:
            size = f" of {self.size}" if self.size else ""
            nouns.append(f"a list{size}, each item {self.items.description()}")
        if self.nullable:
            nouns.append('"none"')
        return " or ".join(nouns) or "something else"


def kind_of(info: FieldInfo) -> Kind:
    """What a field may hold."""
    return _kind(info.annotation, info.metadata)


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> Kind:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    parts = [inner for part in metadata for inner in (part.metadata if isinstance(part, FieldInfo) else [part])]
    found = [(word, getattr(part, name, None)) for part in parts for name, word in words.items()]
    bounds = Kind(
        bounds=tuple(f"{word} {toml_text(bound).removesuffix('.0')}" for word, bound in found if bound is not None)
    )
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return bounds | _kind(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        kind = bounds
        for argument in arguments:
            kind |= _kind(argument)
        return kind
    if origin is Literal:
        return bounds | Kind(choices=arguments)
    if origin in (tuple, list, Sequence):
        items = tuple(item for item in arguments if item is not Ellipsis)
        size = len(items) if origin is tuple and items == arguments else None
        # The items are known at run time only, where `|` cannot spell their union.
        return bounds | Kind(items=_kind(Union[items]), size=size)  # noqa: UP007
    if annotation in (bool, int, float, str):
        return bounds | Kind(types=(annotation,))
    return bounds | (Kind(nullable=True) if annotation in (None, NoneType) else Kind(opaque=True))


def toml_text(value: object) -> str:
    """A value as TOML writes it.

    Raises:
        TypeError: for what no setting holds, a date or a table.
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(toml_text, value))}]"
    raise TypeError(f"{type(value).__name__} has no TOML form here")


def is_text(value: object) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

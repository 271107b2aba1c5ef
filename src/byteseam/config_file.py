"""Run configurations as TOML: read with overrides, checked key by key, written so that reading gives the same run.

Every mistake is one `UserError` that names the file (or "override"), the key, the value and what to do.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from byteseam.config import RunConfig
from byteseam.config_values import Kind, is_text, kind_of, toml_text
from byteseam.errors import UserError
from byteseam.strategies import STRATEGIES, Strategy
from byteseam.strategies.base import Pooled

Key = tuple[str, str]
"""(table, key); the table is ``""`` for what stands outside every table."""

_STRATEGY_NAME: Key = ("strategy", "name")


def load(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file.

    An override is ``--model.width 256`` (two strings), ``--model.width=256`` or ``model.width=256``; the last one
    counts. Its value is read as a TOML value, and as plain text where it is none or where the key holds text; ``none``
    turns off what can be turned off. Overriding ``strategy.name`` by another name drops the file's ``[strategy]`` keys
    but for those that every strategy has: a weight of one means nothing for another. Overrides are never dropped.
    """
    return _with_overrides(_read(Path(path)), str(path), overrides)


def loads(text: str, origin: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The same from the text of a file; ``origin`` is what errors call it."""
    return _with_overrides(_parsed(text, origin), origin, overrides)


def from_table(table: Mapping[str, Any], origin: str) -> RunConfig:
    """The configuration that a parsed TOML document describes; ``origin`` is what errors call it."""
    return _build(_settings(table, origin), origin)


def dump(config: RunConfig) -> str:
    """The configuration as TOML, every key of it, those left at their defaults too.

    What is off (``None``) is left out, or written ``"none"`` where leaving it out would mean the default instead.
    """
    tables: dict[str, list[str]] = {"": []}
    for name in _fields(RunConfig):
        part = getattr(config, name)
        if not dataclasses.is_dataclass(part):
            tables[""].append(f"{name} = {toml_text(part)}")
            continue
        tables[name] = [f"[{name}]"]
        if name == "strategy":
            tables[name].append(f"name = {toml_text(_name(type(part)))}")
        for key, info in _fields(type(part)).items():
            value = getattr(part, key)
            if value is not None:
                tables[name].append(f"{key} = {toml_text(value)}")
            elif info.get_default(call_default_factory=True) is not None:
                tables[name].append(f'{key} = "none"')
    return "\n\n".join("\n".join(lines) for lines in tables.values()) + "\n"


# Reading -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Setting:
    """A value, where it was set, and, for an override, the text it was given as."""

    value: object
    origin: str
    text: str | None = None


def _with_overrides(table: Mapping[str, Any], origin: str, overrides: Sequence[str]) -> RunConfig:
    settings, given = _settings(table, origin), _overrides(overrides)
    if _STRATEGY_NAME in given:
        former, latter = _strategy(settings), _strategy(given)
        if former is not latter:
            kept = Pooled if issubclass(former, Pooled) and issubclass(latter, Pooled) else Strategy
            dropped = set(_fields(former)) - set(_fields(kept))
            settings = {key: each for key, each in settings.items() if key[0] != "strategy" or key[1] not in dropped}
    return _build(settings | given, origin)


def _read(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_bytes().decode("utf-8-sig"), str(path))
    except FileNotFoundError:
        near = _nearest(path.name, (other.name for other in path.parent.glob("*.toml")))
        hint = f"did you mean {path.parent / near}?" if near else "give a TOML file"
        raise UserError(f"{path}: no such file; {hint}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; give a TOML file, such as {path / 'config.toml'}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a TOML file that can") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _parsed(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{origin}: not valid TOML: {_lower(str(error))}; mend it there") from None
    except (ValueError, RecursionError):
        raise UserError(f"{origin}: not valid TOML: a number too long or a list too deep; mend it") from None


def _settings(table: Mapping[str, Any], origin: str) -> dict[Key, _Setting]:
    settings: dict[Key, _Setting] = {}
    tables, root = _tables(), _fields(RunConfig)
    for name, value in table.items():
        if name not in tables:
            if isinstance(value, Mapping) and name not in root:
                near = _nearest(name, tables)
                hint = f"did you mean [{near}]?" if near else f"the tables are {', '.join(tables)}"
                raise UserError(f"{origin}: unknown table [{name}]; {hint}")
            settings["", name] = _Setting(value, origin)
        elif isinstance(value, Mapping):
            settings |= {(name, key): _Setting(item, origin) for key, item in value.items()}
        else:
            raise UserError(f"{origin}: {name} is a table, got {_shown(value)}; set its keys below [{name}]")
    return settings


def _overrides(words: Sequence[str]) -> dict[Key, _Setting]:
    settings: dict[Key, _Setting] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not equals:
            if not word.startswith("--"):
                raise UserError(
                    f"override: {_shown(word)} sets nothing; write --TABLE.KEY VALUE, such as --model.width 256"
                )
            if not rest or rest[0].startswith("--"):
                raise UserError(f"override: --{name} has no value; write --{name} VALUE")
            text = rest.pop(0)
        if name in _tables():
            raise UserError(f"override: {name} is a table, got {_shown(text)}; set one of its keys, --{name}.KEY VALUE")
        table, _, key = name.rpartition(".")
        settings[table, key] = _Setting(_toml_value(text), "override", text)
    return settings


def _toml_value(text: str) -> object:
    """What a text means in TOML; the text itself where it means nothing there."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


# Checking ------------------------------------------------------------------------------------------------------------


def _build(settings: Mapping[Key, _Setting], origin: str) -> RunConfig:
    classes = _tables() | {"strategy": _strategy(settings)}
    known = {("", key) for key in _fields(RunConfig) if key not in classes} | {_STRATEGY_NAME}
    known |= {(table, key) for table, part in classes.items() for key in _fields(part)}
    for key, setting in settings.items():
        if key not in known:
            _unknown(key, setting, known, _name(classes["strategy"]))
    parts = {table: _construct(part, table, settings, origin) for table, part in classes.items()}
    config: RunConfig = _construct(RunConfig, "", settings, origin, parts)
    return config


def _construct(
    cls: Any, table: str, settings: Mapping[Key, _Setting], origin: str, parts: Mapping[str, Any] | None = None
) -> Any:
    fields = _fields(cls)
    given = {key: setting for (place, key), setting in settings.items() if place == table and key in fields}
    values = {key: _value(_dotted((table, key)), setting, kind_of(fields[key])) for key, setting in given.items()}
    try:
        return cls(**values, **(parts or {}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    cause = first.get("ctx", {}).get("error")
    message = str(cause) if cause is not None else _lower(first["msg"])
    if key in given:
        if first["type"] in _DESCRIBED or first["type"].endswith(("_type", "_parsing")):
            _refuse(_dotted((table, key)), given[key], kind_of(fields[key]))
        raise UserError(f"{given[key].origin}: {_dotted((table, key))} = {_shown(given[key].value)}: {message}")
    if first["type"] == "missing" and key in fields:
        raise UserError(f"{origin}: {_dotted((table, key))} is missing; set it to {kind_of(fields[key]).description()}")
    if any(setting.origin != origin for setting in given.values()):
        origin += " with overrides"
    raise UserError(f"{origin}: {f'[{table}] ' if table else ''}{message}")


_DESCRIBED = (
    "finite_number",
    "greater_than",
    "greater_than_equal",
    "int_from_float",
    "int_parsing_size",
    "less_than",
    "less_than_equal",
    "literal_error",
)
"""Pydantic's errors that the description of a kind says better."""


def _strategy(settings: Mapping[Key, _Setting]) -> Any:
    setting = settings.get(_STRATEGY_NAME)
    if setting is None:
        return _tables()["strategy"]
    names = Kind(choices=tuple(STRATEGIES))
    return STRATEGIES[str(_value("strategy.name", setting, names))]


def _unknown(key: Key, setting: _Setting, known: Iterable[Key], strategy: str) -> NoReturn:
    table = key[0]
    siblings = sorted(name for place, name in known if place == table)
    near = _nearest_key(key, known)
    if near:
        hint = f"did you mean {near}?"
    elif table == "strategy":
        hint = f"the strategy {toml_text(strategy)} has {', '.join(siblings)}"
    elif table in _tables():
        hint = f"[{table}] has {', '.join(siblings)}"
    else:
        hint = (
            f"the tables are {', '.join(_tables())}, and outside them stands {', '.join(n for t, n in known if not t)}"
        )
    raise UserError(f"{setting.origin}: unknown key {_dotted(key)} = {_shown(setting.value)}; {hint}")


def _value(key: str, setting: _Setting, kind: Kind) -> object:
    """The value as the field takes it: an override's text reads as what the key holds, and "none" turns off."""
    value, text = setting.value, setting.text
    if text is not None and kind.takes_text() and not isinstance(value, str) and not kind.accepts(value):
        value = text  # a source called 2024
    if text is not None and kind.takes_numbers() and isinstance(value, str):
        with suppress(ValueError):
            value = float(text)  # .5, which TOML does not know
    if value == "none" and kind.nullable and "none" not in kind.choices:
        return None
    if not kind.accepts(value):
        _refuse(key, setting, kind)
    return value


def _refuse(key: str, setting: _Setting, kind: Kind) -> NoReturn:
    value = setting.value
    near = _nearest(value, filter(is_text, kind.choices)) if isinstance(value, str) else None
    hint = f"; did you mean {toml_text(near)}?" if near else ""
    raise UserError(f"{setting.origin}: {key} must be {kind.description()}, got {_shown(value)}{hint}")


# Small things --------------------------------------------------------------------------------------------------------


def _fields(cls: Any) -> dict[str, FieldInfo]:
    fields: dict[str, FieldInfo] = cls.__pydantic_fields__
    return fields


def _tables() -> dict[str, Any]:
    """Table -> its class, for the strategy the default one."""
    return {
        name: info.default_factory if name == "strategy" else info.annotation
        for name, info in _fields(RunConfig).items()
        if name == "strategy" or dataclasses.is_dataclass(info.annotation)
    }


def _name(strategy: Any) -> str:
    return str(strategy.name)


def _dotted(key: Key) -> str:
    return ".".join(filter(None, key))


def _nearest(word: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(names), n=1)), None)


def _nearest_key(key: Key, known: Iterable[Key]) -> str | None:
    """The known key whose last part is most like this one's, whatever its table; among equals, of the likest table."""

    def likeness(other: Key) -> tuple[float, float]:
        table, leaf = (
            difflib.SequenceMatcher(None, ours, theirs).ratio() for ours, theirs in zip(key, other, strict=True)
        )
        return leaf, table

    best = max(sorted(known), key=likeness)
    return _dotted(best) if likeness(best)[0] >= 0.65 else None


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    try:
        text = toml_text(value)
    except TypeError:  # a date, a list of tables
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]

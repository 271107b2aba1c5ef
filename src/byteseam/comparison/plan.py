"""What is compared: entries, seeds and a budget, kept in a file that a later call goes on with."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from byteseam.config import RunConfig
from byteseam.config_file import dump, loads
from byteseam.errors import UserError
from byteseam.model.flops import training_flops
from byteseam.training.run import write_atomically

FORMAT_VERSION = 1

BudgetKind = Literal["bytes", "flops", "minutes"]

SCALED = ("warmup_bytes", "evaluate_every_bytes", "sample_every_bytes", "checkpoint_every_bytes")
"""What keeps its share of the training when the budget changes."""

SHARED = ("data.", "evaluation.", "training.total_bytes", "training.length_bytes", "training.batch_rows")
"""Settings, or beginnings of settings, that an entry cannot have for itself: all runs see the same."""

LONGEST_LABEL = 100
"""Characters; files are called after labels."""

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class Entry:
    """One strategy with its settings."""

    label: str
    """What it is called in tables; unique."""
    overrides: tuple[str, ...]
    """``strategy.name=...`` and other settings, for `byteseam.config_file.loads`."""

    @property
    def slug(self) -> str:
        """The label as a file name."""
        return re.sub(r"[^A-Za-z0-9._=-]+", "-", self.label).strip("-.")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much each run may spend."""

    kind: BudgetKind
    amount: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison. What may grow from call to call: entries, seeds, probes; the rest is fixed with the directory."""

    config: str
    """The configuration that all entries start from, as TOML."""
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    budget: Budget
    reference: str
    """The label that differences are taken to."""
    probes: tuple[str, ...] = ()
    match_rate: bool = False
    max_bytes: float | None = None
    """Held-out bytes that are scored; ``None``: all."""
    bytes_per_second: dict[str, float] = field(default_factory=dict)
    """By label, measured before anything else where the budget is in minutes."""
    rates: dict[str, float] = field(default_factory=dict)
    """By label, tokens a byte of rules with a rate of their own, measured where the budget is in FLOPs."""

    def jobs(self) -> Iterator[tuple[Entry, int]]:
        """Every run: all entries of the first seed, then of the next, so that a first table comes soon."""
        return ((entry, seed) for seed in self.seeds for entry in self.entries)

    def entry(self, label: str) -> Entry:
        """The entry of that label."""
        return next(entry for entry in self.entries if entry.label == label)

    def base(self) -> RunConfig:
        """The configuration that all start from."""
        return loads(self.config, "the comparison's configuration")

    def total_bytes(self, entry: Entry) -> float:
        """What the budget buys this entry, in bytes.

        Raises:
            UserError: if it does not pay for one step.
        """
        config = self._config(entry)
        training = config.training
        amount = self.budget.amount
        if self.budget.kind == "flops":
            strategy = config.strategy.settled(config.model, training.length_bytes)
            parts = training.batch_rows // (training.micro_batch_rows or training.batch_rows)
            rate = self.rates.get(entry.label)
            amount /= sum(training_flops(config.model, strategy, training.length_bytes, parts, rate).values())
        elif self.budget.kind == "minutes":
            if entry.label not in self.bytes_per_second:
                return training.total_bytes  # not timed yet
            amount *= 60 * self.bytes_per_second[entry.label]
        if amount < (step := training.batch_rows * training.length_bytes):
            raise UserError(
                f"--budget {self.budget.kind}={self.budget.amount:g} gives {entry.label} {amount:,.0f} bytes, less "
                f"than one step of {step:,} (training.batch_rows * training.length_bytes); raise it"
            )
        return amount

    def run_config(self, entry: Entry, seed: int) -> RunConfig:
        """The configuration of one run; whatever is counted in bytes keeps its share of the training."""
        config = self._config(entry)
        total = self.total_bytes(entry)
        share = total / config.training.total_bytes
        scaled = {name: getattr(config.training, name) * share for name in SCALED}
        return replace(config, seed=seed, training=replace(config.training, total_bytes=total, **scaled))

    def _config(self, entry: Entry) -> RunConfig:
        return loads(self.config, entry.label, entry.overrides)

    def to_json(self) -> str:
        """For a file."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, origin: str) -> "Plan":
        """From a file.

        Raises:
            UserError: if it holds something else, or is of a newer format.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("format_version")
            if version > FORMAT_VERSION:
                raise UserError(
                    f"{origin} has format {version}; this byteseam reads up to {FORMAT_VERSION}: upgrade it"
                )
            fields["entries"] = tuple(Entry(each["label"], tuple(each["overrides"])) for each in fields["entries"])
            fields["budget"] = Budget(**fields["budget"])
            fields |= {name: tuple(fields[name]) for name in ("seeds", "probes")}
            return Plan(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{origin} is damaged ({error}); restore it, or compare into another --out") from error


def parse_entries(text: str) -> tuple[Entry, ...]:
    """``[LABEL:]NAME[SETTING=VALUE;...]`` and more of them, commas between.

    A setting without a dot is the strategy's. Without a label the text is its own.

    Raises:
        UserError: for what is none, and for two of one label.
    """
    entries = [_entry(part.strip()) for part in _outside_brackets(text) if part.strip()]
    if not entries:
        raise UserError("--strategies names no strategy; give some, such as score_function,uniform,whitespace")
    for number, entry in enumerate(entries):
        if entry.slug in {other.slug for other in entries[:number]}:
            raise UserError(
                f"--strategies has two entries of the label {entry.label!r}; give one another: other:{entry.label}"
            )
    return tuple(entries)


def _outside_brackets(text: str) -> Iterator[str]:
    """The text cut at its commas, but for those within brackets."""
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _entry(text: str) -> Entry:
    found = re.fullmatch(r"(?:(?P<label>[^:\[\]]+):)?(?P<name>[\w-]+)(?:\[(?P<settings>.*)\])?", text)
    if not found:
        raise UserError(f"--strategies: cannot read {text!r}; write LABEL:NAME[SETTING=VALUE;SETTING=VALUE] or NAME")
    overrides = [f"strategy.name={found['name']}"]
    for setting in filter(None, (found["settings"] or "").split(";")):
        key, equals, value = setting.strip().partition("=")
        if not equals or not key:
            raise UserError(f"--strategies: {setting!r} in {text!r} sets nothing; write SETTING=VALUE")
        key = key if "." in key or key == "seed" else f"strategy.{key}"
        if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", key):
            raise UserError(f"--strategies: {key!r} in {text!r} is no setting; write SETTING or TABLE.SETTING")
        if key.startswith(SHARED) or key in ("seed", "strategy.name"):
            raise UserError(f"--strategies: {key} in {text!r} is the same for all; set it for the whole comparison")
        overrides.append(f"{key}={value}")
    label = found["label"] or text
    if not 1 <= len(Entry(label, ()).slug) <= LONGEST_LABEL or label != label.encode(errors="replace").decode():
        raise UserError(
            f"--strategies: the label {label[:LONGEST_LABEL]!r} must be text with letters or digits, of at most "
            f"{LONGEST_LABEL} characters; give one with LABEL:NAME"
        )
    return Entry(label, tuple(overrides))


def parse_seeds(text: str) -> tuple[int, ...]:
    """``3`` for 0, 1, 2; ``4,7`` for these.

    Raises:
        UserError: for anything else.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or numbers == [0] or len(set(numbers)) < len(numbers):
        raise UserError(f"--seeds {text!r} is neither a number of seeds, such as 3, nor a list of them, such as 4,7")
    return tuple(range(numbers[0])) if len(numbers) == 1 else tuple(numbers)


def parse_budget(text: str) -> Budget:
    """``bytes=20M``, ``flops=3e15``, ``minutes=5``.

    Raises:
        UserError: for anything else.
    """
    found = re.fullmatch(r"(\w+)=([0-9.]+(?:e[+-]?[0-9]+)?)([kMGT]?)", text.strip())
    if found and found[1] in get_args(BudgetKind):
        try:
            amount = float(found[2]) * _SUFFIXES[found[3]]
        except ValueError:
            amount = 0.0
        if 0 < amount < float("inf"):
            kinds: dict[str, BudgetKind] = {"bytes": "bytes", "flops": "flops", "minutes": "minutes"}
            return Budget(kinds[found[1]], amount)
    raise UserError(f"--budget {text!r} cannot be read; write bytes=20M, flops=3e15 or minutes=5, a number above 0")


def open_plan(directory: Path, wanted: Plan) -> Plan:
    """The plan of a directory, made or found there, with whatever is wanted beyond it.

    Entries, seeds and probes add up, so that a comparison can grow. Nothing is written.

    Raises:
        UserError: if the directory holds another comparison, or something else.
    """
    path = directory / "comparison.json"
    if not path.exists():
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UserError(f"--out {directory} exists and holds no comparison; choose another place")
        return check(replace(wanted, reference=wanted.reference or wanted.entries[0].label))
    known = Plan.from_json(path.read_text(encoding="utf-8", errors="replace"), str(path))
    for name, ours, theirs in (
        ("configuration", wanted.config, known.config),
        ("--budget", wanted.budget, known.budget),
        ("--max-bytes", wanted.max_bytes, known.max_bytes),
        ("--match-rate", wanted.match_rate, known.match_rate),
    ):
        if ours != theirs:
            raise UserError(f"--out {directory} holds another comparison: its {name} differs; choose another place")
    labels = {entry.label: entry for entry in known.entries}
    for entry in wanted.entries:
        if labels.setdefault(entry.label, entry) != entry:
            raise UserError(
                f"--out {directory} holds another {entry.label!r}, with other settings; give this one another label"
            )
    slugs = [entry.slug for entry in labels.values()]
    if len(set(slugs)) < len(slugs):
        raise UserError(f"--out {directory} holds a label that looks the same as a file name; give this one another")
    return check(
        replace(
            wanted,
            reference=wanted.reference or known.reference,
            entries=tuple(labels.values()),
            seeds=known.seeds + tuple(seed for seed in wanted.seeds if seed not in known.seeds),
            probes=known.probes + tuple(probe for probe in wanted.probes if probe not in known.probes),
            bytes_per_second=known.bytes_per_second,
        )
    )


def check(plan: Plan) -> Plan:
    """The plan, if every run of it has a configuration.

    Raises:
        UserError: for the first one that has none, or a reference that is no entry.
    """
    labels = [entry.label for entry in plan.entries]
    if plan.reference not in labels:
        raise UserError(f"--reference {plan.reference!r} is none of the entries: {', '.join(labels)}")
    for entry in plan.entries:
        config = plan.run_config(entry, plan.seeds[0])
        config.strategy.settled(config.model, config.training.length_bytes)
    return plan


def save_plan(directory: Path, plan: Plan) -> None:
    """Write the plan, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "comparison.json", plan.to_json())


def base_text(config: RunConfig) -> str:
    """The configuration as the plan keeps it. The seed is the runs' own."""
    return dump(replace(config, seed=0))

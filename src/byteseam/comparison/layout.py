"""Where a comparison keeps what.

::

    OUT/
      comparison.json            the plan
      runs/LABEL-SEED/           ordinary runs
      results/LABEL-SEED.json    what was measured of a finished run; written last
      failures/LABEL-SEED.txt    one sentence about a run that failed
      logs/LABEL-SEED.log        what it said on standard error
      bpe.json                   boundaries of a BPE on the text where boundaries are compared
      report.json .md .csv .html
"""

from dataclasses import dataclass
from pathlib import Path

from byteseam.comparison.plan import Entry, Plan
from byteseam.errors import UserError


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a comparison."""

    directory: Path

    def plan(self) -> Plan:
        """The plan.

        Raises:
            UserError: if there is none, or it is damaged.
        """
        path = self.directory / "comparison.json"
        try:
            return Plan.from_json(path.read_text(encoding="utf-8", errors="replace"), str(path))
        except OSError as error:
            raise UserError(f"cannot read {path} ({error.strerror}); name a comparison's directory") from error

    def run(self, entry: Entry, seed: int) -> Path:
        return self.directory / "runs" / f"{entry.slug}-{seed}"

    def result(self, entry: Entry, seed: int) -> Path:
        return self.directory / "results" / f"{entry.slug}-{seed}.json"

    def failure(self, entry: Entry, seed: int) -> Path:
        return self.directory / "failures" / f"{entry.slug}-{seed}.txt"

    def log(self, entry: Entry, seed: int) -> Path:
        return self.directory / "logs" / f"{entry.slug}-{seed}.log"

    def report(self, kind: str) -> Path:
        """``json``, ``md``, ``csv`` or ``html``."""
        return self.directory / f"report.{kind}"

    def make(self) -> None:
        """The folders."""
        for name in ("runs", "results", "failures", "logs"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)

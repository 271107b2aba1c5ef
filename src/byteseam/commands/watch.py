"""Watching a training from a terminal: a bar, the passage as it is cut now, notices."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from byteseam.console import stderr_console
from byteseam.evaluation.evaluate import Evaluation
from byteseam.inspect import Record, render_terminal
from byteseam.inspect.terminal import colour_mode
from byteseam.training.checkpoint import State
from byteseam.training.loop import Listener

if TYPE_CHECKING:
    from byteseam.training.loop import Trainer


class Watcher(Listener):
    """Writes to stderr only. Without a terminal the bar becomes a line now and then."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = stderr_console()
        self.bar: Any = None
        self.task: Any = None
        self.total_bytes = 0
        self.last_seconds = 0.0
        self.last_line = 0.0

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def begin(self, trainer: "Trainer") -> None:
        """Show the bar."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        training = trainer.config.training
        self.total_bytes = trainer.total_steps * training.batch_rows * training.length_bytes
        if self.quiet or not self.console.is_terminal:
            return
        columns = (TextColumn("{task.percentage:>3.0f}%"), BarColumn(bar_width=24), TextColumn("{task.description}"))
        self.bar = Progress(*columns, TimeRemainingColumn(), console=self.console)
        self.task = self.bar.add_task("", total=self.total_bytes, completed=trainer.state.bytes_seen)
        self.bar.start()

    def end(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def step(self, state: State, summary: dict[str, float]) -> None:
        if self.quiet or "bits_per_byte" not in summary:
            return
        speed = state.bytes_seen / state.seconds if state.seconds > 0 else 0.0
        per_token = summary.get("bytes_per_token", float("inf"))
        text = f"{summary['bits_per_byte']:.3f} bits/byte  {per_token:.2f} bytes/token  {speed / 1e3:.1f} kB/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=state.bytes_seen, description=text)
        elif state.seconds - self.last_line >= 15:
            self.last_line = state.seconds
            left = (self.total_bytes - state.bytes_seen) / speed if speed else float("nan")
            self.say(f"{state.bytes_seen / self.total_bytes:4.0%}  {text}  {left:.0f} s left")

    def sample(self, state: State, record: Record) -> None:
        if self.quiet:
            return
        mode = colour_mode(stream=sys.stderr)
        width = min(self.console.width, 100)
        self.say(f"after {state.bytes_seen / 1e6:.1f} MB:")
        # Straight to the stream: the text has its own colours, and nothing in it is markup.
        self.pass_through(render_terminal(record, colour=mode, width=width))

    def evaluated(self, state: State, evaluation: Evaluation) -> None:
        if not self.quiet:
            self.say(
                f"held out, after {state.bytes_seen / 1e6:.1f} MB: {evaluation.bits_per_byte:.3f} bits/byte, "
                f"{evaluation.bytes_per_token:.2f} bytes/token"
            )

    def notice(self, message: str) -> None:
        self.say(f"note: {message}")

    def say(self, line: str) -> None:
        """One line above the bar."""
        self.console.print(line, markup=False, soft_wrap=True)

    def pass_through(self, text: str) -> None:
        """Text with its own escape sequences, above the bar."""
        from rich.text import Text

        self.console.print(Text.from_ansi(text), soft_wrap=True)

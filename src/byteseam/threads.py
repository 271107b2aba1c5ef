"""How idle CPU threads wait. No import of PyTorch: this must be said before its libraries are loaded."""

import os

SPIN_COUNT = "10000"
"""Turns that an idle OpenMP thread spins before it sleeps: some tens of microseconds."""


def calm_threads() -> None:
    """Let idle OpenMP threads spin for a moment only, unless the user has said otherwise.

    By default they spin for milliseconds, which on a machine with other work costs a factor of ten and more; without
    any spinning, the many short parallel parts of a small model each pay for waking a thread.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)

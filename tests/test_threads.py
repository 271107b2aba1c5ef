"""What is said to OpenMP before PyTorch loads it."""

import os

from byteseam.threads import SPIN_COUNT, calm_threads


def test_idle_threads_spin_for_a_moment_unless_the_user_has_said_otherwise(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    calm_threads()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    calm_threads()
    assert os.environ["GOMP_SPINCOUNT"] == SPIN_COUNT
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    calm_threads()
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def test_the_command_line_says_it_before_pytorch_is_imported(python):
    done = python(
        "-c",
        "import os, sys\n"
        "os.environ.pop('OMP_WAIT_POLICY', None); os.environ.pop('GOMP_SPINCOUNT', None)\n"
        "from byteseam import cli\n"
        "seen = []\n"
        "state = lambda: (os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "cli.import_module = lambda name: seen.append(state()) or 1/0\n"
        "try:\n    cli.main(['corpora'])\nexcept ZeroDivisionError:\n    pass\n"
        "print(seen)",
    )
    assert done.stdout.strip() == f"[('{SPIN_COUNT}', False)]"

"""The backend for CUDA against the one for CPU, forward, on the CPU: FlexAttention has no backward there."""

import torch

from byteseam.model.attention import BlockedWindow, windowed_attention


def test_both_backends_give_the_same(python):
    # In a process of its own: FlexAttention's imports warn, and are slow.
    done = python(
        "-W",
        "ignore",
        "-c",
        "import torch\n"
        "from byteseam.model.attention import BlockedWindow, FlexWindow\n"
        "torch.manual_seed(0)\n"
        "ids = torch.tensor([[0] * 50 + [1] * 47, [0] * 97])\n"
        "tensors = torch.randn(3, 2, 97, 2, 16).unbind()\n"
        "for window in (1, 8, 100):\n"
        "    blocked, flex = (kind.build(ids, window)(*tensors) for kind in (BlockedWindow, FlexWindow))\n"
        "    torch.testing.assert_close(blocked, flex)\n"
        "print('same')",
    )
    assert done.stdout.strip() == "same", done.stderr


def test_the_cpu_gets_blocks():
    assert isinstance(windowed_attention(torch.zeros(1, 5, dtype=torch.int64), 2), BlockedWindow)

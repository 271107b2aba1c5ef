"""The arithmetic of learning boundaries: pure functions on tensors, one an arrow of `docs/conventions.md`."""

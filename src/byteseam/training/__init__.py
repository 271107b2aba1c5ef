"""Training: one loop for every strategy."""

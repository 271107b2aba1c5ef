"""Strategies side by side: the same data, seeds and budget, run, measured and put into one table."""

"""Continuing a text, byte by byte."""

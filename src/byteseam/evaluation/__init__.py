"""What a model is worth: bits per byte, rate, and where its boundaries fall."""

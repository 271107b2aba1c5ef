"""What many tests build small models from."""

from byteseam.config import ModelConfig

TINY_MODEL = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=1,
    token_layers=1,
    decoder_layers=1,
    byte_mlp_width=16,
    token_mlp_width=16,
    window=4,
)

"""The autoregressive U-Net over bytes."""

"""The reference backend: plain PyTorch, on any device."""

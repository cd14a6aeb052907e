"""Collectives and the codecs that tensors travel in."""

"""Embedding tables and the features that read them, as frozen facts."""

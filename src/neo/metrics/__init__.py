"""Metrics of click-through models over all ranks, in bounded memory."""

"""Optimizers: sparse (row by row, inside the embedding operators), dense, and learning-rate schedules."""

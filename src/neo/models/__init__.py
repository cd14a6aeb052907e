"""Recommendation models as plain modules around an embedding collection, and their torch-free description."""

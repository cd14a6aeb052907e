"""The decision which rank holds which part of which table."""

"""Checkpoints: sharded, atomic, free of the plan."""

"""Sharded execution: from a plan and a batch on every rank to pooled outputs, and back to updated rows."""

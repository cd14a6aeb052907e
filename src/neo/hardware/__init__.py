"""Machines as data: accelerators, memory tiers, links, and which link joins two ranks."""

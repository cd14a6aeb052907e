"""Fused embedding operators as registered plugins, and what each of them can do."""

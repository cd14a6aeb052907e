"""Checkpoint configuration, torch-free: when a run is saved, what is kept, and what it starts from."""

from dataclasses import dataclass

from neo.errors import Finding


@dataclass(frozen=True)
class CheckpointSpec:
    """``checkpoint.*``, resolved."""


@dataclass
class CheckpointConfig:
    """``checkpoint.*``."""

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``checkpoint``."""
        return []

    def to_spec(self) -> CheckpointSpec:
        """Return the frozen form of a valid configuration."""
        return CheckpointSpec()

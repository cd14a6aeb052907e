"""Communication configuration, torch-free: the codecs that pooled rows and their gradients travel in."""

from dataclasses import dataclass

from neo.errors import Finding, unknown_name
from neo.registry import Registry

CODECS: Registry[type] = Registry("codec")
CODECS.register("fp32", "neo.comms.codecs:Fp32Codec")
PLANNED_CODECS = ("fp16", "bf16", "int8")


@dataclass(frozen=True)
class CommsSpec:
    """``comms.*``, resolved: one codec for pooled rows forward, one for their gradients backward."""

    forward: str = "fp32"
    backward: str = "fp32"


@dataclass
class CommsConfig:
    """``comms.*``."""

    forward: str = "fp32"
    backward: str = "fp32"

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``comms``."""
        chosen = (("forward", self.forward), ("backward", self.backward))
        return [
            unknown_name(key, name, "codec", CODECS.names(), planned=PLANNED_CODECS)
            for key, name in chosen
            if name not in CODECS
        ]

    def to_spec(self) -> CommsSpec:
        """Return the frozen form of a valid configuration."""
        return CommsSpec(self.forward, self.backward)

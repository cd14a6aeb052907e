"""Communication configuration, torch-free: which codecs pooled vectors and gradients travel in, and which way."""

import math
from dataclasses import dataclass
from enum import StrEnum

from neo.errors import Finding, unknown_name
from neo.registry import Registry

CODECS: Registry[type] = Registry("codec")
CODECS.register("fp32", "neo.comms.codecs:Fp32Codec")
CODECS.register("fp16", "neo.comms.half_codecs:Fp16Codec")
CODECS.register("bf16", "neo.comms.half_codecs:Bf16Codec")
CODECS.register("int8", "neo.comms.int8_codec:Int8RowwiseCodec")
_FULL_RANGE = ("fp32", "bf16", "int8")
"""Codecs that ignore a loss scale: they lose no gradient for being small."""

_SCALES = (2.0**-32, 2.0**64)
"""Beyond, products with gradients would leave the range of float32."""


class ExchangeMode(StrEnum):
    """The way of pooled vectors between nodes.

    ``FLAT`` is one all-to-all over all ranks. ``HIERARCHICAL`` gathers inside each node first, where partial sums of
    row shards are added, and then sends between ranks of the same place in their nodes. ``AUTO`` is hierarchical where
    there are several nodes of several ranks.
    """

    AUTO = "auto"
    FLAT = "flat"
    HIERARCHICAL = "hierarchical"


def is_hierarchical(mode: ExchangeMode, world_size: int, local_world_size: int) -> bool:
    """Return whether pooled vectors go by way of relays: where there are several nodes of several ranks."""
    return 1 < local_world_size < world_size and mode is not ExchangeMode.FLAT


@dataclass(frozen=True)
class CommsSpec:
    """``comms.*``, resolved.

    Attributes:
        forward: Codec of the pooled vectors.
        backward: Codec of their gradients.
        loss_scale: What gradients are multiplied by before a codec of little range writes them, rounded to a power of
            two; None takes the power of two next above the samples of the global batch, since a mean loss makes
            gradients smaller by as much.
        exchange: The way between nodes.

    Raises:
        ValueError: A name does not exist, or the loss scale is out of range or without effect; names each.
    """

    forward: str = "fp32"
    backward: str = "fp32"
    loss_scale: float | None = None
    exchange: ExchangeMode = ExchangeMode.AUTO

    def __post_init__(self) -> None:
        if findings := CommsConfig(self.forward, self.backward, self.loss_scale, self.exchange).validate():
            raise ValueError("CommsSpec: " + ", ".join(str(finding) for finding in findings))
        object.__setattr__(self, "exchange", ExchangeMode(self.exchange))  # a plain "flat" means the same

    @property
    def scale_rule(self) -> str | None:
        """The loss scale in words; None where the backward codec takes none."""
        if self.backward in _FULL_RANGE:
            return None
        if self.loss_scale is None:
            return "samples of the global batch, rounded up to a power of two"
        return f"{2.0 ** math.ceil(math.log2(self.loss_scale)):g}"

    def coded_keys(self) -> tuple[str, ...]:
        """Return which of ``forward`` and ``backward`` are not fp32."""
        return tuple(key for key in ("forward", "backward") if getattr(self, key) != "fp32")


@dataclass
class CommsConfig:
    """``comms.*``."""

    forward: str = "fp32"
    backward: str = "fp32"
    loss_scale: float | None = None
    exchange: str = "auto"

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``comms``."""
        chosen = (("forward", self.forward), ("backward", self.backward))
        findings = [unknown_name(key, name, "codec", CODECS.names()) for key, name in chosen if name not in CODECS]
        if self.exchange not in list(ExchangeMode):
            findings.append(unknown_name("exchange", self.exchange, "exchange", list(ExchangeMode)))
        if self.loss_scale is not None and not _SCALES[0] <= self.loss_scale <= _SCALES[1]:
            findings.append(Finding("loss_scale", f"{self.loss_scale} is outside [2^-32, 2^64], and is not null"))
        elif self.loss_scale is not None and self.backward in _FULL_RANGE:
            problem = f"{self.loss_scale} has no effect on gradients that travel in '{self.backward}'"
            findings.append(Finding("loss_scale", problem, "leave it out, or use comms.backward=fp16"))
        return findings

    def to_spec(self) -> CommsSpec:
        """Return the frozen form of a valid configuration."""
        return CommsSpec(self.forward, self.backward, self.loss_scale, ExchangeMode(self.exchange))

"""Codecs: how pooled rows and their gradients are written on the wire."""

from abc import ABC, abstractmethod

from torch import Tensor


class Codec(ABC):
    """Encodes a flat float32 tensor into as many wire elements, and back."""

    @abstractmethod
    def encode(self, tensor: Tensor) -> Tensor:
        """Return the wire form ``[n]`` of a flat float32 tensor ``[n]``."""

    @abstractmethod
    def decode(self, wire: Tensor) -> Tensor:
        """Return the float32 tensor ``[n]`` of a wire form ``[n]``."""


class Fp32Codec(Codec):
    """Sends the values as they are."""

    def encode(self, tensor: Tensor) -> Tensor:
        """Return ``tensor`` itself."""
        return tensor

    def decode(self, wire: Tensor) -> Tensor:
        """Return ``wire`` itself."""
        return wire

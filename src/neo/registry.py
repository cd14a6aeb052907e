"""One registry for everything that is chosen by name: ops, optimizers, codecs, partitioners, models, readers.

An entry is a string ``module:attr`` and is imported only when it is used, so that registering costs nothing
and the planning side never loads torch.
"""

import importlib
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

from neo.errors import UnknownNameError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind, each with the place of its implementation.

    Args:
        kind: What is registered, in the words of an error message: ``sparse optimizer``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._targets: dict[str, str] = {}

    def register(self, name: str, target: str) -> None:
        """Add ``name`` with its implementation ``module:attr``.

        Raises:
            ValueError: The name is taken by another target, or the target is not ``module:attr``.
        """
        if target.count(":") != 1:
            raise ValueError(f"{self.kind} '{name}': target '{target}' is not of the form module:attr")
        taken = self._targets.get(name)
        if taken is not None and taken != target:
            raise ValueError(f"{self.kind} '{name}' is registered twice: by {taken} and by {target}")
        self._targets[name] = target

    def get(self, name: str) -> T:
        """Import and return the implementation of ``name``.

        Raises:
            UnknownNameError: Nothing is registered under this name; the message lists what is.
        """
        if name not in self._targets:
            raise UnknownNameError(f"'{name}' is not a {self.kind}; {did_you_mean(name, self._targets)}")
        module, attribute = self._targets[name].split(":")
        return cast(T, getattr(importlib.import_module(module), attribute))

    def names(self) -> tuple[str, ...]:
        """Return the registered names in alphabetical order."""
        return tuple(sorted(self._targets))

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

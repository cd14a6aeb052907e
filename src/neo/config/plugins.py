"""Third-party packages: what the entry-point group ``neo.plugins`` may add.

An entry point names a function without arguments. It registers what it has (ops backends, codecs, models, …) in
neo's registries by ``module:attr`` strings, imports nothing heavy, and returns a ``Plugin``.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from neo.errors import NeoError

ENTRY_POINT_GROUP = "neo.plugins"


@dataclass(frozen=True)
class Plugin:
    """What a third-party package adds beside its registrations.

    Attributes:
        config_package: A Python package with config groups as sub-folders (``hardware/acme.yaml``), or None.
    """

    config_package: str | None = None


@cache
def load_plugins() -> tuple[Plugin, ...]:
    """Call every installed plugin's function once, in the order of their names.

    Raises:
        NeoError: A plugin cannot be loaded; the message names it and its package.
    """
    loaded = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda found: found.name):
        package = entry.dist.name if entry.dist is not None else "an unknown package"
        try:
            plugin = entry.load()()
        except Exception as error:
            raise NeoError(
                f"plugin '{entry.name}' of {package} ({entry.value}) cannot be loaded: {error}; "
                "update or uninstall that package"
            ) from error
        if not isinstance(plugin, Plugin):
            raise NeoError(
                f"plugin '{entry.name}' of {package} ({entry.value}) returned {type(plugin).__name__}; "
                "it has to return a neo.config.plugins.Plugin"
            )
        loaded.append(plugin)
    return tuple(loaded)

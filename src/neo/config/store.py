"""What neo tells Hydra: the root schema, and the config folders of plugins."""

from functools import cache

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from neo.config.plugins import load_plugins
from neo.config.schema import new_config

CONFIG_PATH = "pkg://neo.conf"
CONFIG_NAME = "config"


class NeoSearchPath(SearchPathPlugin):
    """Adds the config folders of neo's plugins behind neo's own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append one entry per plugin with a config package."""
        for plugin in load_plugins():
            if plugin.config_package is not None:
                search_path.append(provider=plugin.config_package, path=f"pkg://{plugin.config_package}")


@cache
def register() -> None:
    """Make the schema and the plugins known to Hydra; once per process.

    Raises:
        NeoError: A plugin cannot be loaded.
    """
    load_plugins()
    ConfigStore.instance().store(name="neo_schema", node=new_config())
    Plugins.instance().register(NeoSearchPath)

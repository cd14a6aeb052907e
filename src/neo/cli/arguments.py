"""The arguments of the commands that use a checkpoint."""

import argparse
from typing import NoReturn

from typing_extensions import override

from neo.errors import ConfigError, Finding

PATH_HELP = "a checkpoint, a folder of them, or a run folder: the newest complete one is taken"
OVERRIDES_HELP = "data.val_path=FILE, trainer.devices=2, sharding=row_wise, …"


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are findings like those in a configuration."""

    @override
    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError([Finding(self.prog, message, " ".join(self.format_usage().split()))])

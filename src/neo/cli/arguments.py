"""The arguments of the commands that use a checkpoint."""

import argparse
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

from neo.errors import ConfigError, Finding

PATH_HELP = "a checkpoint, a folder of them, or a run folder: the newest complete one is taken"
_OVERRIDES_HELP = "data.val_path=FILE, trainer.devices=2, sharding=row_wise, …"


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are findings like those in a configuration."""

    @override
    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError([Finding(self.prog, message, " ".join(self.format_usage().split()))])


def scoring_parser(prog: str, description: str, *, overrides: str = "") -> Parser:
    """Return the parser of a command that takes a checkpoint and overrides of its configuration.

    Args:
        prog: The command.
        description: What it does.
        overrides: When the overrides count, if not always.
    """
    parser = Parser(prog=prog, allow_abbrev=False, description=description)
    parser.add_argument("path", type=Path, help=PATH_HELP)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=overrides + _OVERRIDES_HELP)
    return parser

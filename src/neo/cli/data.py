"""``neo data check`` and ``neo data prepare``."""

import sys
from collections.abc import Sequence

from neo.cli.data_check import run_check
from neo.cli.data_prepare import run_prepare
from neo.errors import NeoError, did_you_mean

_USAGE = """usage: neo data COMMAND ...

  neo data check PATH [key=value ...]   what is wrong with a data set, and how its ids are spread
  neo data prepare RAW --out FOLDER     raw Criteo files (plain or compressed, a folder of days) to Parquet

neo data COMMAND --help says more."""
_COMMANDS = {"check": run_check, "prepare": run_prepare}


def run_data(arguments: Sequence[str]) -> int:
    """Run ``neo data COMMAND`` and return its exit code.

    Returns:
        0 done, and nothing was found; 1 something was found, or cannot be read; 2 the command is wrong.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    command = _COMMANDS.get(arguments[0])
    if command is None:
        print(f"neo data: '{arguments[0]}' is not a command; {did_you_mean(arguments[0], _COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return command(arguments[1:])
    except NeoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        named = f"{error.filename}: " if error.filename is not None else ""
        print(f"neo data: {named}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1

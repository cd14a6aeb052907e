"""The command ``neo``: ``neo train`` and ``neo plan``, with Hydra's overrides behind them."""

import sys
from collections.abc import Sequence

from neo.cli.command import run_command
from neo.config.purpose import Purpose
from neo.errors import did_you_mean

_COMMANDS = {
    "train": (Purpose.TRAIN, "plan, start the workers, train, validate"),
    "plan": (Purpose.PLAN, "plan only: where each table would go, and the bytes of each rank"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``neo COMMAND [overrides]`` and return its exit code.

    Returns:
        0 done; 2 the configuration is wrong, nothing was started; 3 the plan is infeasible; 1 anything else.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in _COMMANDS:
        return run_command(_COMMANDS[given[0]][0], given[1:])
    if not given or given[0] in ("-h", "--help"):
        print(_usage())
        return 0
    print(f"neo: '{given[0]}' is not a command; {did_you_mean(given[0], _COMMANDS)}", file=sys.stderr)
    return 2


def _usage() -> str:
    lines = ["usage: neo COMMAND [key=value ...]", ""]
    lines += [f"  neo {name:<6} {purpose}" for name, (_, purpose) in _COMMANDS.items()]
    lines += ["", "neo COMMAND --cfg job shows the configuration, neo COMMAND --help the choices."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""The command ``neo`` and its sub-commands; each is imported when it is asked for."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import neo
from neo.errors import did_you_mean


@dataclass(frozen=True)
class _Command:
    """A sub-command: ``module:function``, which takes the arguments and returns the exit code, and what it does."""

    run: str
    purpose: str


_COMMANDS = {
    "train": _Command("neo.cli.command:run_train", "plan, start the workers, train, validate"),
    "plan": _Command("neo.cli.command:run_plan", "plan only: where each table would go, and the bytes of each rank"),
    "doctor": _Command("neo.cli.doctor:run_doctor", "what of this installation works: one verdict, exit 0 or 1"),
    "eval": _Command("neo.cli.evaluate:run_eval", "metrics of a checkpoint, on its validation samples or on others"),
    "predict": _Command("neo.cli.predict:run_predict", "a score for every sample, written as Parquet"),
    "export": _Command("neo.cli.export:run_export", "a checkpoint as one unsharded model, in safetensors"),
    "checkpoint": _Command("neo.cli.checkpoint:run_checkpoint", "show PATH: what a checkpoint holds"),
    "data": _Command(
        "neo.cli.data:run_data", "check PATH: what is wrong with a data set; prepare RAW: raw Criteo as Parquet"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``neo COMMAND [arguments]`` and return its exit code.

    Returns:
        0 done; 2 the configuration is wrong, nothing was started; 3 the plan is infeasible; 1 anything else.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in _COMMANDS:
        module, name = _COMMANDS[given[0]].run.split(":")
        run = cast(Callable[[Sequence[str]], int], getattr(importlib.import_module(module), name))
        return run(given[1:])
    if given and given[0] == "--version":
        print(f"neo {neo.__version__}")
        return 0
    if not given or given[0] in ("-h", "--help"):
        print(_usage())
        return 0
    print(f"neo: '{given[0]}' is not a command; {did_you_mean(given[0], _COMMANDS)}", file=sys.stderr)
    return 2


def _usage() -> str:
    width = max(map(len, _COMMANDS))
    lines = ["usage: neo COMMAND [key=value ...]", ""]
    lines += [f"  neo {name:<{width}} {command.purpose}" for name, command in _COMMANDS.items()]
    lines += [
        "",
        "neo COMMAND --help says more; neo train --cfg job shows the configuration; neo --version.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

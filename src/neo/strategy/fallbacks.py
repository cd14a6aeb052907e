"""Everything that was replaced before and while the tables were built; with ``strict`` any of it ends the run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from neo.comms.collectives import TorchCollectives
from neo.errors import ConfigError
from neo.plan.strictness import strict_findings
from neo.strategy.collections import find_collections
from neo.strategy.spec import PLANNED_FACTS


class RefuseFallbacks(Callback):
    """End the run before its first step if any rank could not build its tables as planned."""

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Ask all ranks.

        Raises:
            ConfigError: Something was replaced; names all of it, on every rank.
        """
        own = [line for found in find_collections(pl_module).values() for line in found.fallbacks]
        ranks = cast(list[list[str]], TorchCollectives().all_gather_object(own))
        if findings := strict_findings([line for lines in ranks for line in lines]):
            raise ConfigError(findings)


def planned_fallbacks(run_dir: Path) -> tuple[str, ...]:
    """Return what the planner replaced, as the launching process left it; nothing where none did."""
    try:
        facts = json.loads((run_dir / PLANNED_FACTS).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return ()
    return tuple(facts.get("fallbacks", ()))


def all_fallbacks(*sources: Sequence[str]) -> tuple[str, ...]:
    """Return what was replaced, from every source, each once."""
    return tuple(dict.fromkeys(line for lines in sources for line in lines))

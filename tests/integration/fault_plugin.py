"""An installed package that breaks one rank of a run on purpose, steered by ``NEO_TEST_FAULT=KIND:RANK:STEP``.

Workers load it through the entry point ``neo.plugins`` like any other package; without the variable it does nothing.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from neo.config.plugins import Plugin

VARIABLE = "NEO_TEST_FAULT"


def plugin() -> Plugin:
    """Break this process if it is the rank that is to be broken."""
    kind, _, place = os.environ.get(VARIABLE, "").partition(":")
    rank, _, step = place.partition(":")
    if kind and os.environ.get("RANK") == rank:
        if kind == "plan":
            _swap_tables()
        else:
            _spoil_step(kind, int(step))
    return Plugin()


def _swap_tables() -> None:
    """Let this rank read a plan in which the first and the last table have changed places."""
    from neo.plan.plan_reader import read_plan
    from neo.plan.sharding_plan import ShardingPlan
    from neo.strategy import parts

    def swapped(path: Path, tables: Any) -> ShardingPlan:
        plan = read_plan(path, tables)
        first, *_, last = plan.tables
        assert plan.tables[first] != plan.tables[last]
        return replace(plan, tables={**plan.tables, first: plan.tables[last], last: plan.tables[first]})

    vars(parts)["read_plan"] = swapped


def _spoil_step(kind: str, step: int) -> None:
    """Put NaN into a dense column, or into the weights of a table of this rank, before one training step."""
    from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
    from neo.strategy.lightning_module import RecommendationModule

    train = RecommendationModule.training_step

    def spoiled(self: RecommendationModule, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step + 1 == step and kind == "dense":
            batch.dense[5, 2] = float("nan")
        if self.trainer.global_step + 1 == step and kind == "weights":
            (collection,) = (m for m in self.modules() if isinstance(m, EmbeddingBagCollection))
            for _, weight, _ in collection.engine.local_shards(1):
                weight.fill_(float("nan"))
        return train(self, batch, batch_idx)

    RecommendationModule.training_step = spoiled  # type: ignore[method-assign]

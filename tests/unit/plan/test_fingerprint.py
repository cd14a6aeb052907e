import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from neo.plan.fingerprint import plan_fingerprint
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, ShardingType, TablePlan, Tier
from neo.tables.spec import Pooling, TableSpec
from unit.plan.builders import plan_for, table, tables

T = tables(table("a", rows=10), table("b", rows=10))
PLAN = plan_for(T, "row_wise").plan
A = "model.embeddings.a"


def with_table(**changes: Any) -> ShardingPlan:
    changed: TablePlan = dataclasses.replace(PLAN.tables[A], **changes)
    return dataclasses.replace(PLAN, tables={**PLAN.tables, A: changed})


def swapped() -> ShardingPlan:
    shards = PLAN.tables[A].shards
    return with_table(shards=tuple(dataclasses.replace(shard, rank=1 - shard.rank) for shard in shards))


def test_the_order_of_tables_does_not_matter() -> None:
    turned = dataclasses.replace(PLAN, tables=dict(reversed(list(PLAN.tables.items()))))
    assert plan_fingerprint(turned, dict(reversed(list(T.items())))) == plan_fingerprint(PLAN, T)
    assert len(plan_fingerprint(PLAN, T)) == 16


@pytest.mark.parametrize(
    "other",
    [
        lambda: dataclasses.replace(PLAN, world_size=3),
        lambda: dataclasses.replace(PLAN, local_world_size=1),
        lambda: dataclasses.replace(PLAN, column_wise_semantics=ColumnWiseSemantics.EXACT),
        lambda: with_table(kernel="fbgemm"),
        lambda: with_table(tier=Tier.DDR),
        lambda: with_table(cache_bytes=1),
        lambda: with_table(sharding_type=ShardingType.COLUMN_WISE),
        lambda: dataclasses.replace(PLAN, tables={A: PLAN.tables[A]}),
        swapped,
    ],
)
def test_r29_every_field_of_the_plan_counts(other: Callable[[], ShardingPlan]) -> None:
    assert plan_fingerprint(other(), T) != plan_fingerprint(PLAN, T)


@pytest.mark.parametrize(
    "change",
    [
        {"num_embeddings": 11},
        {"embedding_dim": 4},
        {"feature_names": ("other",)},
        {"pooling": Pooling.MEAN},
        {"weighted": True},
    ],
)
def test_r29_every_field_of_a_table_that_training_depends_on_counts(change: dict[str, Any]) -> None:
    changed: dict[str, TableSpec] = T | {A: dataclasses.replace(T[A], **change)}
    assert plan_fingerprint(PLAN, changed) != plan_fingerprint(PLAN, T)


def test_r28_two_tables_swapped_are_found() -> None:
    plan = plan_for(T, "table_wise").plan
    first, second = plan.tables
    exchanged: dict[str, TablePlan] = {first: plan.tables[second], second: plan.tables[first]}
    assert plan_fingerprint(dataclasses.replace(plan, tables=exchanged), T) != plan_fingerprint(plan, T)

"""R7: initial values depend on the seed, the table and the row alone, and a shard never holds the whole table."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from neo.comms.collectives import Collectives
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.sharded.initial_values import fill_initial_values
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import plan_for

TABLES = [TableSpec("a", 23, 8, ("f",)), TableSpec("b", 300, 12, ("f",)), TableSpec("c", 5, 4, ("g",))]
PLANS = (*ShardingType, None)  # each type alone, and a mix


def _gathered(world_size: int, kind: ShardingType | None) -> list[torch.Tensor]:
    mix = [ShardingType.ROW_WISE, ShardingType.COLUMN_WISE, ShardingType.DATA_PARALLEL]
    plan = plan_for(TABLES, mix if kind is None else kind, world_size)

    def rank(comms: Collectives) -> list[torch.Tensor]:
        torch.manual_seed(1000 + comms.rank)
        np.random.seed(comms.rank)
        collection = EmbeddingBagCollection(TABLES, optimizer=SparseOptimizerSpec())
        keys = {table.name: f"model.{table.name}" for table in TABLES}
        moved = ShardingPlan(world_size, world_size, {keys[name]: placed for name, placed in plan.tables.items()})
        collection.shard(plan=moved, keys=keys, collectives=comms, device=torch.device("cpu"), seed=7)
        return [collection.full_weight(table.name) for table in TABLES]

    results = run_ranks(world_size, rank)
    assert all(torch.equal(x, y) for other in results for x, y in zip(results[0], other, strict=True))
    return results[0]


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_r7_initial_values_are_bit_equal_for_every_plan_and_world_size(
    world_size: int, kind: ShardingType | None
) -> None:
    expected = _gathered(1, ShardingType.TABLE_WISE)
    for table, want, got in zip(TABLES, expected, _gathered(world_size, kind), strict=True):
        assert torch.equal(want, got), table.name


def test_tables_seeds_and_keys_give_different_values_within_the_bound() -> None:
    table = TableSpec("a", 400, 8, ("f",))
    whole = Shard(0, 0, 400, 0, 8)
    made = []
    for key, seed in (("x.a", 0), ("y.a", 0), ("x.a", 1)):
        weight = torch.empty(400, 8)
        fill_initial_values(weight, table, whole, key=key, seed=seed)
        made.append(weight)
        assert weight.abs().max() <= 0.05  # 1 / sqrt(400)
        assert abs(float(weight.mean())) < 0.003
        assert float(weight.std()) == pytest.approx(0.05 / 3**0.5, rel=0.05)
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert len(torch.unique(made[0], dim=0)) == 400


MEASURE = r"""
import re, sys, torch
import neo.ops.fbgemm.pooled_lookup, neo.ops.reference.pooled_lookup
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec
from neo.comms.collectives import Collectives
class One(Collectives):
    def __init__(self): super().__init__(1, 4)
    def _all_to_all(self, *a): raise AssertionError
    def _all_reduce(self, t): raise AssertionError
    def all_gather_object(self, v): raise AssertionError
    def barrier(self): raise AssertionError
table = TableSpec("t", 1_000_000, 128, ("f",))  # 512 MB
shards = tuple(Shard(r, a, b, 0, 128) for r, (a, b) in enumerate(even_splits(1_000_000, 4)))
plan = ShardingPlan(4, 4, {"t": TablePlan(ShardingType.ROW_WISE, shards, sys.argv[1])})
def kib(field):
    return int(re.search(field + r":\s+(\d+)", open("/proc/self/status").read())[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew here
before = kib("VmRSS")
collection = EmbeddingBagCollection([table], optimizer=SparseOptimizerSpec())
collection.shard(plan=plan, keys={"t": "t"}, collectives=One(), device=torch.device("cpu"), seed=0)
print((kib("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("kernel", ["reference", "fbgemm"])
def test_r7_building_a_shard_grows_a_rank_by_its_shard_and_little_more(kernel: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, kernel], capture_output=True, text=True, check=True, timeout=120
    )
    grown_bytes = int(done.stdout.split()[-1])
    assert 120_000_000 < grown_bytes < 128_000_000 + 64_000_000

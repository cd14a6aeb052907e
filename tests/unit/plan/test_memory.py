import pytest

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.memory import MemoryBytes, capacity_per_rank, rank_bytes, table_bytes
from neo.plan.sharding_plan import Tier
from unit.plan.builders import GB, machine, plan_for, table, tables

MILLION = tables(table("t", rows=1_000_000, dim=64), prefix="")


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [("sgd", 0), ("rowwise_adagrad", 4_000_000), ("adagrad", 256_000_000), ("adam", 512_000_000)],
)
@pytest.mark.parametrize("mode", ["table_wise", "row_wise"])
def test_r24_bytes_of_weights_and_state(mode: str, optimizer: str, state: int) -> None:
    result = plan_for(MILLION, mode, world_size=4, optimizer=optimizer)
    spec = SparseOptimizerSpec(name=optimizer)
    assert table_bytes(result.plan.tables["t"], spec) == MemoryBytes(256_000_000, state)
    ranks = rank_bytes(result.plan, {"t": spec})
    assert sum(rank[Tier.HBM].total for rank in ranks) == 256_000_000 + state
    assert all(rank[tier].total == 0 for rank in ranks for tier in (Tier.DDR, Tier.SSD))


def test_r24_row_wise_state_of_column_shards_is_kept_by_each() -> None:
    result = plan_for(MILLION, "column_wise", world_size=4, optimizer="rowwise_adagrad")
    spec = SparseOptimizerSpec()
    assert table_bytes(result.plan.tables["t"], spec) == MemoryBytes(256_000_000, 4 * 4_000_000)


def test_r24_every_copy_of_a_data_parallel_table_counts() -> None:
    result = plan_for(MILLION, "data_parallel", world_size=4)
    assert table_bytes(result.plan.tables["t"], SparseOptimizerSpec(name="sgd")).total == 4 * 256_000_000


def test_a_rank_has_its_own_hbm_and_its_share_of_the_node() -> None:
    hardware = machine(hbm_bytes=40 * GB, ddr_bytes=800 * GB)
    assert capacity_per_rank(hardware) == {Tier.HBM: 40 * GB, Tier.DDR: 100 * GB, Tier.SSD: 0}
    assert capacity_per_rank(hardware.scaled_to(2))[Tier.DDR] == 100 * GB

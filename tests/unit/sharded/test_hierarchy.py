"""The hierarchical exchange: what crosses the nodes, counted and compared with arithmetic."""

from collections.abc import Callable

import pytest
import torch

from neo.comms.collectives import Collectives
from neo.comms.spec import CommsSpec, ExchangeMode
from neo.data.batch import SparseFeatures
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks

SAMPLES, DIM, ROWS = 6, 16, 40
HEADER = 8 + 1  # of the lengths exchange; one bag class


def row_wise(world_size: int, local_world_size: int) -> ShardingPlan:
    shards = [Shard(r, a, b, 0, DIM) for r, (a, b) in enumerate(even_splits(ROWS, world_size))]
    placed = {"t": TablePlan(ShardingType.ROW_WISE, tuple(shards), "reference")}
    return ShardingPlan(world_size, local_world_size, placed)


def step_bytes(plan: ShardingPlan, comms_spec: CommsSpec) -> Callable[[Collectives], tuple[int, int]]:
    """Return a rank's bytes between nodes in a forward, and in its backward; every sample reads an id of each rank."""

    def rank(comms: Collectives) -> tuple[int, int]:
        table = TableSpec("t", ROWS, DIM, ("f",))
        collection = EmbeddingBagCollection([table], optimizer=SparseOptimizerSpec("sgd"))
        device = torch.device("cpu")
        collection.shard(plan=plan, keys={"t": "t"}, collectives=comms, device=device, seed=0, comms=comms_spec)
        ids = torch.tensor([shard.row_begin for shard in plan.tables["t"].shards]).repeat(SAMPLES)
        batch = SparseFeatures(["f"], torch.full((SAMPLES,), plan.world_size), ids)
        collection(batch).sum().backward()  # capacities have grown now
        counts = [0, 0, 0]
        counts[0] = comms.traffic.between_nodes(comms.rank, plan.local_world_size)
        pooled = collection(batch)
        counts[1] = comms.traffic.between_nodes(comms.rank, plan.local_world_size)
        pooled.sum().backward()
        counts[2] = comms.traffic.between_nodes(comms.rank, plan.local_world_size)
        return counts[1] - counts[0], counts[2] - counts[1]

    return rank


@pytest.mark.parametrize(("world_size", "local_world_size"), [(4, 2), (6, 3), (8, 4), (8, 2)])
def test_row_wise_tables_send_one_local_world_size_th_between_nodes(world_size: int, local_world_size: int) -> None:
    plan = row_wise(world_size, local_world_size)
    elsewhere = world_size - local_world_size
    ids = elsewhere * (HEADER + SAMPLES + SAMPLES) * 8  # header, lengths and one id per sample to each rank elsewhere
    pooled = elsewhere * SAMPLES * DIM * 4
    flat = run_ranks(world_size, step_bytes(plan, CommsSpec(exchange=ExchangeMode.FLAT)))
    assert flat == [(ids + pooled, pooled)] * world_size
    for mode in (ExchangeMode.HIERARCHICAL, ExchangeMode.AUTO):
        hierarchical = run_ranks(world_size, step_bytes(plan, CommsSpec(exchange=mode)))
        assert hierarchical == [(ids + pooled // local_world_size, pooled // local_world_size)] * world_size


@pytest.mark.parametrize(
    ("codec", "vector_bytes"), [("fp32", 4 * DIM), ("fp16", 2 * DIM), ("bf16", 2 * DIM), ("int8", DIM + 8)]
)
@pytest.mark.parametrize("mode", [ExchangeMode.FLAT, ExchangeMode.HIERARCHICAL])
def test_codecs_shrink_what_travels(mode: ExchangeMode, codec: str, vector_bytes: int) -> None:
    plan = row_wise(4, 2)
    vectors = SAMPLES * (2 if mode is ExchangeMode.FLAT else 1)
    for forward, backward in (("fp32", codec), (codec, "fp32")):
        found = run_ranks(4, step_bytes(plan, CommsSpec(forward, backward, exchange=mode)))
        ids = 2 * (HEADER + 2 * SAMPLES) * 8
        there = vectors * (vector_bytes if forward == codec else 4 * DIM)
        back = vectors * (vector_bytes if backward == codec else 4 * DIM)
        assert found == [(ids + there, back)] * 4


def test_one_node_or_one_rank_per_node_is_flat() -> None:
    for local_world_size in (1, 4):
        plan = row_wise(4, local_world_size)
        found = [
            run_ranks(4, step_bytes(plan, CommsSpec(exchange=mode))) for mode in (ExchangeMode.AUTO, ExchangeMode.FLAT)
        ]
        assert found[0] == found[1]

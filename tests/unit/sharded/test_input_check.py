"""R18 and the errors of a batch that does not fit its tables: every rank raises, no weight changes, nothing hangs."""

import pytest
import torch

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures
from neo.data.spec import OutOfRange
from neo.errors import DataError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.sharded.input_check import feature_tables
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import PLACEMENTS, plan_for

TABLES = [TableSpec("small", 10, 4, ("f",)), TableSpec("neighbour", 10, 4, ("g",))]


def make(
    comms: Collectives, kind: ShardingType, policy: str = "error", kernel: str = "reference"
) -> EmbeddingBagCollection:
    collection = EmbeddingBagCollection(TABLES, optimizer=SparseOptimizerSpec("sgd", lr=1.0), out_of_range=policy)
    plan = plan_for(TABLES, kind, comms.world_size, kernel)
    keys = {table.name: table.name for table in TABLES}
    collection.shard(plan=plan, keys=keys, collectives=comms, device=torch.device("cpu"), seed=0)
    return collection


@pytest.mark.parametrize("kernel", ["reference", "fbgemm"])
@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("bad", [10, -1, 2**31])
def test_r18_out_of_range_ids_stop_every_rank_before_any_weight_changes(
    bad: int, kind: ShardingType, kernel: str
) -> None:
    def rank(comms: Collectives) -> tuple[str, bool]:
        collection = make(comms, kind, kernel=kernel)
        before = [collection.full_weight(table.name) for table in TABLES]
        ids = torch.tensor([9, 9, bad, 1, 1]) if comms.rank == 1 else torch.tensor([9, 0, 1, 1, 1])
        batch = SparseFeatures(["f", "g"], torch.tensor([1, 2, 1, 1]), ids)
        with pytest.raises(DataError) as caught:
            collection(batch)
        after = [collection.full_weight(table.name) for table in TABLES]
        return str(caught.value), all(torch.equal(x, y) for x, y in zip(before, after, strict=True))

    expected = (
        f"rank 1: id {bad} of feature 'f' (sample 1 of the rank's batch, position 1) is outside table 'small', "
        f"range [0, 10); no weight was changed; fix the data, or set out_of_range to clamp_zero or drop"
    )
    for text, unchanged in run_ranks(2, rank):
        assert text == expected
        assert unchanged


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize(("policy", "moved"), [("clamp_zero", [0, 9]), ("drop", [9])])
def test_r18_policies_repair_and_count(policy: str, moved: list[int], kind: ShardingType) -> None:
    def rank(comms: Collectives) -> tuple[torch.Tensor, torch.Tensor, dict[str, int]]:
        collection = make(comms, kind, policy)
        before = [collection.full_weight(table.name) for table in TABLES]
        ids = torch.tensor([9, 10, -1]) if comms.rank == 1 else torch.tensor([9])
        lengths = torch.tensor([len(ids), 0])
        pooled = collection(SparseFeatures(["f", "g"], lengths, ids))
        pooled.backward(torch.ones_like(pooled))
        after = [collection.full_weight(table.name) for table in TABLES]
        return (before[0] - after[0]).abs().sum(dim=1), before[1] - after[1], collection.out_of_range_counts

    for rank_number, (changed, neighbour, counts) in enumerate(run_ranks(2, rank)):
        assert changed.nonzero().flatten().tolist() == moved
        assert torch.equal(neighbour, torch.zeros_like(neighbour))
        assert counts == {"small": 2 if rank_number == 1 else 0, "neighbour": 0}


def test_a_missing_feature_is_named_and_other_features_are_left_out() -> None:
    def rank(comms: Collectives) -> tuple[str, torch.Size]:
        collection = make(comms, ShardingType.TABLE_WISE)
        more = SparseFeatures(["unused", "g", "f"], torch.tensor([1, 0, 1]), torch.tensor([77, 3]))
        pooled = collection(more)
        with pytest.raises(DataError) as caught:
            collection(SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1])))
        return str(caught.value), pooled.shape

    for rank_number, (text, shape) in enumerate(run_ranks(2, rank)):
        assert text == (
            f"rank {rank_number}: the batch has no feature 'g' for table 'neighbour'; it has ('f',); "
            f"no weight was changed"
        )
        assert shape == (1, 8)


def test_keys_may_come_in_any_order() -> None:
    def rank(comms: Collectives) -> bool:
        collection = make(comms, ShardingType.ROW_WISE)
        one = collection(SparseFeatures(["f", "g"], torch.tensor([2, 1, 0, 1]), torch.tensor([1, 2, 3, 4])))
        other = collection(SparseFeatures(["g", "f"], torch.tensor([0, 1, 2, 1]), torch.tensor([4, 1, 2, 3])))
        return torch.equal(one, other)

    assert run_ranks(2, rank) == [True, True]


def test_what_a_collection_refuses_to_be_built_from() -> None:
    weighted = TableSpec("w", 10, 4, ("f",), weighted=True)
    with pytest.raises(UnsupportedError, match="feature 'f' is read by the unweighted table 'small' and by 'w', which"):
        feature_tables([TABLES[0], weighted], OutOfRange.ERROR)
    larger = TableSpec("large", 20, 4, ("f",))
    with pytest.raises(
        UnsupportedError, match="out_of_range=drop is not defined for feature 'f', which reads tables of"
    ):
        feature_tables([TABLES[0], larger], OutOfRange.DROP)
    assert feature_tables([larger, TABLES[0]], OutOfRange.ERROR)[0].num_embeddings == 10
    with pytest.raises(ValueError, match="needs at least one table and unique names"):
        EmbeddingBagCollection([TABLES[0], TABLES[0]])
    with pytest.raises(ValueError, match="out_of_range: 'clamp' is not a policy; did you mean 'clamp_zero'"):
        EmbeddingBagCollection(TABLES, out_of_range="clamp")


def test_an_unsharded_collection_says_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match=r"no storage yet; train it with Trainer\(strategy=NeoStrategy"):
        EmbeddingBagCollection(TABLES)(SparseFeatures(["f", "g"], torch.tensor([0, 0]), torch.tensor([1])[:0]))

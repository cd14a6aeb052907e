"""Sequence outputs and variable batches: shapes, values, gradients, and what is refused."""

import numpy as np
import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures
from neo.errors import DataError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec
from neo.testing.fake_collectives import run_ranks
from placements import PLACEMENTS, plan_for

TABLES = (TableSpec("words", 6, 4, ("w",), Pooling.NONE), TableSpec("user", 5, 4, ("u",)))


def sharded(comms: Collectives, kind: ShardingType, *, variable_batch: bool = False) -> EmbeddingBagCollection:
    collection = EmbeddingBagCollection(
        TABLES, optimizer=SparseOptimizerSpec("sgd", lr=1.0), variable_batch=variable_batch
    )
    plan = plan_for(TABLES, kind, comms.world_size)
    keys = {table.name: table.name for table in TABLES}
    collection.shard(plan=plan, keys=keys, collectives=comms, device=torch.device("cpu"), seed=0)
    for index, table in enumerate(TABLES):
        for shard, weight, _ in collection.engine.local_shards(index):
            rows = torch.arange(float(table.num_embeddings)).unsqueeze(1).repeat(1, 4)
            weight.copy_(rows[shard.row_begin : shard.row_end, shard.column_begin : shard.column_end])
    return collection


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_table_without_pooling_gives_a_row_per_id(kind: ShardingType) -> None:
    lengths = {0: [3, 0, 1, 1], 1: [2, 1]}
    values = {0: [5, 5, 1, 4, 2], 1: [0, 5, 3]}  # words of both samples, then users

    def rank(comms: Collectives) -> tuple[Tensor, Tensor, Tensor]:
        collection = sharded(comms, kind)
        batch = SparseFeatures(["w", "u"], torch.tensor(lengths[comms.rank]), torch.tensor(values[comms.rank]))
        outputs = collection.lookup(batch)
        assert list(outputs) == ["words.w", "user.u"]
        (outputs["words.w"].sum() + outputs["user.u"].sum()).backward()
        return outputs["words.w"].detach(), outputs["user.u"].detach(), collection.full_weight("words")

    results = run_ranks(2, rank)
    assert [words[:, 0].tolist() for words, _, _ in results] == [[5, 5, 1], [0, 5]]
    assert [users[:, 0].tolist() for _, users, _ in results] == [[4, 2], [3]]
    # The loss of a rank counts half: ids 5 (three times), 1 and 0 move by half their count.
    for _, _, weight in results:
        assert weight[:, 0].tolist() == [-0.5, 0.5, 2.0, 3.0, 4.0, 3.5]


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_features_of_a_variable_batch_have_their_own_number_of_bags(kind: ShardingType) -> None:
    def rank(comms: Collectives) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        collection = sharded(comms, kind, variable_batch=True)
        # Rank 0: one bag of words, three users; rank 1: no words at all, one user.
        own = comms.rank == 0
        batch = SparseFeatures(
            ["w", "u"],
            torch.tensor([2, 1, 1, 1] if own else [1]),
            torch.tensor([1, 2, 0, 3, 4] if own else [2]),
            bag_counts=[1, 3] if own else [0, 1],
            batch_size=3 if own else 1,
        )
        outputs = collection.lookup(batch)
        return outputs["words.w"], outputs["user.u"], collection.last_batch_sizes

    (words, users, sizes), (no_words, one_user, _) = run_ranks(2, rank)
    assert words[:, 0].tolist() == [1, 2] and users[:, 0].tolist() == [0, 3, 4] and sizes == (3, 1)
    assert no_words.shape == (0, 4) and one_user[:, 0].tolist() == [2]


def test_outputs_that_do_not_fit_one_matrix_are_read_by_name() -> None:
    def rank(comms: Collectives) -> str:
        collection = sharded(comms, ShardingType.TABLE_WISE)
        batch = SparseFeatures(["w", "u"], torch.tensor([1, 1]), torch.tensor([1, 2]))
        with torch.no_grad(), pytest.raises(UnsupportedError) as caught:
            collection(batch)
        return str(caught.value)

    for text in run_ranks(2, rank):
        assert "has sequence outputs (pooling=none) or a variable batch" in text
        assert "collection.lookup(sparse)" in text


def test_a_variable_batch_must_be_announced() -> None:
    def rank(comms: Collectives) -> str:
        collection = sharded(comms, ShardingType.TABLE_WISE)
        counts = [1, 2] if comms.rank == 0 else None
        batch = SparseFeatures(
            ["w", "u"],
            torch.tensor([1, 1, 1] if counts else [1, 1]),
            torch.tensor([1, 2, 2] if counts else [1, 2]),
            bag_counts=counts,
        )
        with pytest.raises(DataError) as caught:
            collection.lookup(batch)
        return str(caught.value)

    first, second = run_ranks(2, rank)
    assert "a bag count for each feature ((1, 2)); build the EmbeddingBagCollection with variable_batch=True" in first
    assert second.startswith("rank 0 refused its batch")


def test_a_weighted_sequence_is_refused() -> None:
    with pytest.raises(
        ValueError, match="table 't': pooling=none returns each id's row as it is and takes no per-sample"
    ):
        TableSpec("t", 4, 4, ("f",), Pooling.NONE, weighted=True)


@pytest.mark.parametrize(
    ("bag_counts", "batch_size", "text"),
    [
        ([1], None, "there are 1 bag_counts for 2 keys"),
        ([1, 1], None, "bag_counts (1, 1) do not add up to the 3 lengths"),
        ([4, -1], None, "bag_counts (4, -1) do not add up to the 3 lengths"),
        (None, 3, "batch_size goes with bag_counts"),
    ],
)
def test_malformed_variable_batches(bag_counts: list[int] | None, batch_size: int | None, text: str) -> None:
    lengths = torch.tensor([1, 1, 1] if bag_counts else [1, 1])
    with pytest.raises(DataError) as caught:
        SparseFeatures(["a", "b"], lengths, torch.ones_like(lengths), bag_counts=bag_counts, batch_size=batch_size)
    assert text in str(caught.value)


def test_a_bad_id_of_a_variable_batch_is_located() -> None:
    def rank(comms: Collectives) -> str:
        collection = sharded(comms, ShardingType.ROW_WISE, variable_batch=True)
        batch = SparseFeatures(
            ["w", "u"], torch.tensor([1, 1, 2]), torch.tensor([1, 2, 3, 9]), bag_counts=[1, 2], batch_size=2
        )
        with pytest.raises(DataError) as caught:
            collection.lookup(batch)
        return str(caught.value)

    for text in run_ranks(2, rank):
        assert (
            "id 9 of feature 'u' (sample 1 of the rank's batch, position 1) is outside table 'user', range [0, 5)"
            in text
        )


def test_negative_lengths_of_a_variable_batch_are_located() -> None:
    with pytest.raises(DataError, match="length -1 of feature 'b', sample 1 is negative"):
        SparseFeatures(["a", "b"], torch.tensor([1, 1, -1]), torch.tensor([1]), bag_counts=[1, 2])


def test_moving_a_variable_batch_keeps_its_shape() -> None:
    batch = SparseFeatures(
        ["a", "b"], torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3]), bag_counts=[1, 2], batch_size=5
    )
    moved = batch.to("cpu")
    assert moved.batch_size == 5 and moved.bag_counts == (1, 2)
    assert [part.tolist() for part in moved.bag_lengths] == [[1], [1, 1]]
    assert moved.count_ids() == [1, 2]
    assert np.array_equal(moved.values.numpy(), [1, 2, 3])

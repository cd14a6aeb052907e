"""R1 to R6 and R16 on in-process ranks, for every placement."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures, split_evenly
from neo.errors import DataError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec
from neo.testing.fake_collectives import run_ranks
from neo.testing.oracle import ReferenceInput
from neo.testing.sharded_run import GlobalStep, RunResult, column_blocks_of, part_of, run_reference, run_sharded
from placements import COLUMN_SPLIT, PLACEMENTS, plan_for

KERNELS = ("reference", "fbgemm")
every_placement = pytest.mark.parametrize("kind", PLACEMENTS)
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def build(
    comms: Collectives,
    tables: Sequence[TableSpec],
    plan: ShardingPlan,
    optimizer: SparseOptimizerSpec,
    fill: Callable[[TableSpec], Tensor],
    out_of_range: str = "error",
) -> EmbeddingBagCollection:
    """Return a sharded collection whose tables hold ``fill(table)``."""
    collection = EmbeddingBagCollection(tables, optimizer=optimizer, out_of_range=out_of_range)
    keys = {table.name: table.name for table in tables}
    collection.shard(plan=plan, keys=keys, collectives=comms, device=torch.device("cpu"), seed=0)
    for index, table in enumerate(tables):
        for shard, weight, _ in collection.engine.local_shards(index):
            whole = fill(table)
            weight.copy_(whole[shard.row_begin : shard.row_end, shard.column_begin : shard.column_end])
    return collection


def zeros(table: TableSpec) -> Tensor:
    return torch.zeros(table.num_embeddings, table.embedding_dim)


def row_numbers(table: TableSpec) -> Tensor:
    return torch.arange(float(table.num_embeddings)).unsqueeze(1).repeat(1, table.embedding_dim)


@every_kernel
@every_placement
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_r1_gradient_scale_does_not_depend_on_placement(world_size: int, kind: ShardingType, kernel: str) -> None:
    table = TableSpec("t", 8, 4, ("f",))
    plan = plan_for([table], kind, world_size, kernel)

    def rank(comms: Collectives) -> Tensor:
        collection = build(comms, [table], plan, SparseOptimizerSpec("sgd", lr=1.0), zeros)
        begin, end = split_evenly(4, comms.rank, world_size)
        ids = torch.arange(begin, end)
        pooled = collection(SparseFeatures(["f"], torch.ones_like(ids), ids))
        (pooled.sum(dim=1).mean() * collection.loss_weight).backward()
        return collection.full_weight("t")

    expected = torch.zeros(8, 4)
    expected[:4] = -0.25
    for weight in run_ranks(world_size, rank):
        torch.testing.assert_close(weight, expected, rtol=0, atol=0)


@every_kernel
@every_placement
def test_r2_mean_pooling_over_split_bags(kind: ShardingType, kernel: str) -> None:
    tables = [TableSpec("tm", 4, 4, ("m",), Pooling.MEAN), TableSpec("ts", 4, 4, ("s",), Pooling.SUM)]
    plan = plan_for(tables, kind, 2, kernel)
    lengths, values = torch.tensor([3, 0, 2, 1]), torch.tensor([0, 1, 3, 1, 3, 2])

    def rank(comms: Collectives) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        collection = build(comms, tables, plan, SparseOptimizerSpec("sgd", lr=1.0), row_numbers)
        own = comms.rank == 0  # rank 0 brings both samples, rank 1 none
        kept_lengths = lengths.clone() if own else torch.zeros(0, dtype=torch.int64)
        kept_values = values.clone() if own else torch.zeros(0, dtype=torch.int64)
        pooled = collection(SparseFeatures(["m", "s"], kept_lengths, kept_values))
        gradient = torch.zeros_like(pooled)
        gradient[:, :4] = 2.0  # a mean over two ranks: the global gradient is one
        pooled.backward(gradient)
        return pooled.detach(), collection.full_weight("tm"), kept_lengths, kept_values

    (pooled, weight, kept_lengths, kept_values), (nothing, _, _, _) = run_ranks(2, rank)
    expected = torch.tensor([[4 / 3] * 4 + [4.0] * 4, [0.0] * 4 + [2.0] * 4])
    torch.testing.assert_close(pooled, expected)
    assert nothing.shape == (0, 8)
    third = 1 / 3
    torch.testing.assert_close(
        row_numbers(tables[0]) - weight, torch.tensor([third, third, 0.0, third]).unsqueeze(1).repeat(1, 4)
    )
    assert torch.equal(kept_lengths, lengths) and torch.equal(kept_values, values)


@every_kernel
@every_placement
@pytest.mark.parametrize("training", [True, False])
def test_r3_weighted_bags(kind: ShardingType, kernel: str, training: bool) -> None:
    tables = [
        TableSpec("ts", 4, 4, ("s",), Pooling.SUM, weighted=True),
        TableSpec("tm", 4, 4, ("s",), Pooling.MEAN, weighted=True),
        TableSpec("tz", 4, 4, ("z",), Pooling.MEAN, weighted=True),
    ]
    plan = plan_for(tables, kind, 2, kernel)

    def rank(comms: Collectives) -> tuple[Tensor, Tensor | None]:
        collection = build(comms, tables, plan, SparseOptimizerSpec("sgd", lr=0.0), row_numbers)
        weights = torch.tensor([10.0, 100.0, 0.0, 0.0], requires_grad=training)
        batch = SparseFeatures(["s", "z"], torch.tensor([2, 2]), torch.tensor([1, 2, 1, 2]), weights)
        with torch.set_grad_enabled(training):
            pooled = collection(batch)
        if training:
            gradient = torch.zeros_like(pooled)
            gradient[0, 0] = 1.0  # one column of the sum
            pooled.backward(gradient)
        return pooled.detach(), weights.grad

    for pooled, gradient in run_ranks(2, rank):
        torch.testing.assert_close(pooled, torch.tensor([[210.0] * 4 + [210 / 110] * 4 + [0.0] * 4]))
        if training:
            assert gradient is not None
            torch.testing.assert_close(gradient, torch.tensor([1.0, 2.0, 0.0, 0.0]))  # each id's own row


@pytest.mark.parametrize(
    ("table_is_weighted", "text"),
    [
        (False, "rank 0: feature 'f' comes with weights, but table 't' is unweighted; declare the table with "),
        (True, "rank 0: feature 'f' comes without weights, but table 't' is weighted; give one weight per id or "),
    ],
)
def test_r3_weights_where_none_belong_and_none_where_they_do(table_is_weighted: bool, text: str) -> None:
    table = TableSpec("t", 4, 4, ("f",), weighted=table_is_weighted)
    plan = plan_for([table], ShardingType.ROW_WISE, 2)

    def rank(comms: Collectives) -> str:
        collection = build(comms, [table], plan, SparseOptimizerSpec("sgd"), zeros)
        wrong = comms.rank == 0
        weights = torch.ones(1) if wrong != table_is_weighted else None
        with pytest.raises(DataError) as caught:
            collection(SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1]), weights))
        return str(caught.value)

    first, second = run_ranks(2, rank)
    assert first.startswith(text)
    assert second == "rank 0 refused its batch (its own message says why); no weight was changed"


@every_kernel
@every_placement
def test_r4_one_exact_step_per_global_batch(kind: ShardingType, kernel: str) -> None:
    table = TableSpec("t", 4, 4, ("f",))
    world_size = 2
    plan = plan_for([table], kind, world_size, "reference" if kind in COLUMN_SPLIT else kernel)

    def rank(comms: Collectives) -> tuple[Tensor, Tensor]:
        collection = build(comms, [table], plan, SparseOptimizerSpec("rowwise_adagrad", lr=0.1, eps=0.0), zeros)
        samples = 2 // world_size
        pooled = collection(SparseFeatures(["f"], torch.ones(samples, dtype=torch.int64), torch.full((samples,), 2)))
        parts = torch.tensor([1.0, 3.0]).view(world_size, samples)[comms.rank]
        pooled.backward(parts.unsqueeze(1).repeat(1, 4) * world_size)
        return collection.full_weight("t"), collection.full_state("t")["sum"]

    for weight, accumulator in run_ranks(world_size, rank):
        torch.testing.assert_close(weight[2], torch.full((4,), -0.1))
        assert accumulator.tolist() == [0.0, 0.0, 16.0, 0.0]


@every_placement
@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"])
def test_r5_rows_that_no_sample_touched_do_not_change(kind: ShardingType, name: str) -> None:
    table = TableSpec("t", 6, 4, ("f",))
    plan = plan_for([table], kind, 2)

    def rank(comms: Collectives) -> tuple[Tensor, Tensor]:
        collection = build(comms, [table], plan, SparseOptimizerSpec(name, lr=0.1, eps=1e-8), row_numbers)
        # Step 1 touches row 5, so that Adam has momentum there; steps 2 and 3 only row 1.
        for touched in (5, 1, 1):
            pooled = collection(SparseFeatures(["f"], torch.tensor([1]), torch.tensor([touched])))
            pooled.backward(torch.ones_like(pooled))
            if touched == 5:
                after_first = collection.full_weight("t")
        return after_first, collection.full_weight("t")

    for after_first, last in run_ranks(2, rank):
        untouched = [0, 2, 3, 4, 5]
        assert torch.equal(after_first[untouched], last[untouched])
        assert torch.equal(last[[0, 2, 3, 4]], row_numbers(table)[[0, 2, 3, 4]])
        assert (last[1] < row_numbers(table)[1]).all() and (last[5] < row_numbers(table)[5]).all()


ROW_WISE_OPTIMIZERS = ("rowwise_adagrad", "partial_rowwise_adam")


def _three_steps(dim: int, world_size: int) -> list[GlobalStep]:
    rng = np.random.default_rng(0)
    splits = tuple(2 if rank == 0 else 1 for rank in range(world_size))
    steps = []
    for _ in range(3):
        lengths = rng.integers(0, 4, (1, sum(splits)))
        ids = rng.integers(0, 5, lengths.sum())
        steps.append(
            GlobalStep(ReferenceInput(("f",), lengths, ids), rng.integers(-4, 5, (sum(splits), dim)) / 4, splits)
        )
    return steps


@pytest.mark.parametrize("name", ROW_WISE_OPTIMIZERS)
@pytest.mark.parametrize("kind", COLUMN_SPLIT)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_r6_column_shards_share_the_squares_of_a_row(world_size: int, kind: ShardingType, name: str) -> None:
    table = TableSpec("t", 5, 8, ("f",))
    plan = plan_for([table], kind, world_size)
    optimizer = SparseOptimizerSpec(name, lr=0.5, eps=2.0**-6)
    steps = _three_steps(8, world_size)

    def rank(comms: Collectives) -> RunResult:
        return run_sharded(comms, [table], plan=plan, optimizer=optimizer, steps=steps, weighted=[False])

    results = run_ranks(world_size, rank)
    exact, reference = run_reference(
        [table], initial=results[0].initial, optimizer=optimizer, steps=steps, column_blocks={}
    )
    for result in results:
        assert result.tables["t"] == pytest.approx(exact.tables["t"], abs=2e-6 * np.abs(exact.tables["t"]).max())
        for state, want in reference.states("t").items():  # one value per logical row
            assert result.states["t"][state] == pytest.approx(want, rel=1e-5, abs=1e-9)


def test_r6_column_shards_of_a_row_keep_the_same_bits() -> None:
    table = TableSpec("t", 5, 7, ("f",))
    plan = plan_for([table], ShardingType.COLUMN_WISE, 3)
    steps = _three_steps(7, 3)

    def rank(comms: Collectives) -> list[Tensor]:
        optimizer = SparseOptimizerSpec("rowwise_adagrad", lr=0.5)
        collection = build(comms, [table], plan, optimizer, row_numbers)
        for step in steps:
            features, _ = part_of(step, comms.rank, [False])
            begin, end = step.bags_of("f", comms.rank)
            assert isinstance(step.gradient, np.ndarray)
            collection(features).backward(torch.from_numpy(step.gradient[begin:end]).float() / 3)
        return [states["sum"] for _, _, states in collection.engine.local_shards(0)]

    (first,), (second,), (third,) = run_ranks(3, rank)
    assert first.any() and torch.equal(first, second) and torch.equal(first, third)


def test_r6_only_the_squares_of_touched_rows_travel() -> None:
    """4 bytes per touched row and further column shard; no ids."""
    table = TableSpec("t", 50, 8, ("f",))
    plan = plan_for([table], ShardingType.COLUMN_WISE, 2)

    def bytes_of(optimizer: str) -> Callable[[Collectives], int]:
        def rank(comms: Collectives) -> int:
            collection = build(comms, [table], plan, SparseOptimizerSpec(optimizer, lr=0.5), row_numbers)
            pooled = collection(SparseFeatures(["f"], torch.tensor([4]), torch.tensor([1, 7, 7, 30 + comms.rank])))
            pooled.backward(torch.ones_like(pooled))
            return comms.traffic.sent_bytes[1 - comms.rank]

        return rank

    shared, own = run_ranks(2, bytes_of("rowwise_adagrad")), run_ranks(2, bytes_of("adagrad"))
    assert [a - b for a, b in zip(shared, own, strict=True)] == [4 * 4, 4 * 4]  # rows 1, 7, 30, 31


def test_r6_a_kernel_without_a_place_for_the_sum_is_refused() -> None:
    table = TableSpec("t", 5, 8, ("f",))
    plan = plan_for([table], ShardingType.COLUMN_WISE, 2, "fbgemm")

    def rank(comms: Collectives) -> str:
        with pytest.raises(UnsupportedError) as caught:
            build(comms, [table], plan, SparseOptimizerSpec("rowwise_adagrad"), zeros)
        return str(caught.value)

    assert set(run_ranks(2, rank)) == {
        "table 't' cannot have kernel fbgemm: fbgemm does not share a row's rowwise_adagrad state over column shards; "
        "use kernel auto"
    }


@every_kernel
def test_r6_column_shards_with_a_state_of_their_own_follow_their_own_reference(kernel: str) -> None:
    table = TableSpec("t", 5, 8, ("f",))
    plan = plan_for([table], ShardingType.COLUMN_WISE, 2, kernel)
    optimizer = SparseOptimizerSpec("rowwise_adagrad", lr=0.5, eps=0.0)
    batch = ReferenceInput(("f",), np.array([[1, 2]]), np.array([3, 3, 1]))
    gradient = np.arange(16.0).reshape(2, 8) / 4 + 0.25
    steps = [GlobalStep(batch, gradient, (1, 1))]

    def rank(comms: Collectives) -> RunResult:
        return run_sharded(
            comms,
            [table],
            plan=plan,
            optimizer=optimizer,
            steps=steps,
            weighted=[False],
            semantics=ColumnWiseSemantics.PER_SHARD,
        )

    result = run_ranks(2, rank)[0]
    own, _ = run_reference(
        [table], initial=result.initial, optimizer=optimizer, steps=steps, column_blocks=column_blocks_of(plan)
    )
    exact, _ = run_reference([table], initial=result.initial, optimizer=optimizer, steps=steps, column_blocks={})
    assert result.tables["t"] == pytest.approx(own.tables["t"], abs=2e-6)
    # It is a different update, which is why plan and summary must say so.
    assert np.abs(result.tables["t"] - exact.tables["t"]).max() > 0.01


@every_kernel
@every_placement
def test_r16_learning_rate_schedule_reaches_the_tables(kind: ShardingType, kernel: str) -> None:
    table = TableSpec("t", 4, 4, ("f",))
    plan = plan_for([table], kind, 2, kernel)

    def rank(comms: Collectives) -> list[float]:
        collection = build(comms, [table], plan, SparseOptimizerSpec("sgd", lr=0.1), zeros)
        seen = [0.0]
        for lr in (0.1, 0.1, 0.05):
            collection.set_learning_rate(lr)
            pooled = collection(SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1])))
            pooled.backward(torch.ones_like(pooled))
            seen.append(float(collection.full_weight("t")[1, 0]))
        return np.diff(seen).tolist()

    for deltas in run_ranks(2, rank):
        assert deltas == pytest.approx([-0.1, -0.1, -0.05], abs=1e-7)

"""What ranks disagree about, and what is written wrongly: refused by name on every rank, or taken as it is meant."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives, TorchCollectives
from neo.comms.spec import CommsSpec, ExchangeMode
from neo.data.batch import SparseFeatures
from neo.errors import ConfigError, DataError, UnsupportedError
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingPlan, ShardingType, TablePlan, Tier
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec, WeightsDtype
from neo.testing.fake_collectives import run_ranks
from placements import plan_for
from worker_pool import WorkerPool

CPU = torch.device("cpu")


def sharded(
    comms: Collectives, tables: Sequence[TableSpec], plan: ShardingPlan, **options: Any
) -> EmbeddingBagCollection:
    collection = EmbeddingBagCollection(tables, optimizer=SparseOptimizerSpec("sgd", lr=1.0))
    keys = {table.name: table.name for table in tables}
    collection.shard(plan=plan, keys=keys, collectives=comms, device=CPU, seed=0, **options)
    return collection


def weighted_step(comms: Collectives, wanting: Sequence[bool]) -> list[float] | None:
    """Run a step in which only some ranks want gradients of their weights; the table is on rank 1."""
    table = TableSpec("t", 4, 4, ("f",), weighted=True)
    plan = ShardingPlan(2, 2, {"t": TablePlan(ShardingType.TABLE_WISE, (Shard(1, 0, 4, 0, 4),), "reference")})
    collection = sharded(comms, [table], plan)
    for _, weight, _ in collection.engine.local_shards(0):
        weight.fill_(0.5)
    weights = torch.ones(2, requires_grad=wanting[comms.rank])
    collection(SparseFeatures(["f"], torch.tensor([2]), torch.tensor([1, 3]), weights)).sum().backward()
    assert collection.full_weight("t")[:, 0].tolist() == [0.5, -0.5, 0.5, -0.5]  # the mean over ranks of 1 and 1
    return None if weights.grad is None else weights.grad.tolist()


@pytest.mark.parametrize("wanting", [(True, True), (True, False), (False, True), (False, False)])
def test_weights_may_want_gradients_on_some_ranks_only(wanting: tuple[bool, bool]) -> None:
    found = run_ranks(2, lambda comms: weighted_step(comms, wanting))
    assert found == [[2.0, 2.0] if wanted else None for wanted in wanting]


def gloo_weighted_step(wanting: Sequence[bool]) -> list[float] | None:
    return weighted_step(TorchCollectives(), wanting)


def test_weights_may_want_gradients_on_some_ranks_only_on_gloo(worker_pool: WorkerPool) -> None:
    assert worker_pool.run(2, gloo_weighted_step, (True, False), timeout_s=20) == [[2.0, 2.0], None]


def test_a_forward_with_gradients_on_some_ranks_only_is_refused() -> None:
    table = TableSpec("t", 4, 4, ("f",))
    plan = plan_for([table], ShardingType.ROW_WISE, 3)

    def rank(comms: Collectives) -> str:
        collection = sharded(comms, [table], plan)
        batch = SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1]))
        with torch.set_grad_enabled(comms.rank != 1), pytest.raises(UnsupportedError) as caught:
            collection(batch)
        return str(caught.value)

    text = (
        "ranks [1] of 3 run this forward of the EmbeddingBagCollection without gradients (torch.no_grad or inference "
        "mode) and the others with them; every rank must do the same"
    )
    assert run_ranks(3, rank) == [text] * 3


def whole(rank: int = 0, **changes: Any) -> TablePlan:
    return TablePlan(ShardingType.TABLE_WISE, (Shard(rank, 0, 4, 0, 4),), "reference", **changes)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (ShardingPlan(1, 1, {"t": whole()}), "plan.world_size: the plan was made for 1, but this run has 2"),
        (ShardingPlan(2, 2, {"other": whole()}), "plan.tables.t: this table of the model is not in the plan"),
        (ShardingPlan(2, 2, {"t": whole(3)}), "is on no rank of this world; write a rank from 0 to 1"),
        (
            ShardingPlan(2, 2, {"t": TablePlan(ShardingType.ROW_WISE, (Shard(0, 0, 3, 0, 4), Shard(1, 2, 4, 0, 4)))}),
            "rows [2, 3) are in more than one shard",
        ),
        (ShardingPlan(2, 2, {"t": whole(tier=Tier.SSD)}), "plan.tables.t.tier: 'ssd' is not executed yet; write hbm"),
    ],
)
def test_r27_a_plan_that_does_not_fit_is_refused_before_any_shard_is_built(plan: ShardingPlan, text: str) -> None:
    def rank(comms: Collectives) -> str:
        with pytest.raises(ConfigError) as caught:
            sharded(comms, [TableSpec("t", 4, 4, ("f",))], plan)
        return str(caught.value)

    for message in run_ranks(2, rank):
        assert text in message


def test_plain_text_means_the_member_that_it_names() -> None:
    assert TableSpec("t", 4, 4, ("f",), "mean").pooling is Pooling.MEAN  # type: ignore[arg-type]
    optimizer = SparseOptimizerSpec("sgd", weights_dtype="fp32", weight_decay_mode="decoupled")  # type: ignore[arg-type]
    assert optimizer.weights_dtype is WeightsDtype.FP32
    assert optimizer.weight_decay_mode is WeightDecayMode.DECOUPLED
    assert CommsSpec(exchange="flat").exchange is ExchangeMode.FLAT  # type: ignore[arg-type]
    placed = TablePlan("grid", (), tier="ddr")  # type: ignore[arg-type]
    assert placed.sharding_type is ShardingType.GRID and placed.tier is Tier.DDR


@pytest.mark.parametrize("semantics", ["exact", "per_shard"])
def test_plain_text_of_column_wise_semantics(semantics: str) -> None:
    table = TableSpec("t", 4, 8, ("f",))
    plan = plan_for([table], ShardingType.COLUMN_WISE, 2)

    def rank(comms: Collectives) -> bool:
        collection = EmbeddingBagCollection([table], optimizer=SparseOptimizerSpec("rowwise_adagrad"))
        collection.shard(
            plan=plan,
            keys={"t": "t"},
            collectives=comms,
            device=CPU,
            seed=0,
            column_wise_semantics=semantics,  # type: ignore[arg-type]
        )
        return collection.engine.layout.shares_row_state

    assert run_ranks(2, rank) == [ColumnWiseSemantics(semantics) is ColumnWiseSemantics.EXACT] * 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TableSpec("t", 4, 4, ("f",), "avg"), "table 't': pooling: 'avg' is not a pooling"),  # type: ignore[arg-type]
        (lambda: TableSpec("t", 4, 4, ("f", "f")), "table 't': feature_names ('f', 'f') name a feature twice"),
        (lambda: CommsSpec(exchange="ring"), "CommsSpec: exchange: 'ring' is not an exchange"),  # type: ignore[arg-type]
        (lambda: CommsSpec(backward="fp16", loss_scale=-1.0), "CommsSpec: loss_scale: -1.0 is outside [2^-32, 2^64]"),
        (lambda: TablePlan("rows", ()), "'rows' is not a valid ShardingType"),  # type: ignore[arg-type]
        (
            lambda: EmbeddingBagCollection([TableSpec("t", 4, 4, ("f",)), TableSpec("t.f", 4, 4, ("t.f",))]),
            "the outputs ('t.f', 't.f') do not have unique names",
        ),
        (
            lambda: EmbeddingBagCollection(
                [TableSpec("t", 4, 4, ("f",))], table_optimizers={"u": SparseOptimizerSpec("sgd")}
            ),
            "table_optimizers['u']: 'u' is not a table",
        ),
    ],
)
def test_what_names_nothing_is_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        make()
    assert text in str(caught.value)


def test_features_may_have_any_name() -> None:
    """Also names like those of what is derived from other features."""
    tables = [
        TableSpec("mean", 4, 4, ("f",), Pooling.MEAN, weighted=True),
        TableSpec("sum", 4, 4, ("f#normalised",), weighted=True),
        TableSpec("words", 4, 4, ("f#sequence",), weighted=True),
    ]
    plan = plan_for(tables, ShardingType.ROW_WISE, 2)

    def rank(comms: Collectives) -> Tensor:
        collection = sharded(comms, tables, plan)
        for index in range(3):
            for shard, weight, _ in collection.engine.local_shards(index):
                weight.copy_(torch.arange(shard.row_begin, shard.row_end).unsqueeze(1).expand(-1, 4))
        keys = ["f", "f#normalised", "f#sequence"]
        weights = torch.full((3,), 2.0)
        batch = SparseFeatures(keys, torch.ones(3, dtype=torch.int64), torch.tensor([1, 2, 3]), weights)
        with torch.no_grad():
            return collection.start(batch).wait()

    for pooled in run_ranks(2, rank):
        assert pooled[0, ::4].tolist() == [1.0, 4.0, 6.0]


def test_outputs_are_taken_once() -> None:
    table = TableSpec("t", 4, 4, ("f",))
    plan = plan_for([table], ShardingType.TABLE_WISE, 1)

    def rank(comms: Collectives) -> str:
        pending = sharded(comms, [table], plan).start(SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1])))
        pending.wait()
        with pytest.raises(UnsupportedError) as caught:
            pending.by_name()
        return str(caught.value)

    assert "the outputs of this EmbeddingBagCollection.start() were taken already" in run_ranks(1, rank)[0]


def test_other_input_and_learning_rates_that_are_none_are_refused() -> None:
    table = TableSpec("t", 4, 4, ("f",))
    plan = plan_for([table], ShardingType.TABLE_WISE, 1)

    def rank(comms: Collectives) -> None:
        collection = sharded(comms, [table], plan)
        with pytest.raises(DataError, match=r"reads SparseFeatures \(keys, lengths, values\), not Tensor"):
            collection(torch.ones(3))
        for lr in (-1.0, float("nan")):
            with pytest.raises(ValueError, match=f"the sparse learning rate {lr} must be finite and at least 0"):
                collection.set_learning_rate(lr)

    run_ranks(1, rank)


def test_a_negative_batch_size_is_refused() -> None:
    with pytest.raises(DataError, match="batch_size -3 is negative"):
        SparseFeatures(["f"], torch.tensor([1]), torch.tensor([1]), bag_counts=[1], batch_size=-3)


def test_a_shard_call_of_its_own_does_what_the_plan_says() -> None:
    table = TableSpec("t", 4, 8, ("f",))
    base = plan_for([table], ShardingType.COLUMN_WISE, 2)
    plan = ShardingPlan(2, 2, base.tables, column_wise_semantics=ColumnWiseSemantics.PER_SHARD)

    def rank(comms: Collectives) -> tuple[bool, bool]:
        found = []
        for semantics in (None, ColumnWiseSemantics.EXACT):
            collection = EmbeddingBagCollection([table], optimizer=SparseOptimizerSpec("rowwise_adagrad"))
            collection.shard(
                plan=plan, keys={"t": "t"}, collectives=comms, device=CPU, seed=0, column_wise_semantics=semantics
            )
            found.append(collection.engine.layout.shares_row_state)
        return found[0], found[1]

    assert run_ranks(2, rank) == [(False, True)] * 2

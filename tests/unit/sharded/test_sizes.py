"""R8 to R12 and R19 on in-process ranks: odd sizes, shared tables and features, duplicates, empty input."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from neo.comms.collectives import Collectives
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingPlan, ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec
from neo.testing.fake_collectives import run_ranks
from neo.testing.oracle import ReferenceInput
from neo.testing.sharded_run import GlobalStep, RunResult, run_reference, run_sharded
from placements import PLACEMENTS, plan_for

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam")


def check_against_reference(
    tables: Sequence[TableSpec], plan: ShardingPlan, optimizer: SparseOptimizerSpec, steps: Sequence[GlobalStep]
) -> RunResult:
    """Run on in-process ranks and compare outputs and tables with the dense reference."""
    results = run_ranks(
        plan.world_size,
        lambda comms: run_sharded(
            comms, tables, plan=plan, optimizer=optimizer, steps=steps, weighted=[False] * len(steps[0].batch.keys)
        ),
    )
    expected, _ = run_reference(tables, initial=results[0].initial, optimizer=optimizer, steps=steps, column_blocks={})
    for got, wanted in zip(results[0].outputs, expected.outputs, strict=True):
        assert got.keys() == wanted.keys()
        for name, rows in wanted.items():
            assert got[name] == pytest.approx(rows, abs=1e-5), name
    for name, want in expected.tables.items():
        assert results[0].tables[name] == pytest.approx(want, abs=2e-6 * max(1.0, np.abs(want).max())), name
    return results[0]


def step_of(
    keys: Sequence[str], bags: Sequence[Sequence[Sequence[int]]], width: int, splits: Sequence[int]
) -> GlobalStep:
    """Return a step from bags ``[feature][sample]`` with a gradient of small dyadic numbers."""
    lengths = np.array([[len(bag) for bag in feature] for feature in bags], dtype=np.int64)
    ids = np.array([i for feature in bags for bag in feature for i in bag], dtype=np.int64)
    rng = np.random.default_rng(0)
    gradient = rng.integers(-4, 5, (len(bags[0]), width)) / 4.0
    return GlobalStep(ReferenceInput(tuple(keys), lengths, ids), gradient, tuple(splits))


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("world_size", [4, 8])
def test_r8_rows_that_do_not_divide_and_empty_shards(world_size: int, kind: ShardingType) -> None:
    table = TableSpec("t", 10, 8, ("f",))
    splits = [1] * world_size
    step = step_of(["f"], [[[s % 10, 9] for s in range(world_size)]], 8, splits)
    for kernel in ("reference", "fbgemm"):
        plan = plan_for([table], kind, world_size, kernel)
        check_against_reference([table], plan, SparseOptimizerSpec("sgd", lr=0.5), [step])


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("dim", [1, 2, 3, 5, 6, 7, 10, 1028, 2048])
def test_r8_odd_dimensions(dim: int, kind: ShardingType) -> None:
    table = TableSpec("t", 7, dim, ("f",))
    step = step_of(["f"], [[[0, 6], [6], []]], dim, [2, 1])
    for kernel in ("reference", "fbgemm") if dim % 4 == 0 else ("reference",):
        check_against_reference(
            [table], plan_for([table], kind, 2, kernel), SparseOptimizerSpec("adagrad", lr=0.5, eps=0.01), [step]
        )


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_r9_one_feature_two_tables_and_one_table_two_features(kind: ShardingType) -> None:
    tables = [TableSpec("x", 6, 4, ("g", "f")), TableSpec("y", 9, 8, ("f",))]
    step = step_of(["f", "g"], [[[1, 5], [2], []], [[0], [], [5, 5]]], 16, [1, 2])
    result = check_against_reference(tables, plan_for(tables, kind, 2), SparseOptimizerSpec("sgd", lr=0.5), [step])
    collection = EmbeddingBagCollection(tables)
    assert collection.output_names == ("x.g", "x.f", "y.f")
    assert collection.output_dims == (4, 4, 8)
    first = result.initial["x"]
    assert list(result.outputs[0]) == ["x.g", "x.f", "y.f"]
    assert result.outputs[0]["x.g"][0] == pytest.approx(first[0], abs=1e-6)  # declared order: g of x comes first


def test_r9_two_modules_with_a_table_of_the_same_name() -> None:
    table = TableSpec("t", 6, 4, ("f",))
    plan = plan_for([table], ShardingType.ROW_WISE, 2)
    both = ShardingPlan(2, 2, {"left.t": plan.tables["t"], "right.t": plan.tables["t"]})

    def rank(comms: Collectives) -> tuple[torch.Tensor, torch.Tensor]:
        weights = []
        for path in ("left", "right"):
            collection = EmbeddingBagCollection([table])
            collection.shard(plan=both, keys={"t": f"{path}.t"}, collectives=comms, device=torch.device("cpu"), seed=0)
            weights.append(collection.full_weight("t"))
        return weights[0], weights[1]

    for left, right in run_ranks(2, rank):
        assert not torch.equal(left, right)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", PLACEMENTS)
def test_r10_shared_table_with_duplicates(kind: ShardingType, name: str) -> None:
    table = TableSpec("t", 10, 4, ("f1", "f2"))
    step = step_of(["f1", "f2"], [[[1], [2]], [[1, 1, 3], [4, 5, 6]]], 8, [1, 1])
    optimizer = SparseOptimizerSpec(name, lr=0.25, eps=2.0**-6)
    check_against_reference([table], plan_for([table], kind, 2), optimizer, [step, step])


# FBGEMM has no Adam on the CPU; the capability matrix routes it to the reference.
@pytest.mark.parametrize(
    ("kernel", "name"), [("reference", name) for name in OPTIMIZERS] + [("fbgemm", name) for name in OPTIMIZERS[:3]]
)
def test_r11_one_id_100000_times(kernel: str, name: str) -> None:
    table = TableSpec("t", 8, 4, ("f",))
    lengths = np.full((1, 100), 1000, dtype=np.int64)
    batch = ReferenceInput(("f",), lengths, np.full(100_000, 3, dtype=np.int64))
    gradient = np.full((100, 4), 2.0**-10)  # the sum of 100,000 of them is exact in float32
    step = GlobalStep(batch, gradient, (50, 50))
    optimizer = SparseOptimizerSpec(name, lr=0.25, eps=2.0**-6)
    result = run_ranks(
        2,
        lambda comms: run_sharded(
            comms,
            [table],
            plan=plan_for([table], ShardingType.ROW_WISE, 2, kernel),
            optimizer=optimizer,
            steps=[step],
            weighted=[False],
        ),
    )[0]
    expected, _ = run_reference([table], initial=result.initial, optimizer=optimizer, steps=[step], column_blocks={})
    want = expected.tables["t"]
    assert result.tables["t"] == pytest.approx(want, rel=1e-5, abs=2e-6 * np.abs(want).max())
    # A forward sum of 1,000 equal terms: float32 rounds each addition, 1000 * 2^-24 relative at most.
    assert result.outputs[0]["t.f"] == pytest.approx(expected.outputs[0]["t.f"], rel=6e-5)


def test_r12_the_kernel_receives_the_hyperparameters_of_the_config() -> None:
    """Each accepted hyper-parameter changes the result, and both backends agree on it."""
    table = TableSpec("t", 4, 4, ("f",))
    step = step_of(["f"], [[[1, 2], [1]]], 4, [2])
    # Two unlike gradients: with equal ones Adam's bias correction would cancel its betas.
    steps = [step, GlobalStep(step.batch, step.gradient * np.array([[0.5], [2.0]]), step.splits)]
    base = SparseOptimizerSpec(lr=0.25, eps=0.5, initial_accumulator=0.5)
    for name in ("adagrad", "rowwise_adagrad"):
        changes = [replace(base, lr=0.5), replace(base, eps=0.25), replace(base, initial_accumulator=2.0)]
        _check_that_each_changes_the_result(table, steps, [replace(o, name=name) for o in (base, *changes)])
    adam = SparseOptimizerSpec("adam", lr=0.25, eps=0.5)
    changes = [replace(adam, lr=0.5), replace(adam, beta1=0.5), replace(adam, beta2=0.5), replace(adam, eps=0.25)]
    _check_that_each_changes_the_result(table, steps, [adam, *changes])


def _check_that_each_changes_the_result(
    table: TableSpec, steps: Sequence[GlobalStep], optimizers: Sequence[SparseOptimizerSpec]
) -> None:
    """Run all on every backend that has them; the first is the one that the others are changed from."""
    for kernel in ("reference",) if optimizers[0].name == "adam" else ("reference", "fbgemm"):
        plan = plan_for([table], ShardingType.TABLE_WISE, 1, kernel)
        first, *others = [check_against_reference([table], plan, optimizer, steps) for optimizer in optimizers]
        for optimizer, other in zip(optimizers[1:], others, strict=True):
            assert np.abs(other.tables["t"] - first.tables["t"]).max() > 1e-3, (kernel, optimizer)


@pytest.mark.parametrize("kernel", ["reference", "fbgemm"])
@pytest.mark.parametrize("kind", PLACEMENTS)
def test_r19_empty_input(kind: ShardingType, kernel: str) -> None:
    table = TableSpec("t", 6, 4, ("f",))
    plan = plan_for([table], kind, 2, kernel)
    steps = [
        step_of(["f"], [[]], 4, [0, 0]) if splits == [0, 0] else step_of(["f"], [bags], 4, splits)
        for bags, splits in (
            ([], [0, 0]),  # nobody has a sample, at the very first step
            ([[1], [2, 3]], [0, 2]),  # rank 0 has none
            ([[], [4]], [1, 1]),  # rank 0 has a sample without ids
            ([[], []], [1, 1]),  # no id anywhere
            ([[5], [0]], [2, 0]),  # the other way round
            ([], [0, 0]),
        )
    ]
    for name in ("sgd", "adam") if kernel == "reference" else ("sgd", "rowwise_adagrad"):
        check_against_reference([table], plan, SparseOptimizerSpec(name, lr=0.5, eps=2.0**-6), steps)

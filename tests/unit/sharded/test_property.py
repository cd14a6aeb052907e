"""Sharded run == dense reference, under random tables, plans, world sizes, batches, optimizers and backends."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits
from neo.tables.spec import Pooling, TableSpec
from neo.testing.fake_collectives import run_ranks
from neo.testing.oracle import ReferenceInput
from neo.testing.sharded_run import GlobalStep, column_blocks_of, run_reference, run_sharded

# Relative to the largest weight of the table: a few float32 roundings (2^-24 = 6e-8 each) over three steps.
TOLERANCE = 2e-6


@dataclass(frozen=True)
class Problem:
    """One random case; it prints as the numbers that make it again."""

    world_size: int
    num_tables: int
    optimizer_name: str
    seed: int
    tables: list[TableSpec] = field(init=False, repr=False)
    plan: ShardingPlan = field(init=False, repr=False)
    optimizer: SparseOptimizerSpec = field(init=False, repr=False)
    steps: list[GlobalStep] = field(init=False, repr=False)
    weighted: list[bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        features = [f"f{i}" for i in range(rng.integers(1, 6))]
        weighted = [bool(rng.integers(2)) for _ in features] if rng.integers(2) else [False] * len(features)
        tables, placements = [], {}
        for index in range(self.num_tables):
            is_weighted = bool(rng.choice(weighted))
            readable = [f for f, w in zip(features, weighted, strict=True) if w == is_weighted]
            names = tuple(rng.permutation(readable)[: rng.integers(1, len(readable) + 1)].tolist())
            kernel = "reference" if self.optimizer_name == "adam" else str(rng.choice(["reference", "fbgemm"]))
            dim = int(rng.integers(1, 9)) * (4 if kernel == "fbgemm" else 1)
            pooling = Pooling.MEAN if rng.integers(2) else Pooling.SUM
            table = TableSpec(f"t{index}", int(rng.integers(1, 60)), dim, names, pooling, is_weighted)
            tables.append(table)
            placements[table.name] = _placement(rng, table, kernel, self.world_size)
        smallest = {f: min([t.num_embeddings for t in tables if f in t.feature_names], default=1) for f in features}
        width = sum(t.embedding_dim * len(t.feature_names) for t in tables)
        has_mean = any(t.pooling is Pooling.MEAN for t in tables)
        is_adam = self.optimizer_name == "adam"
        optimizer = SparseOptimizerSpec(
            self.optimizer_name,
            lr=0.125,
            # Where sums are not exact (means, Adam's moments) eps keeps gradients that cancel from being divided
            # by their own rounding noise; everywhere else eps = 0 is exact too.
            eps=2.0**-6 if is_adam or has_mean else float(rng.choice([0.0, 2.0**-6])),
            initial_accumulator=0.0 if is_adam else float(rng.choice([0.0, 0.25])),
        )
        steps = [_step(rng, features, smallest, width, self.world_size, any(weighted)) for _ in range(3)]
        for name, value in (
            ("tables", tables),
            ("plan", ShardingPlan(self.world_size, self.world_size, placements)),
            ("optimizer", optimizer),
            ("steps", steps),
            ("weighted", weighted),
        ):
            object.__setattr__(self, name, value)


problems = st.builds(
    Problem,
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
    st.integers(0, 2**32 - 1),
)


def _placement(rng: np.random.Generator, table: TableSpec, kernel: str, world_size: int) -> TablePlan:
    rows, dim = table.num_embeddings, table.embedding_dim
    kind = ShardingType(str(rng.choice(list(ShardingType))))
    if kind is ShardingType.DATA_PARALLEL:
        return TablePlan(kind, tuple(Shard(r, 0, rows, 0, dim) for r in range(world_size)), kernel)
    if kind is ShardingType.TABLE_WISE:
        return TablePlan(kind, (Shard(int(rng.integers(world_size)), 0, rows, 0, dim),), kernel)
    ranks = rng.permutation(world_size)
    if kind is ShardingType.ROW_WISE:
        cuts = even_splits(rows, world_size)
        if rng.integers(2):  # uneven cuts too
            inner = sorted(rng.integers(0, rows + 1, world_size - 1).tolist())
            cuts = list(zip([0, *inner], [*inner, rows], strict=True))
        return TablePlan(
            kind, tuple(Shard(int(r), a, b, 0, dim) for r, (a, b) in zip(ranks, cuts, strict=True)), kernel
        )
    cuts = [c for c in even_splits(dim, world_size, 4 if kernel == "fbgemm" else 1) if c[0] < c[1]]
    return TablePlan(kind, tuple(Shard(int(r), 0, rows, a, b) for r, (a, b) in zip(ranks, cuts, strict=False)), kernel)


def _step(
    rng: np.random.Generator, features: list[str], smallest: dict[str, int], width: int, world_size: int, weights: bool
) -> GlobalStep:
    splits = tuple(int(x) for x in rng.integers(0, 5, world_size))
    batch_size = sum(splits)
    lengths = rng.integers(0, 4, (len(features), batch_size)) * rng.integers(0, 2, (len(features), batch_size))
    values = [rng.integers(0, smallest[f], lengths[i].sum()) for i, f in enumerate(features)]
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *values])
    # Dyadic values: their products and sums are exact in float32 in any order.
    factors = rng.choice([0.5, 1.0, 2.0], len(ids)) if weights else None
    gradient = rng.integers(-4, 5, (batch_size, width)) / 4.0
    return GlobalStep(ReferenceInput(tuple(features), lengths, ids, factors), gradient, splits)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(problems)
def test_sharded_equals_reference(problem: Problem) -> None:
    tables, optimizer, steps = problem.tables, problem.optimizer, problem.steps
    results = run_ranks(
        problem.world_size,
        lambda comms: run_sharded(
            comms, tables, plan=problem.plan, optimizer=optimizer, steps=steps, weighted=problem.weighted
        ),
    )
    blocks = column_blocks_of(problem.plan) if optimizer.is_rowwise else {}
    expected, _ = run_reference(
        tables, initial=results[0].initial, optimizer=optimizer, steps=steps, column_blocks=blocks
    )
    for result in results:
        for step, (got, want) in enumerate(zip(result.outputs, expected.outputs, strict=True)):
            assert got == pytest.approx(want, abs=TOLERANCE * 10), f"outputs of step {step}"
        for name, want in expected.tables.items():
            assert np.abs(result.tables[name] - want).max() <= TOLERANCE * max(1.0, np.abs(want).max()), name
        for got_gradient, want_gradient in zip(result.weights_gradients, expected.weights_gradients, strict=True):
            if got_gradient is not None and want_gradient is not None:
                assert got_gradient == pytest.approx(want_gradient, abs=1e-4)

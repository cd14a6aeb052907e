"""Random cases for "sharded == oracle": tables, features, a legal plan that mixes placements, optimizer, codecs, steps.

Everything follows from a seed and the choices that a suite allows, so that a case can be made again from its numbers.
Inputs and gradients lie on a dyadic grid: their products and sums are exact in float32 in any order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from neo.comms.spec import CommsSpec, ExchangeMode
from neo.ops.spec import Device, refusal
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingPlan, ShardingType, TablePlan
from neo.planner.semantics import shares_row_state
from neo.tables.spec import Pooling, TableSpec, WeightsDtype
from neo.testing.oracle import ReferenceInput
from neo.testing.sharded_run import GlobalStep

NUM_STEPS = 5
_SPLIT_BY_COLUMNS = (ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID)


@dataclass(frozen=True)
class Choices:
    """What a random case may use.

    Attributes:
        kernels: Ops backends; each table gets one that can hold it.
        optimizers: Sparse optimizers.
        weights_dtypes: Types of the stored weights.
        codecs: Codecs of either direction.
        sharding_types: Placements.
        max_world_size: Most ranks.
        max_tables: Most tables.
        max_rows: Most rows of a table.
        max_dim: Most columns.
    """

    kernels: tuple[str, ...] = ("reference", "fbgemm")
    optimizers: tuple[str, ...] = ("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam")
    weights_dtypes: tuple[WeightsDtype, ...] = tuple(WeightsDtype)
    codecs: tuple[str, ...] = ("fp32", "fp16", "bf16", "int8")
    sharding_types: tuple[ShardingType, ...] = tuple(ShardingType)
    max_world_size: int = 8
    max_tables: int = 8
    max_rows: int = 300
    max_dim: int = 260


@dataclass(frozen=True)
class Problem:
    """One random case; it prints as the numbers that make it again."""

    seed: int
    choices: Choices = field(default=Choices(), repr=False)
    world_size: int = field(init=False)
    tables: tuple[TableSpec, ...] = field(init=False)
    plan: ShardingPlan = field(init=False)
    optimizer: SparseOptimizerSpec = field(init=False)
    table_optimizers: Mapping[str, SparseOptimizerSpec] = field(init=False)
    comms: CommsSpec = field(init=False)
    semantics: ColumnWiseSemantics = field(init=False)
    steps: tuple[GlobalStep, ...] = field(init=False, repr=False)
    weighted: tuple[bool, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in _Maker(self.seed, self.choices).make().items():
            object.__setattr__(self, name, value)

    def optimizer_of(self, table: str) -> SparseOptimizerSpec:
        """Return the optimizer of one table."""
        return self.table_optimizers.get(table, self.optimizer)


class _Maker:
    def __init__(self, seed: int, choices: Choices) -> None:
        self.rng = np.random.default_rng(seed)
        self.choices = choices
        self.world_size = int(self.rng.integers(1, choices.max_world_size + 1))
        self.local_world_size = int(self.rng.integers(1, self.world_size + 1))

    def make(self) -> dict[str, object]:
        rng = self.rng
        features = [f"f{index}" for index in range(rng.integers(1, 6))]
        weighted = [bool(rng.integers(2)) for _ in features] if rng.integers(2) else [False] * len(features)
        comms = self.comms()
        tables = [
            self.table(index, features, weighted) for index in range(rng.integers(1, self.choices.max_tables + 1))
        ]
        optimizer = self.optimizer(comms, any(table.pooling is Pooling.MEAN for table in tables))
        own = {
            table.name: SparseOptimizerSpec(
                **{
                    **vars(optimizer),
                    "lr": optimizer.lr / 2,
                    "eps": optimizer.eps + 2.0**-6 * (optimizer.name != "sgd"),
                }
            )
            for table in tables
            if rng.integers(6) == 0
        }
        semantics = ColumnWiseSemantics.EXACT if rng.integers(4) else ColumnWiseSemantics.PER_SHARD
        placements = {table.name: self.placement(table, own.get(table.name, optimizer), semantics) for table in tables}
        is_variable = rng.integers(5) == 0
        return {
            "world_size": self.world_size,
            "tables": tuple(tables),
            "plan": ShardingPlan(self.world_size, self.local_world_size, placements),
            "optimizer": optimizer,
            "table_optimizers": own,
            "comms": comms,
            "semantics": semantics,
            "steps": tuple(self.step(features, weighted, tables, is_variable) for _ in range(NUM_STEPS)),
            "weighted": tuple(weighted),
        }

    def comms(self) -> CommsSpec:
        rng, codecs = self.rng, self.choices.codecs
        plain = rng.integers(2) == 0
        forward = codecs[0] if plain else str(rng.choice(codecs))
        backward = codecs[0] if plain else str(rng.choice(codecs))
        return CommsSpec(forward, backward, exchange=ExchangeMode(str(rng.choice(list(ExchangeMode)))))

    def table(self, index: int, features: Sequence[str], weighted: Sequence[bool]) -> TableSpec:
        rng = self.rng
        is_weighted = bool(rng.choice(np.array(weighted)))
        readable = [name for name, own in zip(features, weighted, strict=True) if own == is_weighted]
        names = tuple(rng.permutation(readable)[: rng.integers(1, len(readable) + 1)].tolist())
        pooling = Pooling(str(rng.choice([Pooling.SUM, Pooling.MEAN])))
        if not any(weighted) and rng.integers(5) == 0:
            pooling = Pooling.NONE
        largest = self.choices.max_dim if rng.integers(4) == 0 else 24
        dim = int(rng.integers(1, largest + 1))
        if rng.integers(2):
            dim = -(-dim // 4) * 4
        return TableSpec(f"t{index}", int(rng.integers(1, self.choices.max_rows + 1)), dim, names, pooling, is_weighted)

    def optimizer(self, comms: CommsSpec, has_mean: bool) -> SparseOptimizerSpec:
        rng = self.rng
        # A codec changes gradients, which only an optimizer that is linear in them turns into a bounded change.
        name = "sgd" if comms.backward != "fp32" else str(rng.choice(self.choices.optimizers))
        is_adam = name in ("adam", "partial_rowwise_adam")
        weights_dtype = WeightsDtype.FP32
        if rng.integers(3) == 0:
            weights_dtype = WeightsDtype(str(rng.choice(list(self.choices.weights_dtypes))))
        decays = rng.integers(4) == 0
        inexact = is_adam or has_mean or decays
        return SparseOptimizerSpec(
            name,
            lr=0.125,
            # Where sums are not exact (means, moments, decay) eps keeps gradients that cancel from being divided by
            # their own rounding noise; everywhere else eps = 0 is exact too.
            eps=2.0**-6 if inexact else float(rng.choice([0.0, 2.0**-6])),
            initial_accumulator=0.0 if is_adam or name == "sgd" else float(rng.choice([0.0, 0.25])),
            weights_dtype=weights_dtype,
            weight_decay=0.0625 if decays else 0.0,
            weight_decay_mode=WeightDecayMode(str(rng.choice(list(WeightDecayMode)))),
            stochastic_rounding=bool(rng.integers(2)),
        )

    def placement(self, table: TableSpec, optimizer: SparseOptimizerSpec, semantics: ColumnWiseSemantics) -> TablePlan:
        kind = ShardingType(str(self.rng.choice(list(self.choices.sharding_types))))
        preferred = str(self.rng.choice(self.choices.kernels))
        for kernel in (preferred, *self.choices.kernels, "reference"):
            shards = self.shards(table, kind, 4 if kernel == "fbgemm" else 1)
            shares = shares_row_state(len(TablePlan(kind, shards).column_ranges), optimizer, semantics)
            widths = {shard.num_columns for shard in shards}
            refused = [
                refusal(kernel, Device.CPU, table, width, optimizer, shares_row_state=shares) for width in widths
            ]
            if kind is ShardingType.DATA_PARALLEL or not any(refused):
                return TablePlan(kind, shards, "reference" if kind is ShardingType.DATA_PARALLEL else kernel)
        raise AssertionError("the reference backend holds every table")

    def shards(self, table: TableSpec, kind: ShardingType, multiple: int) -> tuple[Shard, ...]:
        rng, rows, dim = self.rng, table.num_embeddings, table.embedding_dim
        everyone = np.arange(self.world_size)
        first = int(rng.integers(-(-self.world_size // self.local_world_size))) * self.local_world_size
        node = everyone[first : first + self.local_world_size]
        match kind:
            case ShardingType.DATA_PARALLEL:
                shards = [Shard(int(rank), 0, rows, 0, dim) for rank in everyone]
            case ShardingType.TABLE_WISE:
                shards = [Shard(int(rng.choice(everyone)), 0, rows, 0, dim)]
            case ShardingType.ROW_WISE:
                shards = self.by_rows(everyone, rows, (0, dim))
            case ShardingType.TABLE_ROW_WISE:
                shards = self.by_rows(node, rows, (0, dim))
            case ShardingType.COLUMN_WISE:
                shards = [Shard(int(r), 0, rows, a, b) for r, (a, b) in self.cut_over(everyone, dim, multiple) if a < b]
            case ShardingType.TABLE_COLUMN_WISE:
                shards = [Shard(int(r), 0, rows, a, b) for r, (a, b) in self.cut_over(node, dim, multiple) if a < b]
            case ShardingType.GRID:
                nodes = [
                    everyone[f : f + self.local_world_size] for f in range(0, len(everyone), self.local_world_size)
                ]
                cuts = self.cut_over(np.arange(len(nodes)), dim, multiple)
                shards = [s for n, (a, b) in cuts if a < b for s in self.by_rows(nodes[int(n)], rows, (a, b))]
        return tuple(shards)

    def by_rows(self, ranks: Sequence[int] | np.ndarray, rows: int, columns: tuple[int, int]) -> list[Shard]:
        return [Shard(int(rank), a, b, *columns) for rank, (a, b) in self.cut_over(np.asarray(ranks), rows, 1)]

    def cut_over(self, ranks: np.ndarray, length: int, multiple: int) -> list[tuple[int, tuple[int, int]]]:
        """Cut a length at random over some of the ranks, in random order; parts may be empty."""
        chosen = self.rng.permutation(ranks)[: self.rng.integers(1, len(ranks) + 1)]
        units = length // multiple
        inner = sorted(int(cut) * multiple for cut in self.rng.integers(0, units + 1, len(chosen) - 1))
        bounds = list(zip([0, *inner], [*inner, length], strict=True))
        return [(int(rank), bound) for rank, bound in zip(chosen, bounds, strict=True)]

    def step(
        self, features: Sequence[str], weighted: Sequence[bool], tables: Sequence[TableSpec], is_variable: bool
    ) -> GlobalStep:
        rng = self.rng
        splits = tuple(int(count) for count in rng.integers(0, 5, self.world_size))
        bag_splits = None
        if is_variable:
            bag_splits = {name: tuple(int(n) for n in rng.integers(0, 5, self.world_size)) for name in features}
        lengths = [
            rng.integers(0, 4, bags) * rng.integers(0, 2, bags)
            for bags in (sum(splits if bag_splits is None else bag_splits[name]) for name in features)
        ]
        smallest = {f: min([t.num_embeddings for t in tables if f in t.feature_names], default=1) for f in features}
        values = [rng.integers(0, smallest[f], own.sum()) for f, own in zip(features, lengths, strict=True)]
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *values])
        factors = rng.choice([0.5, 1.0, 2.0], len(ids)) if any(weighted) else None
        batch = ReferenceInput(tuple(features), lengths, ids, factors)
        gradient = {}
        for table in tables:
            for feature in table.feature_names:
                own = batch.lengths_of(feature)
                rows = int(own.sum()) if table.pooling is Pooling.NONE else len(own)
                gradient[table.output_name(feature)] = rng.integers(-4, 5, (rows, table.embedding_dim)) / 4.0
        return GlobalStep(batch, gradient, splits, bag_splits)

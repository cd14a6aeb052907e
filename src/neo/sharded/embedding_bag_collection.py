"""The module that a model holds: embedding tables as one collection, sharded by the strategy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from neo.comms.collectives import Collectives
from neo.comms.spec import CommsSpec
from neo.data.batch import SparseFeatures
from neo.data.spec import OutOfRange
from neo.errors import ConfigError, DataError, Finding, UnsupportedError, unknown_name
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.check import check_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, Tier
from neo.sharded.diagnosis import NonFinite, first_non_finite
from neo.sharded.engine import Pending, ShardedEngine
from neo.tables.spec import TableSpec

SPARSE_GROUP = "sparse"


class EmbeddingBagCollection(nn.Module):
    """Embedding tables that are looked up, pooled and updated together, wherever a plan puts them.

    The collection has no storage until ``shard`` is called (``NeoStrategy`` does it). Its optimizer step happens
    inside the backward, so its rows never appear in ``parameters()``.

    Args:
        tables: The tables, in output order.
        optimizer: The sparse optimizer of all of them.
        out_of_range: ``error``, ``clamp_zero`` or ``drop``: what happens to ids outside their table.
        table_optimizers: Optimizers of single tables, by name, in place of ``optimizer``. A learning rate of its own
            keeps its ratio to that of ``optimizer`` when a schedule changes it.
        variable_batch: Whether each feature of a batch may have its own number of bags (``SparseFeatures.bag_counts``).

    Raises:
        ValueError: No table, two tables of the same name, no such policy, or an optimizer for no table.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        *,
        optimizer: SparseOptimizerSpec | None = None,
        out_of_range: str = "error",
        table_optimizers: Mapping[str, SparseOptimizerSpec] | None = None,
        variable_batch: bool = False,
    ) -> None:
        super().__init__()
        names = [table.name for table in tables]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"a collection needs at least one table and unique names, not {names}")
        if out_of_range not in list(OutOfRange):
            raise ValueError(str(unknown_name("out_of_range", out_of_range, "policy", list(OutOfRange))))
        self.tables = tuple(tables)
        self.optimizer = optimizer if optimizer is not None else SparseOptimizerSpec()
        self.out_of_range = OutOfRange(out_of_range)
        self.table_optimizers = dict(table_optimizers or {})
        for name, own in self.table_optimizers.items():
            if name not in names:
                raise ValueError(str(unknown_name(f"table_optimizers[{name!r}]", name, "table", names)))
            if self.optimizer.lr == 0 and own.lr != 0:
                raise ValueError(f"table '{name}' has lr {own.lr}, which no ratio to the collection's lr 0 gives")
        self.variable_batch = variable_batch
        self.output_names = tuple(table.output_name(feature) for table in tables for feature in table.feature_names)
        if len(set(self.output_names)) != len(self.output_names):
            raise ValueError(f"the outputs {self.output_names} do not have unique names; name a table or feature anew")
        self.output_dims = tuple(table.embedding_dim for table in tables for _ in table.feature_names)
        # Neither is an nn.Module attribute: the first is no parameter of the model (a user may pass parameters() and
        # the sparse group to one optimizer), and for the second see the engine's module docstring.
        self.__dict__["_lr_carrier"] = nn.Parameter(torch.empty(0), requires_grad=False)
        self.__dict__["_engine"] = None

    def shard(
        self,
        *,
        plan: ShardingPlan,
        keys: Mapping[str, str],
        collectives: Collectives,
        device: torch.device,
        seed: int,
        comms: CommsSpec | None = None,
        may_fall_back: bool = False,
        column_wise_semantics: ColumnWiseSemantics | None = None,
    ) -> None:
        """Build this rank's shards with their initial weights. Every rank of the group calls it.

        Args:
            plan: A checked plan; its kernels say which ops backend executes each table.
            keys: Plan key of each table name.
            collectives: The group over which the tables are sharded.
            device: Where this rank's shards live.
            seed: Decides the initial weights, with the plan key and the row.
            comms: Codecs of the pooled exchange; fp32 both ways by default.
            may_fall_back: Whether a backend that does not load is replaced by the reference (with a warning, and
                said in ``fallbacks``); a plan's kernel ``auto`` always may.
            column_wise_semantics: What a row-wise optimizer does on tables split by columns: ``EXACT`` keeps one state
                for each row of the whole table, ``PER_SHARD`` one for each column shard. None does what the plan says,
                and ``EXACT`` where it says nothing.

        Raises:
            ConfigError: The plan is for another world, leaves a table out or does not tile it exactly.
            UnsupportedError: The plan names a backend that does not load or cannot do what the table needs.
            ValueError: There are no such semantics.
        """
        self._check_plan(plan, keys, collectives.world_size)
        self.__dict__["_engine"] = ShardedEngine(
            self.tables,
            plan=plan,
            keys=keys,
            optimizers=[self.optimizer_of(table.name) for table in self.tables],
            base_lr=self.optimizer.lr,
            collectives=collectives,
            device=device,
            seed=seed,
            out_of_range=self.out_of_range,
            comms=comms if comms is not None else CommsSpec(),
            may_fall_back=may_fall_back,
            semantics=ColumnWiseSemantics(
                column_wise_semantics or plan.column_wise_semantics or ColumnWiseSemantics.EXACT
            ),
            variable_batch=self.variable_batch,
        )
        self.__dict__["_collectives"] = collectives

    def _check_plan(self, plan: ShardingPlan, keys: Mapping[str, str], world_size: int) -> None:
        by_key = {keys.get(table.name, table.name): table for table in self.tables}
        own = {key: placed for key, placed in plan.tables.items() if key in by_key}
        findings = check_plan(replace(plan, tables=own), by_key, world_size, plan.local_world_size)
        findings += [
            Finding(f"tables.{key}.tier", f"'{placed.tier}' is not executed yet", "write hbm")
            for key, placed in own.items()
            if placed.tier is not Tier.HBM
        ]
        if findings:
            raise ConfigError([finding.under("plan") for finding in findings])

    @property
    def is_sharded(self) -> bool:
        """Whether the collection has storage."""
        return self.__dict__["_engine"] is not None

    @property
    def engine(self) -> ShardedEngine:
        """The engine of this rank.

        Raises:
            UnsupportedError: ``shard`` was not called.
        """
        engine = self.__dict__["_engine"]
        if engine is None:
            raise UnsupportedError(
                "this EmbeddingBagCollection has no storage yet; train it with Trainer(strategy=NeoStrategy(...)), "
                "which shards it, or call its shard() first"
            )
        assert isinstance(engine, ShardedEngine)
        return engine

    def optimizer_of(self, table: str) -> SparseOptimizerSpec:
        """Return the optimizer of one table."""
        return self.table_optimizers.get(table, self.optimizer)

    def start(self, sparse: SparseFeatures) -> Pending:
        """Post the exchanges of one batch; on the result ``wait()`` returns what ``forward`` would, ``by_name()`` what
        ``lookup`` would.

        Raises:
            DataError: A rank's batch is wrong; every rank raises, and no weight has changed.
            UnsupportedError: The collection is not sharded.
        """
        if not isinstance(sparse, SparseFeatures):
            raise DataError(
                f"an EmbeddingBagCollection reads SparseFeatures (keys, lengths, values), not {type(sparse).__name__}"
            )
        return self.engine.start(sparse)

    def forward(self, sparse: SparseFeatures) -> Tensor:
        """Return the pooled outputs ``[B, sum(output_dims)]`` float32, in declared order.

        Raises:
            DataError: A rank's batch is wrong; every rank raises, and no weight has changed.
            UnsupportedError: The collection is not sharded, or its outputs do not all have one row per sample
                (``lookup`` returns them).
        """
        return self.start(sparse).wait()

    def lookup(self, sparse: SparseFeatures) -> dict[str, Tensor]:
        """Return every output by name: ``[B, dim]``, of a sequence ``[ids, dim]``, of a variable batch ``[B_f, dim]``.

        Raises:
            DataError: A rank's batch is wrong; every rank raises, and no weight has changed.
            UnsupportedError: The collection is not sharded.
        """
        return self.start(sparse).by_name()

    def sparse_parameter_group(self) -> dict[str, Any]:
        """Return the parameter group that carries the sparse learning rate, for ``configure_optimizers``."""
        return {"params": [self.__dict__["_lr_carrier"]], "lr": self.optimizer.lr, "name": SPARSE_GROUP}

    def owns_group(self, group: Mapping[str, Any]) -> bool:
        """Return whether a parameter group of an optimizer is this collection's."""
        return any(parameter is self.__dict__["_lr_carrier"] for parameter in group["params"])

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next forward on.

        Raises:
            ValueError: It is negative or not finite.
        """
        if not (math.isfinite(lr) and lr >= 0):
            raise ValueError(f"the sparse learning rate {lr} must be finite and at least 0")
        self.engine.set_learning_rate(lr)

    @property
    def last_batch_sizes(self) -> tuple[int, ...]:
        """Samples of every rank in the last forward."""
        return self.engine.batch_sizes

    @property
    def loss_weight(self) -> float:
        """What this rank's mean loss must be multiplied by, so that the mean over ranks is the global mean."""
        sizes = self.last_batch_sizes
        total = sum(sizes)
        own = sizes[self.__dict__["_collectives"].rank]
        return len(sizes) * own / total if total else 0.0

    @property
    def out_of_range_counts(self) -> dict[str, int]:
        """Ids of this rank that were clamped or dropped so far, per table."""
        return dict(self.engine.check.repaired)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What was replaced when the shards were built, and why."""
        return tuple(self.engine.fallbacks)

    def find_non_finite(self) -> NonFinite | None:
        """Return where NaN or an infinite value sits: in an output of the last forward, or in this rank's weights.

        Returns:
            The stage, and the table with the feature and sample or the row; None if everything is finite. Not a
            collective, and not cheap: it reads every weight of this rank. For the message about a loss that is not
            finite.
        """
        engine = self.engine
        return first_non_finite(self.tables, self.output_names, engine.last_outputs, engine.local_shards)

    def full_weight(self, table: str) -> Tensor:
        """Gather a whole table ``[rows, D]`` float32 on every rank. A collective; for tests and small tables."""
        return self._gather(table, None, per_row=False)

    def full_state(self, table: str) -> dict[str, Tensor]:
        """Gather the optimizer states of a whole table on every rank, by name. A collective.

        With the semantics ``per_shard``, a state that is kept per row comes with one column per column shard,
        ``[rows, column shards]``.
        """
        states = self.optimizer_of(table).states
        return {name: self._gather(table, name, per_row=per_row) for name, per_row in states.items()}

    def _gather(self, name: str, state_name: str | None, *, per_row: bool) -> Tensor:
        index = self._table_index(name)
        table, engine = self.tables[index], self.engine
        local = engine.local_shards(index)
        if engine.is_replicated(index):
            _, weight, states = local[0]
            return (weight if state_name is None else states[state_name]).float().clone()
        begins, shared = engine.column_shards(index)
        if per_row and shared:  # every column shard has the same values
            local = [entry for entry in local if entry[0].column_begin == begins[0]]
            begins = begins[:1]
        width = len(begins) if per_row else table.embedding_dim
        full = torch.zeros(table.num_embeddings, width, device=self.engine.device)
        for shard, weight, states in local:
            part = weight if state_name is None else states[state_name]
            column = begins.index(shard.column_begin) if per_row else shard.column_begin
            block = part.unsqueeze(1) if part.dim() == 1 else part
            full[shard.row_begin : shard.row_end, column : column + block.shape[1]] = block
        self.__dict__["_collectives"].all_reduce(full)
        return full.squeeze(1) if per_row and width == 1 else full

    def _table_index(self, name: str) -> int:
        for index, table in enumerate(self.tables):
            if table.name == name:
                return index
        raise DataError(f"there is no table '{name}'; the collection has {[table.name for table in self.tables]}")

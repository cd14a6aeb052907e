"""The engine of one collection on one rank: its shards, and the way of a batch through them.

Kept outside ``nn.Module`` registration on purpose: DDP's broadcast, dtype conversion and ``state_dict`` would each
corrupt sharded storage silently.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from neo.comms.codecs import Codec
from neo.comms.collectives import Collectives
from neo.comms.spec import CODECS, CommsSpec, is_hierarchical
from neo.comms.two_step import TwoStepCollectives
from neo.data.batch import SparseFeatures
from neo.data.spec import OutOfRange
from neo.errors import UnsupportedError
from neo.ops.pooled_lookup import PooledLookup
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingPlan
from neo.sharded.data_parallel import Replicas
from neo.sharded.initial_values import fill_initial_values
from neo.sharded.input_check import InputCheck
from neo.sharded.input_dist import InputDist
from neo.sharded.layout import GroupLayout, make_layout
from neo.sharded.lookups import LookupBuilder
from neo.sharded.output_dist import OutputDist, Transfer, receive_pooled, send_pooled
from neo.sharded.row_states import RowStates
from neo.sharded.sources import SourceMaker, Sources
from neo.sharded.stages import Stage, name_backward, stage
from neo.sharded.unfused import UnfusedGroups
from neo.tables.spec import TableSpec


class Pending:
    """Outputs on their way."""

    def __init__(self, engine: "ShardedEngine", transfer: Transfer, token: Tensor) -> None:
        self._engine, self._transfer, self._token = engine, transfer, token

    def wait(self) -> Tensor:
        """Return ``[B, sum of output dims]`` float32, differentiable.

        Raises:
            UnsupportedError: Not every output has one row per sample.
        """
        if not self._engine.layout.is_uniform:
            raise UnsupportedError(
                "this EmbeddingBagCollection has sequence outputs (pooling=none) or a variable batch, so its outputs "
                "do not fit into one matrix; read them by name: collection.lookup(sparse), or start(sparse).by_name()"
            )
        return self._results()[0]

    def by_name(self) -> dict[str, Tensor]:
        """Return ``[rows, dim]`` float32 of every output, differentiable: a row per sample, bag or id."""
        results = self._results()
        outputs = self._engine.layout.outputs
        return {o.name: results[o.bag_class][:, o.column : o.column + o.dim] for o in outputs}

    def _results(self) -> tuple[Tensor, ...]:
        results = receive_pooled(self._transfer, self._token)
        self._engine.last_results = tuple(result.detach() for result in results)
        return results


class ShardedEngine:
    """This rank's part of a sharded collection.

    Args:
        tables: All tables of the collection.
        plan: A checked plan that places them.
        keys: Plan key of each table name.
        optimizers: The sparse optimizer of each table.
        base_lr: The learning rate that those of the tables are relative to.
        collectives: The group over which the tables are sharded.
        device: Where this rank's shards live.
        seed: Decides the initial weights and random rounding.
        out_of_range: What happens to ids outside their table.
        comms: Codecs of the pooled exchange, and its way.
        may_fall_back: Whether a backend that does not load is replaced by the reference.
        semantics: What a row-wise optimizer does on tables split by columns.
        variable_batch: Whether each feature may have its own number of bags.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        *,
        plan: ShardingPlan,
        keys: Mapping[str, str],
        optimizers: Sequence[SparseOptimizerSpec],
        base_lr: float,
        collectives: Collectives,
        device: torch.device,
        seed: int,
        out_of_range: OutOfRange,
        comms: CommsSpec,
        may_fall_back: bool,
        semantics: ColumnWiseSemantics,
        variable_batch: bool,
    ) -> None:
        self._comms = collectives
        self._loss_scale = comms.loss_scale
        self.device = device
        self._tables = tuple(tables)
        self._base_lr = base_lr
        self.layout = make_layout(tables, plan, keys, optimizers, semantics=semantics, variable_batch=variable_batch)
        self.check = InputCheck(tables, out_of_range, variable_batch=variable_batch)
        self._sources = SourceMaker(self.layout, [entry.feature for entry in self.check.features])
        places = self._sources.places
        hierarchical = is_hierarchical(comms.exchange, collectives.world_size, plan.local_world_size)
        ids = TwoStepCollectives(collectives, plan.local_world_size) if hierarchical else collectives
        self._input_dist = InputDist(self.layout, ids, self.check.features, places)
        builder = LookupBuilder(self._tables, keys, device=device, seed=seed, may_fall_back=may_fall_back)
        self._groups = self.layout.groups[collectives.rank]
        self._lookups = [builder.build(group) for group in self._groups]
        self._replica_lookups = [builder.build_replicas(group) for group in self.layout.replica_groups]
        self.fallbacks = builder.fallbacks
        sharing = [index for index, group in enumerate(self._groups) if group.shares_row_state]
        row_states = RowStates(self.layout, collectives) if self.layout.shares_row_state else None
        self._output_dist = OutputDist(
            self.layout,
            collectives,
            places,
            forward_codec=_codec(comms.forward),
            backward_codec=_codec(comms.backward),
            mode=comms.exchange,
            replicas=Replicas(self.layout, self._replica_lookups, places, collectives),
            unfused=UnfusedGroups(sharing, [self._lookups[index] for index in sharing], row_states),
        )
        self._anchor = torch.zeros((), requires_grad=True, device=device)
        self._steps_before = 0
        self.batch_sizes: tuple[int, ...] = (0,) * collectives.world_size
        self.last_results: tuple[Tensor, ...] = ()
        self._fill(keys, seed)

    def start(self, sparse: SparseFeatures) -> Pending:
        """Check the batch, exchange its ids, look up this rank's rows and post the exchange of the pooled sums.

        Raises:
            DataError: Any rank's batch is wrong; every rank raises, and no weight has changed.
        """
        with stage(Stage.INPUT_DIST):
            checked, error = self.check(sparse)
            sources = self._sources(checked)
            local = self._input_dist(sources, error)
        self.batch_sizes = local.batch_sizes
        dist = self._output_dist
        transfer = Transfer(
            dist,
            local.bag_counts,
            local.groups,
            dist.replicas.inputs(sources),
            self._inverse_lengths(sources),
            gradient_divisor=float(self._comms.world_size),
            loss_scale=self._scale_of(sum(local.batch_sizes)),
        )
        if torch.is_grad_enabled():
            dist.opened(transfer)
        pooled = []
        for index, (lookup, part) in enumerate(zip(self._lookups, local.groups, strict=True)):
            look_up = lookup.pool if index in dist.unfused.indices else lookup
            with stage(Stage.LOOKUP):
                pooled.append(look_up(part.values, part.offsets, part.weights))
            name_backward(pooled[-1], Stage.SPARSE_UPDATE)
        extra = [] if local.received_weights is None else [local.received_weights]
        return Pending(self, transfer, send_pooled(transfer, pooled, extra, self._anchor))

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next step on; a table with a learning rate of its own keeps its ratio to the others'."""
        for group, lookup in self._all_lookups():
            own = group.optimizer.lr
            lookup.set_learning_rate(lr if own == self._base_lr else lr * (own / self._base_lr))

    @property
    def num_backwards(self) -> int:
        """Backwards so far, each of which was one optimizer step."""
        return self._output_dist.num_backwards

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the tables' whole life, those before a checkpoint was loaded included."""
        return self._steps_before + self.num_backwards

    def set_num_steps(self, num_steps: int) -> None:
        """Go on as if so many steps had been taken."""
        self._steps_before = num_steps - self.num_backwards
        for _, lookup in self._all_lookups():
            lookup.num_steps = num_steps

    def local_shards(self, table_index: int) -> list[tuple[Shard, Tensor, dict[str, Tensor]]]:
        """Return this rank's shards of a table with their weights and optimizer states, as views."""
        found = []
        for group, lookup in self._all_lookups():
            for local, weight, state in zip(group.local_shards, lookup.weights(), lookup.states(), strict=True):
                if local.table == table_index:
                    found.append((local.shard, weight, state))
        return found

    @property
    def last_outputs(self) -> dict[str, Tensor]:
        """The outputs ``[rows, dim]`` of the last forward by name, detached; empty before the first."""
        if not self.last_results:
            return {}
        outputs = self.layout.outputs
        return {o.name: self.last_results[o.bag_class][:, o.column : o.column + o.dim] for o in outputs}

    def is_replicated(self, table_index: int) -> bool:
        """Return whether every rank holds the whole table."""
        return any(output.replicated for output in self.layout.outputs if output.table == table_index)

    def column_shards(self, table_index: int) -> tuple[list[int], bool]:
        """Return where the column shards of a table begin, and whether they share their row-wise state."""
        found = [
            (local.shard.column_begin, group.shares_row_state)
            for groups in self.layout.groups
            for group in groups
            for local in group.local_shards
            if local.table == table_index
        ]
        return sorted({begin for begin, _ in found}), any(shares for _, shares in found)

    def _all_lookups(self) -> list[tuple[GroupLayout, PooledLookup]]:
        sharded = list(zip(self._groups, self._lookups, strict=True))
        return sharded + list(zip(self.layout.replica_groups, self._replica_lookups, strict=True))

    def _fill(self, keys: Mapping[str, str], seed: int) -> None:
        for index, table in enumerate(self._tables):
            for shard, weight, _ in self.local_shards(index):
                fill_initial_values(weight, table, shard, key=keys[table.name], seed=seed)

    def _inverse_lengths(self, sources: Sources) -> dict[int, Tensor]:
        inverse = {}
        for bag_class in {mean.bag_class for mean in self._output_dist.mean_columns}:
            lengths = sources.lengths[bag_class]
            inverse[bag_class] = torch.where(lengths > 0, 1.0 / lengths.clamp(min=1), 0.0)
        return inverse

    def _scale_of(self, num_samples: int) -> float:
        """Return the loss scale of a step, a power of two."""
        wanted = self._loss_scale if self._loss_scale is not None else float(max(1, num_samples))
        return 2.0 ** math.ceil(math.log2(wanted))


def _codec(name: str) -> Codec:
    codec = CODECS.get(name)()
    assert isinstance(codec, Codec)
    return codec

"""The engine of one collection on one rank: its shards, and the way of a batch through them.

Kept outside ``nn.Module`` registration on purpose: DDP's broadcast, dtype conversion and ``state_dict`` would each
corrupt sharded storage silently.
"""

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from neo.comms.codecs import Codec
from neo.comms.collectives import Collectives
from neo.comms.spec import CODECS, CommsSpec
from neo.data.batch import SparseFeatures
from neo.data.spec import OutOfRange
from neo.errors import UnsupportedError
from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, choose_backend
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan
from neo.sharded.data_parallel import ReplicaInput, Replicas
from neo.sharded.initial_values import fill_initial_values
from neo.sharded.input_check import InputCheck
from neo.sharded.input_dist import InputDist
from neo.sharded.layout import GroupLayout, make_layout, normalised
from neo.sharded.output_dist import OutputDist, Transfer, receive_pooled, send_pooled
from neo.tables.spec import TableSpec
from neo.versions import kernel_versions

_LOG = logging.getLogger(__name__)


class Pending:
    """Pooled outputs on their way."""

    def __init__(
        self, engine: "ShardedEngine", transfer: Transfer, token: Tensor, replicated: Sequence[Tensor]
    ) -> None:
        self._engine, self._transfer, self._token, self._replicated = engine, transfer, token, replicated

    def wait(self) -> Tensor:
        """Return ``[B, sum of output dims]`` float32, differentiable."""
        result = receive_pooled(self._transfer, self._token, self._replicated)
        self._engine.last_result = result.detach()
        return result


class ShardedEngine:
    """This rank's part of a sharded collection.

    Args:
        tables: All tables of the collection.
        plan: A checked plan that places them.
        keys: Plan key of each table name.
        optimizer: The sparse optimizer of all tables.
        collectives: The group over which the tables are sharded.
        device: Where this rank's shards live.
        seed: Decides the initial weights.
        out_of_range: What happens to ids outside their table.
        comms: Codecs of the pooled exchange.
        may_fall_back: Whether a backend that does not load is replaced by the reference.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        *,
        plan: ShardingPlan,
        keys: Mapping[str, str],
        optimizer: SparseOptimizerSpec,
        collectives: Collectives,
        device: torch.device,
        seed: int,
        out_of_range: OutOfRange,
        comms: CommsSpec,
        may_fall_back: bool,
    ) -> None:
        self._may_fall_back = may_fall_back
        self._comms = collectives
        self.device = device
        self._tables = tuple(tables)
        self.fallbacks: list[str] = []
        self.check = InputCheck(tables, out_of_range)
        self.layout = make_layout(tables, plan, keys)
        self._normalised = tuple(dict.fromkeys(o.feature for o in self.layout.outputs if o.is_mean and o.weighted))
        features = [entry.feature for entry in self.check.features]
        sources = (*features, *(normalised(feature) for feature in self._normalised))
        self._source_position = {source: index for index, source in enumerate(sources)}
        self._input_dist = InputDist(self.layout, collectives, self.check.features, sources)
        self._output_dist = OutputDist(
            self.layout, collectives, self._source_position, _codec(comms.forward), _codec(comms.backward)
        )
        groups = self.layout.groups[collectives.rank]
        self._lookups = [self._build_lookup(group, optimizer) for group in groups]
        self._replica_of = {
            index: position
            for position, index in enumerate(
                dict.fromkeys(output.table for output in self.layout.outputs if output.data_parallel)
            )
        }
        replicated = [self._tables[index] for index in self._replica_of]
        self._replicas = Replicas(replicated, optimizer=optimizer, collectives=collectives, device=device)
        self._anchor = torch.zeros((), requires_grad=True, device=device)
        self.batch_sizes: tuple[int, ...] = (0,) * collectives.world_size
        self.last_result: Tensor | None = None
        self._fill(keys, seed)

    @property
    def last_outputs(self) -> dict[str, Tensor]:
        """The outputs ``[B, dim]`` of the last forward by name, detached; empty before the first."""
        if self.last_result is None:
            return {}
        names = [f if f == t.name else f"{t.name}.{f}" for t in self._tables for f in t.feature_names]
        outputs = zip(names, self.layout.outputs, strict=True)
        return {name: self.last_result[:, o.column : o.column + o.dim] for name, o in outputs}

    def start(self, sparse: SparseFeatures) -> Pending:
        """Check the batch, exchange its ids, look up this rank's rows and post the exchange of the pooled sums.

        Raises:
            DataError: Any rank's batch is wrong; every rank raises, and no weight has changed.
        """
        checked, error = self.check(sparse)
        checked = self._add_normalised(checked)
        local = self._input_dist(checked, error)
        self.batch_sizes = local.batch_sizes
        divisor = float(self._comms.world_size)
        transfer = Transfer(
            self._output_dist, local.batch_sizes, local.capacity, self._inverse_lengths(checked), divisor
        )
        if torch.is_grad_enabled():
            self._output_dist.opened(transfer)
        pooled = [
            lookup(group.values, group.offsets, group.weights)
            for lookup, group in zip(self._lookups, local.groups, strict=True)
        ]
        extra = [] if local.received_weights is None else [local.received_weights]
        token = send_pooled(transfer, pooled, extra, self._anchor)
        return Pending(self, transfer, token, self._replicas.lookup(self._replica_inputs(checked), divisor))

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next step on."""
        for lookup in self._lookups:
            lookup.set_learning_rate(lr)
        self._replicas.set_learning_rate(lr)

    @property
    def num_backwards(self) -> int:
        """Backwards so far, each of which was one optimizer step."""
        return self._output_dist.num_backwards

    def local_shards(self, table_index: int) -> list[tuple[Shard, Tensor, dict[str, Tensor]]]:
        """Return this rank's shards of a table with their weights and optimizer states, as views."""
        if table_index in self._replica_of:
            replica = self._replica_of[table_index]
            weight = self._replicas.weights[replica]
            whole = Shard(self._comms.rank, 0, weight.shape[0], 0, weight.shape[1])
            return [(whole, weight, self._replicas.states[replica])]
        found = []
        for group, lookup in zip(self.layout.groups[self._comms.rank], self._lookups, strict=True):
            for local, weight, state in zip(group.local_shards, lookup.weights(), lookup.states(), strict=True):
                if local.table == table_index:
                    found.append((local.shard, weight, state))
        return found

    def is_replicated(self, table_index: int) -> bool:
        """Return whether every rank holds the whole table."""
        return table_index in self._replica_of

    def _build_lookup(self, group: GroupLayout, optimizer: SparseOptimizerSpec) -> PooledLookup:
        local_tables = [
            LocalTable(self._tables[local.table].name, local.shard.num_rows, local.shard.num_columns)
            for local in group.local_shards
        ]
        backend = self._choose(group, optimizer) if group.kernel == AUTO else group.kernel
        may_fall_back = self._may_fall_back or group.kernel == AUTO
        slots = [slot.local_table for slot in group.slots]
        try:
            lookup_class = POOLED_LOOKUPS.get(backend)
        except (ImportError, OSError, AttributeError, RuntimeError) as error:
            packages = ", ".join(f"{name} {version}" for name, version in kernel_versions().items())
            if not may_fall_back:
                raise UnsupportedError(
                    f"ops backend '{backend}' is installed but does not load: {error} ({packages}); install a pair "
                    f"that belongs together, or use ops=reference"
                ) from error
            line = f"ops: reference instead of {backend}, which is installed but does not load: {error} ({packages})"
            if line not in self.fallbacks:
                self.fallbacks.append(line)
                _LOG.warning(line)
            lookup_class = POOLED_LOOKUPS.get("reference")
        lookup = lookup_class(local_tables, slots=slots, optimizer=optimizer, device=self.device)
        assert isinstance(lookup, PooledLookup)
        return lookup

    def _choose(self, group: GroupLayout, optimizer: SparseOptimizerSpec) -> str:
        """Return the backend that can hold every shard of the group."""
        device = Device(self.device.type)
        for local in group.local_shards:
            table = self._tables[local.table]
            backend, reason = choose_backend(AUTO, device, table, local.shard.num_columns, optimizer)
            if reason:
                self.fallbacks.append(f"table '{table.name}': {backend} instead of fbgemm: {reason}")
                return backend
        return "fbgemm"

    def _fill(self, keys: Mapping[str, str], seed: int) -> None:
        for index, table in enumerate(self._tables):
            for shard, weight, _ in self.local_shards(index):
                fill_initial_values(weight, table, shard, key=keys[table.name], seed=seed)

    def _add_normalised(self, sparse: SparseFeatures) -> SparseFeatures:
        """Append each weighted-mean feature once more, with weights divided by their bag's sum (0 where that is 0)."""
        if not self._normalised or sparse.weights is None:
            return sparse
        counts = sparse.lengths_by_feature.sum(dim=1).tolist()
        values, weights = sparse.values.split(counts), sparse.weights.split(counts)
        rows = [self._source_position[feature] for feature in self._normalised]
        extra = []
        for row in rows:
            samples = torch.repeat_interleave(sparse.lengths_by_feature[row], output_size=weights[row].numel())
            sums = weights[row].new_zeros(sparse.batch_size).index_add(0, samples, weights[row])[samples]
            is_zero = sums == 0
            extra.append(torch.where(is_zero, 0.0, weights[row] / sums.masked_fill(is_zero, 1.0)))
        return SparseFeatures(
            [*sparse.keys, *(normalised(feature) for feature in self._normalised)],
            torch.cat([sparse.lengths, *(sparse.lengths_by_feature[row] for row in rows)]),
            torch.cat([sparse.values, *(values[row] for row in rows)]),
            torch.cat([sparse.weights, *extra]),
            [*sparse.weighted, *(True for _ in rows)],
        )

    def _inverse_lengths(self, sparse: SparseFeatures) -> Tensor | None:
        if not self._output_dist.mean_columns:
            return None
        lengths = sparse.lengths_by_feature
        return torch.where(lengths > 0, 1.0 / lengths.clamp(min=1), 0.0)

    def _replica_inputs(self, sparse: SparseFeatures) -> list[ReplicaInput]:
        if not self._replica_of:
            return []
        counts = sparse.lengths_by_feature.sum(dim=1).tolist()
        values = sparse.values.split(counts)
        weights = None if sparse.weights is None else sparse.weights.split(counts)
        inputs = []
        for output in self._output_dist.replicated:
            row = self._source_position[output.source]
            part = weights[row] if weights is not None and output.weighted else None
            replica = self._replica_of[output.table]
            inputs.append(ReplicaInput(replica, values[row], sparse.lengths_by_feature[row], part))
        return inputs


def _codec(name: str) -> Codec:
    codec = CODECS.get(name)()
    assert isinstance(codec, Codec)
    return codec

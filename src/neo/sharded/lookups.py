"""Building the operators of a rank's lookup groups from the plan's kernels."""

import logging
from collections.abc import Mapping, Sequence

import torch

from neo.errors import UnsupportedError
from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, choose_backend, refusal
from neo.sharded.layout import GroupLayout, LocalShard
from neo.tables.spec import TableSpec
from neo.versions import kernel_versions

_LOG = logging.getLogger(__name__)
_UNFUSED = "reference"  # holds replicas, and is what anything falls back to


class LookupBuilder:
    """Builds the operators of one rank.

    Args:
        tables: All tables of the collection.
        keys: Plan key of each table name.
        device: Where the shards live.
        seed: Decides random rounding.
        may_fall_back: Whether a backend that does not load is replaced by the reference; kernel ``auto`` always may.

    Attributes:
        fallbacks: What was replaced, and why.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        keys: Mapping[str, str],
        *,
        device: torch.device,
        seed: int,
        may_fall_back: bool,
    ) -> None:
        self._tables, self._keys = tables, keys
        self._device, self._seed = device, seed
        self._may_fall_back = may_fall_back
        self.fallbacks: list[str] = []

    def build(self, group: GroupLayout) -> PooledLookup:
        """Return the operator of a group.

        Raises:
            UnsupportedError: The plan names a backend that does not load, or that cannot do what the group needs.
        """
        backend = self._choose(group) if group.kernel == AUTO else group.kernel
        self._require(group, backend)
        return self._create(self._load(backend, group.kernel), group)

    def build_replicas(self, group: GroupLayout) -> PooledLookup:
        """Return the operator of a group of replicated tables, whose update runs in parts whatever their kernel."""
        return self._create(POOLED_LOOKUPS.get(_UNFUSED), group)

    def _create(self, lookup_class: type, group: GroupLayout) -> PooledLookup:
        lookup = lookup_class(
            [self._local_table(local) for local in group.local_shards],
            slots=[slot.local_table for slot in group.slots],
            optimizer=group.optimizer,
            device=self._device,
            seed=self._seed,
        )
        assert isinstance(lookup, PooledLookup)
        return lookup

    def _local_table(self, local: LocalShard) -> LocalTable:
        name, shard = self._tables[local.table].name, local.shard
        return LocalTable(
            name, shard.num_rows, shard.num_columns, shard.row_begin, shard.column_begin, self._keys[name]
        )

    def _load(self, backend: str, kernel: str) -> type:
        try:
            return POOLED_LOOKUPS.get(backend)
        except (ImportError, OSError, AttributeError, RuntimeError) as error:
            packages = ", ".join(f"{name} {version}" for name, version in kernel_versions().items())
            if not (self._may_fall_back or kernel == AUTO):
                raise UnsupportedError(
                    f"ops backend '{backend}' is installed but does not load: {error} ({packages}); install a pair "
                    f"that belongs together, or use ops=reference"
                ) from error
            line = f"ops: reference instead of {backend}, which is installed but does not load: {error} ({packages})"
            if line not in self.fallbacks:
                self.fallbacks.append(line)
                _LOG.warning(line)
            return POOLED_LOOKUPS.get(_UNFUSED)

    def _choose(self, group: GroupLayout) -> str:
        """Return the backend that can hold every shard of the group."""
        for table, width in self._widths(group):
            backend, reason = choose_backend(
                AUTO, Device(self._device.type), table, width, group.optimizer, shares_row_state=group.shares_row_state
            )
            if reason:
                self.fallbacks.append(f"table '{table.name}': {backend} instead of fbgemm: {reason}")
                return backend
        return "fbgemm"

    def _require(self, group: GroupLayout, backend: str) -> None:
        for table, width in self._widths(group):
            refused = refusal(
                backend,
                Device(self._device.type),
                table,
                width,
                group.optimizer,
                shares_row_state=group.shares_row_state,
            )
            if refused is not None:
                raise UnsupportedError(f"table '{table.name}' cannot have kernel {backend}: {refused}; use kernel auto")

    def _widths(self, group: GroupLayout) -> list[tuple[TableSpec, int]]:
        return [(self._tables[local.table], local.shard.num_columns) for local in group.local_shards]

"""Pooled lookup by FBGEMM's table-batched embedding, the optimizer step fused into its backward.

Only options that were seen to change the result are passed (FBGEMM on the CPU ignores some silently); what it
cannot do is refused by the capability matrix in ``neo.ops.spec`` before this module is imported.
"""

from collections.abc import Sequence

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    BoundsCheckMode,
    EmbeddingLocation,
    PoolingMode,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import WeightsDtype

_OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}
# With eps = 0 a row whose gradients cancel would become 0 / 0. The smallest normal float32 changes nothing else.
_SMALLEST_EPS = torch.finfo(torch.float32).tiny
_WEIGHTS = {WeightsDtype.FP32: SparseType.FP32, WeightsDtype.FP16: SparseType.FP16}
_STATE_NAMES = {"sgd": (), "adagrad": ("sum",), "rowwise_adagrad": ("sum",)}


class FbgemmPooledLookup(PooledLookup):
    """See ``PooledLookup``. Ids must be in range: the router checks them, the kernel does not."""

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__(tables, slots=slots, optimizer=optimizer, device=device, seed=seed)
        # The CPU kernel takes a table without rows for a part of the next one and then writes out of bounds.
        assert all(table.num_rows > 0 for table in tables), "empty shards hold no slot"
        # The slots of one table have to be neighbours: the CPU kernel merges the gradients of no others.
        self._slot_order = sorted(range(len(slots)), key=lambda slot: slots[slot])
        on_cpu = device.type == "cpu"
        location = EmbeddingLocation.HOST if on_cpu else EmbeddingLocation.DEVICE
        compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
        self._tbe = SplitTableBatchedEmbeddingBagsCodegen(
            embedding_specs=[(table.num_rows, table.num_columns, location, compute) for table in tables],
            feature_table_map=[slots[slot] for slot in self._slot_order],
            optimizer=_OPTIMIZERS[optimizer.name],
            learning_rate=optimizer.lr,
            eps=max(optimizer.eps, _SMALLEST_EPS),
            weights_precision=_WEIGHTS[optimizer.weights_dtype],
            output_dtype=SparseType.FP32,
            stochastic_rounding=False,  # ignored on the CPU, not reproducible under another plan on a GPU
            pooling_mode=PoolingMode.SUM,
            bounds_check_mode=BoundsCheckMode.NONE,
            device=None if on_cpu else device,
        )
        for state in self.states():
            if "sum" in state:
                state["sum"].fill_(optimizer.initial_accumulator)

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Look up and sum every bag; see the base class."""
        if torch.is_inference_mode_enabled():  # FBGEMM has no kernel for it; without gradients it is the same
            with torch.inference_mode(mode=False), torch.no_grad():
                return self(values.clone(), offsets.clone(), None if weights is None else weights.clone())
        if self._slot_order == list(range(len(self.slots))):
            pooled: Tensor = self._tbe(values, offsets, per_sample_weights=weights)
            return pooled
        bags = (offsets.numel() - 1) // len(self.slots)
        lengths = offsets.diff().view(len(self.slots), bags)[self._slot_order].flatten()
        counts = [int(count) for count in offsets.diff().view(len(self.slots), bags).sum(dim=1).tolist()]
        pooled = self._tbe(
            self._reordered(values, counts),
            torch.cat([offsets[:1], lengths.cumsum(0)]),
            per_sample_weights=None if weights is None else self._reordered(weights, counts),
        )
        widths = [self.tables[self.slots[slot]].num_columns for slot in self._slot_order]
        columns = dict(zip(self._slot_order, pooled.split(widths, dim=1), strict=True))
        return torch.cat([columns[slot] for slot in range(len(self.slots))], dim=1)

    def _reordered(self, of_ids: Tensor, counts: Sequence[int]) -> Tensor:
        """Return what belongs to the ids, ``[N]``, in the kernel's order of slots."""
        parts = of_ids.split(list(counts))
        return torch.cat([parts[slot] for slot in self._slot_order])

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next forward on."""
        self._tbe.set_learning_rate(lr)

    def weights(self) -> list[Tensor]:
        """Return the weights of each local table."""
        return [weight.detach() for weight in self._tbe.split_embedding_weights()]

    def states(self) -> list[dict[str, Tensor]]:
        """Return the optimizer states of each local table."""
        names = _STATE_NAMES[self.optimizer.name]
        if not names:
            return [{} for _ in self.tables]
        per_table = self._tbe.split_optimizer_states()
        return [dict(zip(names, (state.detach() for state in states), strict=True)) for states in per_table]

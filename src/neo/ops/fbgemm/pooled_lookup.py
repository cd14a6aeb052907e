"""Pooled lookup by FBGEMM's table-batched embedding, the optimizer step fused into its backward.

Only options that were seen to change the result are passed (FBGEMM on the CPU ignores some silently); what it
cannot do is refused by the capability matrix in ``neo.ops.spec`` before this module is imported.
"""

from collections.abc import Sequence

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
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

_OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}
# With eps = 0 a row whose gradients cancel would become 0 / 0. The smallest normal float32 changes nothing else.
_SMALLEST_EPS = torch.finfo(torch.float32).tiny
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
        on_cpu = device.type == "cpu"
        location = EmbeddingLocation.HOST if on_cpu else EmbeddingLocation.DEVICE
        compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
        self._tbe = SplitTableBatchedEmbeddingBagsCodegen(
            embedding_specs=[(table.num_rows, table.num_columns, location, compute) for table in tables],
            feature_table_map=list(slots),
            optimizer=_OPTIMIZERS[optimizer.name],
            learning_rate=optimizer.lr,
            eps=max(optimizer.eps, _SMALLEST_EPS),
            stochastic_rounding=False,  # no effect on fp32 weights
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
        pooled: Tensor = self._tbe(values, offsets, per_sample_weights=weights)
        return pooled

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

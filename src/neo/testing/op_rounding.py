"""Random rounding of 16-bit weights, for ``neo.testing.op_suite``."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable
from neo.optim.spec import SparseOptimizerSpec
from neo.testing.op_cases import NUM_STEPS, OpCases
from neo.testing.op_checks import SPACINGS, run
from neo.testing.op_problem import OpInput


class RoundingTests(OpCases):
    """Tests of backends that declare ``rounds_stochastically``."""

    def test_random_rounding_is_unbiased_and_seeded(self) -> None:
        """The mean of many roundings is the value; what is representable stays; the seed decides."""
        step = 2.0**-12
        for optimizer in self.optimizers():
            if not optimizer.rounds_stochastically or optimizer.name != "sgd" or optimizer.weight_decay:
                continue
            results = [self._rounded(optimizer, step, seed) for seed in (0, 0, 1)]
            assert torch.equal(results[0], results[1]), f"{optimizer}: one seed rounds in two ways"
            assert not torch.equal(results[0], results[2]), f"{optimizer}: two seeds round alike"
            values = results[0].double().flatten()
            spacing = SPACINGS[optimizer.weights_dtype][0]
            # 1 + step lies between 1 and 1 + spacing. Six standard deviations of the mean of all of them.
            share = step / spacing
            error = 6 * spacing * (share * (1 - share) / values.numel()) ** 0.5
            mean = float(values.mean()) - 1.0
            assert set(values.unique().tolist()) == {1.0, 1.0 + spacing}, f"{optimizer}: {values.unique()}"
            assert abs(mean - step) <= error, f"{optimizer}: the mean moved by {mean}, not {step} +- {error}"
            raised = (results[0] > 1).double()
            correlation = torch.corrcoef(raised.T) - torch.eye(raised.shape[1])
            assert correlation.abs().max() < 0.2, f"{optimizer}: the columns of a row round together"
            assert torch.equal(self._rounded(optimizer, spacing, 0).unique().float(), torch.tensor([1.0 + spacing]))

    def test_random_rounding_is_the_same_in_every_shard(self) -> None:
        """It depends on rows and columns of the whole table, and on its key."""
        rows, width = 12, 4 * self.able.dim_multiple
        for optimizer in self.optimizers():
            if not optimizer.rounds_stochastically or optimizer.name != "sgd" or optimizer.weight_decay:
                continue
            whole = self._rounded_shard(optimizer, LocalTable("t", rows, width, key="t"))
            for first, count, column, columns in (
                (0, 5, 0, width),
                (5, 7, width // 2, width // 2),
                (3, 1, 0, width // 4),
            ):
                shard = LocalTable("t", count, columns, first_row=first, first_column=column, key="t")
                part = whole[first : first + count, column : column + columns]
                assert torch.equal(self._rounded_shard(optimizer, shard), part), (
                    f"{optimizer}: {shard} rounds otherwise"
                )
            other = self._rounded_shard(optimizer, LocalTable("t", rows, width, key="u"))
            assert not torch.equal(other, whole), f"{optimizer}: two tables round alike"

    def _rounded(self, optimizer: SparseOptimizerSpec, step: float, seed: int) -> Tensor:
        """Return the weights ``[512, D]``, all of them 1, after one step of ``step`` upwards."""
        table = LocalTable("t", 512, 4 * self.able.dim_multiple, key="t")
        op = self.make(replace(optimizer, lr=1.0), [table], (0,), seed)
        op.weights()[0].fill_(1.0)
        ids = np.arange(512)
        run(op, OpInput(np.ones((1, 512), dtype=np.int64), ids, None, np.full((512, table.num_columns), -step)))
        return op.weights()[0].cpu().clone()

    def _rounded_shard(self, optimizer: SparseOptimizerSpec, table: LocalTable) -> Tensor:
        op = self.make(replace(optimizer, lr=1.0), [table], (0,))
        op.weights()[0].fill_(1.0)
        lengths = np.ones((1, table.num_rows), dtype=np.int64)
        gradient = np.full((table.num_rows, table.num_columns), -(2.0**-12))
        for _ in range(NUM_STEPS):
            run(op, OpInput(lengths, np.arange(table.num_rows), None, gradient))
        return op.weights()[0].cpu().clone()

"""The update in parts, for ``neo.testing.op_suite``."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable
from neo.testing.op_cases import NUM_STEPS, OpCases
from neo.testing.op_checks import all_equal, assert_close, copies, fill, run, tensor, tensors
from neo.testing.op_problem import dyadic, random_input


class UnfusedTests(OpCases):
    """Tests of backends that declare ``shares_row_state``."""

    def test_the_unfused_update_is_the_fused_one(self) -> None:
        """``merge``, ``add_decay``, ``apply``: bit-equal to the backward; a row's squares can come from outside."""
        if not self.able.shares_row_state:
            return
        for optimizer in self.some_optimizers():
            fused, parts = self.make(optimizer), self.make(optimizer)
            for op in (fused, parts):
                fill(op)
            for given in self.inputs(weighted=True):
                output, factors_gradient = run(fused, given)
                values, offsets, factors = tensors(parts, given)
                gradient = tensor(parts, given.gradient)
                assert factors is not None
                pooled = parts.pool(values, offsets, factors.detach())
                assert torch.equal(pooled.cpu(), output), f"{optimizer}: pool() is not the forward"
                wanted = parts.weights_gradient(values, offsets, factors.detach(), gradient)
                assert factors_gradient is not None and torch.equal(wanted.cpu(), factors_gradient), f"{optimizer}"
                merged = parts.merge(values, offsets, factors.detach(), gradient)
                parts.apply(parts.add_decay(merged))
                assert all_equal(copies(fused), copies(parts)), f"{optimizer}: apply() is not the backward"

    def test_column_shards_that_share_their_squares_are_the_whole_table(self) -> None:
        """Row-wise optimizers on two column shards, with the mean over the whole row."""
        if not self.able.shares_row_state:
            return
        half = 2 * self.able.dim_multiple
        whole = [LocalTable("t", 9, 2 * half, key="t")]
        shards = [LocalTable("t", 9, half, first_column=column, key="t") for column in (0, half)]
        random = np.random.default_rng(3)
        for optimizer in self.optimizers():
            one, two = self.make(optimizer, whole, (0,)), self.make(optimizer, shards, (0, 1))
            one.weights()[0].copy_(tensor(one, dyadic(random, 9, 2 * half)))
            for weight, part in zip(two.weights(), one.weights()[0].split(half, dim=1), strict=True):
                weight.copy_(part)
            for _ in range(NUM_STEPS):
                given = random_input(random, whole, (0,), num_bags=5, max_length=3, weighted=False)
                run(one, given)
                both = replace(
                    given, lengths=np.concatenate([given.lengths] * 2), values=np.concatenate([given.values] * 2)
                )
                values, offsets, _ = tensors(two, both)
                merged = two.add_decay(two.merge(values, offsets, None, tensor(two, both.gradient)))
                squares = sum(part.gradient.square().sum(dim=1) for part in merged)
                assert isinstance(squares, Tensor)
                two.apply(merged, [squares / (2 * half)] * 2)
                got = torch.cat([weight.cpu() for weight in two.weights()], dim=1)
                assert_close(got, one.weights()[0].cpu(), optimizer, "weights of two column shards")

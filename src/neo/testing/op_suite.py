"""What every ops backend owes, as pytest tests for its author to subclass.

```python
class TestMine(OpSuite):
    backend = "mine"  # registered with ``neo.ops.spec.register_backend``
```

Every optimizer, weight type, weight decay and rounding that the backend's capability declares is compared with a
float64 reference that shares no code with it; what it declares and ignores is found. Pooling beside the sum is made of
sums by the caller (see ``neo.ops.pooled_lookup``), so there is nothing else to test.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.ops.spec import POOLED_LOOKUPS, Capability, Device, capability
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.tables.spec import WeightsDtype
from neo.testing.op_checks import (
    SPACINGS,
    all_equal,
    array,
    assert_close,
    assert_rounded,
    copies,
    fill,
    run,
    tensor,
    tensors,
    weights,
)
from neo.testing.op_problem import OpInput, OpReference, dyadic, random_input

NUM_STEPS = 3
_SLOTS = (0, 1, 0, 2, 3)  # Table 0 is read twice.


class OpSuite:
    """Subclasses name the backend, and the device if it is not the CPU.

    Attributes:
        backend: The registered name.
        device: Where it runs; ``capability(backend, device)`` says what is tested.
    """

    backend: ClassVar[str]
    device: ClassVar[Device] = Device.CPU

    @property
    def able(self) -> Capability:
        """What the backend declares."""
        able = capability(self.backend, self.device)
        assert able is not None, f"{self.backend} declares nothing for {self.device}"
        return able

    def optimizers(self) -> Iterator[SparseOptimizerSpec]:
        """Yield every declared combination of optimizer, weight type, weight decay and rounding."""
        decays = [(0.0, WeightDecayMode.L2), *((0.25, mode) for mode in sorted(self.able.weight_decays))]
        for name in sorted(self.able.optimizers):
            for dtype in sorted(self.able.weights_dtypes):
                if (name, dtype) in self.able.except_for:
                    continue
                at_random = dtype is not WeightsDtype.FP32 and self.able.rounds_stochastically
                for rounding in (False, True) if at_random else (False,):
                    for decay, mode in decays:
                        yield SparseOptimizerSpec(
                            name,
                            lr=0.1,  # no power of two: what is rounded has something to round
                            eps=2.0**-6,
                            weights_dtype=dtype,
                            weight_decay=decay,
                            weight_decay_mode=mode,
                            stochastic_rounding=rounding,
                        )

    def tables(self) -> list[LocalTable]:
        """Return tables of several widths, two of them alike; the second is a column shard."""
        multiple = self.able.dim_multiple
        return [
            LocalTable("a", 40, 2 * multiple, key="a"),
            LocalTable("b", 7, 5 * multiple, first_row=3, first_column=multiple, key="b"),
            LocalTable("c", 1, multiple, key="c"),
            LocalTable("d", 300, 2 * multiple, first_row=10**6, key="d"),
        ]

    def make(
        self,
        optimizer: SparseOptimizerSpec,
        tables: Sequence[LocalTable] | None = None,
        slots: Sequence[int] = _SLOTS,
        seed: int = 0,
    ) -> PooledLookup:
        """Build the backend."""
        op = POOLED_LOOKUPS.get(self.backend)(
            self.tables() if tables is None else tables,
            slots=slots,
            optimizer=optimizer,
            device=torch.device(self.device.value),
            seed=seed,
        )
        assert isinstance(op, PooledLookup)
        return op

    def inputs(
        self, *, weighted: bool, num_bags: int = 6, max_length: int = 4, steps: int = NUM_STEPS
    ) -> list[OpInput]:
        """Return random inputs of ``tables()``, the same at every call."""
        random = np.random.default_rng(1)
        sizes = {"num_bags": num_bags, "max_length": max_length}
        return [random_input(random, self.tables(), _SLOTS, weighted=weighted, **sizes) for _ in range(steps)]

    def test_equals_the_reference(self) -> None:
        """Outputs, gradients of the factors, weights and states after every step, for every declared option."""
        for optimizer in self.optimizers():
            for weighted in (False, True):
                op = self.make(optimizer)
                fill(op)
                self._compare(op, optimizer, self.inputs(weighted=weighted))

    def test_duplicates_are_merged_before_the_step(self) -> None:
        """One row from many ids of one bag, of many bags and of two slots is updated once."""
        tables = self.tables()
        width = sum(tables[table].num_columns for table in _SLOTS)
        random = np.random.default_rng(2)
        lengths = np.full((len(_SLOTS), 3), 50)
        given = OpInput(lengths, np.zeros(lengths.sum(), dtype=np.int64), None, dyadic(random, 3, width))
        for optimizer in self.optimizers():
            op = self.make(optimizer)
            fill(op)
            self._compare(op, optimizer, [given] * NUM_STEPS)

    def test_empty_input_changes_nothing(self) -> None:
        """Empty bags are zeros; without ids, and without bags, no row moves."""
        width = sum(self.tables()[table].num_columns for table in _SLOTS)
        for optimizer in self.optimizers():
            for bags in (0, 4):
                for factors in (None, np.zeros(0)):
                    op = self.make(optimizer)
                    fill(op)
                    before = copies(op)
                    lengths = np.zeros((len(_SLOTS), bags), dtype=np.int64)
                    gradient = np.ones((bags, width))
                    output, _ = run(op, OpInput(lengths, np.zeros(0, dtype=np.int64), factors, gradient))
                    assert output.shape == (bags, width) and not output.any(), f"{optimizer}: {output}"
                    assert all_equal(before, copies(op)), f"{optimizer}: an update without ids changed a table"

    def test_rows_that_no_bag_holds_stay(self) -> None:
        """Weight decay and moments move the touched rows only."""
        for optimizer in self.optimizers():
            op = self.make(optimizer)
            fill(op)
            before = copies(op)
            inputs = self.inputs(weighted=False)
            for given in inputs:
                run(op, given)
            for table in range(len(self.tables())):
                touched = np.zeros(self.tables()[table].num_rows, dtype=bool)
                for given in inputs:
                    starts = np.concatenate([[0], np.cumsum(given.lengths.sum(axis=1))])
                    for slot, read in enumerate(_SLOTS):
                        if read == table:
                            touched[given.values[starts[slot] : starts[slot + 1]]] = True
                stays = torch.from_numpy(~touched)
                after = op.weights()[table].cpu()[stays]
                assert torch.equal(after, before[table][stays]), f"{optimizer}: rows moved that no bag holds"

    def test_repeats_are_bit_equal(self) -> None:
        """The same inputs give the same bits."""
        for optimizer in self.optimizers():
            first, second = (self._after(optimizer) for _ in range(2))
            assert all_equal(first, second), f"{optimizer}: two runs differ"

    def test_every_accepted_option_changes_the_result(self) -> None:
        """A hyper-parameter that the kernel never receives leaves the weights as they are: found here."""
        for base in self.optimizers():
            others = {"eps": 0.5, "beta1": 0.25, "beta2": 0.25, "initial_accumulator": 4.0}
            changed = {key: replace(base, **{key: others[key]}) for key in base.reads}  # type: ignore[arg-type]
            changed["lr"] = replace(base, lr=0.5)
            if base.weight_decay:
                changed["weight_decay"] = replace(base, weight_decay=0.0)
                for mode in self.able.weight_decays - {base.weight_decay_mode}:
                    changed["weight_decay_mode"] = replace(base, weight_decay_mode=mode)
            if base.rounds_stochastically:
                changed["stochastic_rounding"] = replace(base, stochastic_rounding=False)
            results = self._after(base)
            for option, other in changed.items():
                same = all_equal(results, self._after(other))
                if option == "weight_decay_mode" and base.name == "sgd":
                    continue  # Of SGD both kinds are the same.
                assert not same, f"{self.backend} accepts {option} and ignores it: {base} and {other} end alike"

    def test_the_learning_rate_is_that_of_the_forward(self) -> None:
        """A new rate takes effect from the next forward on, not in the backward of the last one."""
        given = self.inputs(weighted=False)[0]
        for optimizer in self.optimizers():
            late, now = self.make(optimizer), self.make(optimizer)
            for op in (late, now):
                fill(op)
            expected = weights(late)
            output = late(*tensors(late, given))
            late.set_learning_rate(0.0)
            output.backward(tensor(late, given.gradient))
            assert not all_equal(expected, weights(late)), f"{optimizer}: the rate of a later forward was taken"
            now.set_learning_rate(0.0)
            run(now, given)
            assert all_equal(expected, weights(now)), f"{optimizer}: a learning rate of 0 moved a weight"

    def test_reading_updates_nothing(self) -> None:
        """Forwards without gradients, and without a backward, do not count as steps either."""
        given = self.inputs(weighted=False)
        for optimizer in self.optimizers():
            op = self.make(optimizer)
            fill(op)
            before = copies(op)
            with torch.no_grad():
                op(*tensors(op, given[1]))
            with torch.inference_mode():
                op(*tensors(op, given[2]))
            op(*tensors(op, given[2]))
            assert all_equal(before, copies(op)), f"{optimizer}: a forward changed a table"
            self._compare(op, optimizer, given)

    def test_the_unfused_update_is_the_fused_one(self) -> None:
        """``merge``, ``add_decay``, ``apply``: bit-equal to the backward; a row's squares can come from outside."""
        if not self.able.shares_row_state:
            return
        for optimizer in self.optimizers():
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

    def _after(self, optimizer: SparseOptimizerSpec) -> list[Tensor]:
        op = self.make(optimizer)
        fill(op)
        for given in self.inputs(weighted=True):
            run(op, given)
        return copies(op)

    def _compare(self, op: PooledLookup, optimizer: SparseOptimizerSpec, inputs: Sequence[OpInput]) -> None:
        """Run the inputs and compare everything after each step."""
        reference = OpReference(self.tables(), _SLOTS, optimizer, [array(weight) for weight in op.weights()])
        for given in inputs:
            expected, wanted = reference.forward(given), reference.factors_gradient(given)
            output, factors_gradient = run(op, given)
            assert_close(output, expected, optimizer, "output")
            if factors_gradient is not None:
                assert_close(factors_gradient, wanted, optimizer, "gradient of the factors")
            reference.step(given)
            for index, (weight, state) in enumerate(zip(op.weights(), op.states(), strict=True)):
                exact = reference.weights[index]
                assert_rounded(array(weight), exact, optimizer)
                reference.weights[index][:] = array(weight)  # Roundings to 16 bits shall not add up.
                states = reference.optimizers[index].states
                assert set(state) == set(states), f"{optimizer}: states {set(state)}, not {set(states)}"
                for name, value in state.items():
                    assert value.dtype is torch.float32, f"{optimizer}: the state '{name}' is {value.dtype}"
                    assert_close(value, states[name], optimizer, f"state '{name}'")

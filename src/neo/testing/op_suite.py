"""What every ops backend owes, as pytest tests for its author to subclass.

```python
class TestMine(OpSuite):
    backend = "mine"  # registered with ``neo.ops.spec.register_backend``
```

Every optimizer, weight type, weight decay and rounding that the backend's capability declares is compared with a
float64 reference that shares no code with it; what it declares and ignores is found. Pooling beside the sum is made of
sums by the caller (see ``neo.ops.pooled_lookup``), so there is nothing else to test.
"""

from dataclasses import replace

import numpy as np
import torch

from neo.testing.op_cases import NUM_STEPS, SLOTS
from neo.testing.op_checks import all_equal, copies, fill, run, tensor, tensors, weights
from neo.testing.op_extremes import ExtremeTests
from neo.testing.op_problem import OpInput, dyadic
from neo.testing.op_rounding import RoundingTests
from neo.testing.op_unfused import UnfusedTests


class OpSuite(ExtremeTests, RoundingTests, UnfusedTests):
    """Subclasses name the backend, and the device if it is not the CPU; see ``OpCases``."""

    def test_equals_the_reference(self) -> None:
        """Outputs, gradients of the factors, weights and states after every step, for every declared option."""
        for optimizer in self.optimizers():
            for weighted in (False, True):
                op = self.make(optimizer)
                fill(op)
                self.compare(op, optimizer, self.inputs(weighted=weighted))

    def test_duplicates_are_merged_before_the_step(self) -> None:
        """One row from many ids of one bag, of many bags and of two slots is updated once."""
        tables = self.tables()
        width = sum(tables[table].num_columns for table in SLOTS)
        random = np.random.default_rng(2)
        lengths = np.full((len(SLOTS), 3), 50)
        given = OpInput(lengths, np.zeros(lengths.sum(), dtype=np.int64), None, dyadic(random, 3, width))
        for optimizer in self.some_optimizers():
            op = self.make(optimizer)
            fill(op)
            self.compare(op, optimizer, [given] * NUM_STEPS)

    def test_empty_input_changes_nothing(self) -> None:
        """Empty bags are zeros; without ids, and without bags, no row moves."""
        width = sum(self.tables()[table].num_columns for table in SLOTS)
        for optimizer in self.some_optimizers():
            for bags in (0, 4):
                for factors in (None, np.zeros(0)):
                    op = self.make(optimizer)
                    fill(op)
                    before = copies(op)
                    lengths = np.zeros((len(SLOTS), bags), dtype=np.int64)
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
                    for slot, read in enumerate(SLOTS):
                        if read == table:
                            touched[given.values[starts[slot] : starts[slot + 1]]] = True
                stays = torch.from_numpy(~touched)
                after = op.weights()[table].cpu()[stays]
                assert torch.equal(after, before[table][stays]), f"{optimizer}: rows moved that no bag holds"

    def test_repeats_are_bit_equal(self) -> None:
        """The same inputs give the same bits."""
        for optimizer in self.some_optimizers():
            first, second = (self.after(optimizer) for _ in range(2))
            assert all_equal(first, second), f"{optimizer}: two runs differ"

    def test_every_accepted_option_changes_the_result(self) -> None:
        """A hyper-parameter that the kernel never receives leaves the weights as they are: found here."""
        for base in self.some_optimizers():
            others = {"eps": 0.5, "beta1": 0.25, "beta2": 0.25, "initial_accumulator": 4.0}
            changed = {key: replace(base, **{key: others[key]}) for key in base.reads}  # type: ignore[arg-type]
            changed["lr"] = replace(base, lr=0.5)
            if base.weight_decay:
                changed["weight_decay"] = replace(base, weight_decay=0.0)
                for mode in self.able.weight_decays - {base.weight_decay_mode}:
                    changed["weight_decay_mode"] = replace(base, weight_decay_mode=mode)
            if base.rounds_stochastically:
                changed["stochastic_rounding"] = replace(base, stochastic_rounding=False)
            results = self.after(base)
            for option, other in changed.items():
                same = all_equal(results, self.after(other))
                if option == "weight_decay_mode" and base.name == "sgd":
                    continue  # Of SGD both kinds are the same.
                assert not same, f"{self.backend} accepts {option} and ignores it: {base} and {other} end alike"

    def test_reading_updates_nothing(self) -> None:
        """Forwards without gradients, and without a backward, do not count as steps either."""
        given = self.inputs(weighted=False)
        for optimizer in self.some_optimizers():
            op = self.make(optimizer)
            fill(op)
            before = copies(op)
            with torch.no_grad():
                op(*tensors(op, given[1]))
            with torch.inference_mode():
                op(*tensors(op, given[2]))
            op(*tensors(op, given[2]))
            assert all_equal(before, copies(op)), f"{optimizer}: a forward changed a table"
            self.compare(op, optimizer, given)

    def test_the_learning_rate_is_that_of_the_forward(self) -> None:
        """A new rate takes effect from the next forward on, not in the backward of the last one."""
        given = self.inputs(weighted=False)[0]
        for optimizer in self.some_optimizers():
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

"""What the tests of ``neo.testing.op_suite`` share: the options that a backend declares, its tables, the comparison."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.ops.spec import POOLED_LOOKUPS, Capability, Device, capability
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.tables.spec import WeightsDtype
from neo.testing.op_checks import array, assert_close, assert_rounded, copies, fill, run
from neo.testing.op_problem import OpInput, OpReference, random_input

NUM_STEPS = 3
# Two tables are read by several slots each, neighbours and others.
SLOTS = (0, 1, 0, 0, 2, 3, 1)


class OpCases:
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
                            # Beside a decay, so that plain AdaGrad begins at 0.
                            initial_accumulator=0.75 if decay and "adagrad" in name else 0.0,
                            weights_dtype=dtype,
                            weight_decay=decay,
                            weight_decay_mode=mode,
                            stochastic_rounding=rounding,
                        )

    def some_optimizers(self) -> Iterator[SparseOptimizerSpec]:
        """Yield every declared optimizer with every weight type and rounding, the kinds of weight decay in turns.

        For tests of what hardly depends on the decay: ``optimizers`` has up to three times as many.
        """
        groups: dict[tuple[str, WeightsDtype, bool], list[SparseOptimizerSpec]] = {}
        for optimizer in self.optimizers():
            key = optimizer.name, optimizer.weights_dtype, optimizer.rounds_stochastically
            groups.setdefault(key, []).append(optimizer)
        for number, alike in enumerate(groups.values()):
            yield alike[number % len(alike)]

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
        slots: Sequence[int] = SLOTS,
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
        return [random_input(random, self.tables(), SLOTS, weighted=weighted, **sizes) for _ in range(steps)]

    def after(self, optimizer: SparseOptimizerSpec) -> list[Tensor]:
        """Return weights and states after weighted inputs."""
        op = self.make(optimizer)
        fill(op)
        for given in self.inputs(weighted=True):
            run(op, given)
        return copies(op)

    def compare(
        self, op: PooledLookup, optimizer: SparseOptimizerSpec, inputs: Sequence[OpInput], rates: Sequence[float] = ()
    ) -> None:
        """Run the inputs, under ``rates`` where they are given, and compare everything after each step."""
        reference = OpReference(self.tables(), SLOTS, optimizer, [array(weight) for weight in op.weights()])
        for number, given in enumerate(inputs):
            if rates:
                op.set_learning_rate(rates[number])
                reference.set_learning_rate(rates[number])
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

"""Values and numbers at which kernels go wrong in silence, for ``neo.testing.op_suite``."""

from dataclasses import replace

import numpy as np

from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.testing.op_cases import OpCases
from neo.testing.op_checks import fill, run
from neo.testing.op_problem import OpInput

_SIZES = {
    "gradients": (1.0, 1.0, 2.0**14),
    "small gradients": (1.0, 1.0, 2.0**-10),
    "factors": (1.0, 2.0**10, 1.0),
    "weights": (2.0**12, 1.0, 1.0),
}


class ExtremeTests(OpCases):
    """Large and small values, values that are not finite, many bags, many values of each hyper-parameter."""

    def test_large_and_small_values_equal_the_reference(self) -> None:
        """Nothing is clamped or flushed: weights of 4096, factors of 1024, gradients of 16384 and of 0.0001."""
        base = self.inputs(weighted=True, num_bags=3, max_length=2, steps=1)[0]
        assert base.factors is not None
        for optimizer in self.some_optimizers():
            for of_weights, of_factors, of_gradient in _SIZES.values():
                op = self.make(optimizer)
                fill(op)
                for weight in op.weights():
                    weight.mul_(of_weights)
                given = replace(base, factors=base.factors * of_factors, gradient=base.gradient * of_gradient)
                self.compare(op, optimizer, [given])

    def test_what_is_not_finite_stays_visible(self) -> None:
        """NaN and infinity in a row, a gradient or a factor reach all that depends on them, and no other row."""
        base = self.inputs(weighted=True, steps=1)[0]
        assert base.factors is not None
        base = replace(base, factors=np.where(base.factors == 0, 1.0, base.factors))
        with np.errstate(all="ignore"):
            for optimizer in self.some_optimizers():
                for spoil, value in _SPOILS:
                    op = self.make(optimizer)
                    fill(op)
                    if spoil is None:
                        op.weights()[0][int(base.values[0]), 0] = value
                    given = base if spoil is None else spoil(base, value)
                    self.compare(op, optimizer, [given])
                    run(op, base)  # A table that holds such a row still works.

    def test_many_bags(self) -> None:
        """More bags than a kernel has threads, lanes or rows in a block: a mistake in their number shows."""
        for optimizer in self.some_optimizers():
            op = self.make(optimizer)
            fill(op)
            self.compare(op, optimizer, self.inputs(weighted=True, num_bags=1025, max_length=2, steps=1))

    def test_every_hyper_parameter_has_the_value_that_was_given(self) -> None:
        """Several values of each, one at a time, against the reference."""
        values = {"eps": (0.5, 1e-3), "beta1": (0.0, 0.75), "beta2": (0.25, 0.9), "initial_accumulator": (0.25, 3.0)}
        for base in self.some_optimizers():
            changed = [replace(base, **{key: value}) for key in base.reads for value in values.get(key, ())]  # type: ignore[arg-type]
            changed += [replace(base, lr=lr) for lr in (0.75, 0.003)]
            changed += [self._decayed(base, mode) for mode in sorted(self.able.weight_decays)]
            for optimizer in changed:
                op = self.make(optimizer)
                fill(op)
                self.compare(op, optimizer, self.inputs(weighted=False, num_bags=3, steps=2))

    def test_every_learning_rate_is_taken(self) -> None:
        """Rates above and below the first one, and 0, each in its step, against the reference."""
        for optimizer in self.some_optimizers():
            op = self.make(optimizer)
            fill(op)
            inputs = self.inputs(weighted=False, num_bags=3, steps=5)
            self.compare(op, optimizer, inputs, rates=(0.35, 0.35, 0.0, 0.01, 0.1))

    def _decayed(self, base: SparseOptimizerSpec, mode: WeightDecayMode) -> SparseOptimizerSpec:
        return replace(base, weight_decay=0.0625, weight_decay_mode=mode)


def _spoil_gradient(given: OpInput, value: float) -> OpInput:
    gradient = given.gradient.copy()
    gradient[int(np.flatnonzero(given.lengths[0])[0]), 0] = value
    return replace(given, gradient=gradient)


def _spoil_factor(given: OpInput, value: float) -> OpInput:
    assert given.factors is not None
    factors = given.factors.copy()
    factors[0] = value
    return replace(given, factors=factors)


_SPOILS = (
    (None, np.nan),
    (None, np.inf),
    (_spoil_gradient, np.nan),
    (_spoil_gradient, -np.inf),
    (_spoil_factor, np.nan),
)

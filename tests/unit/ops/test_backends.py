"""Our own backends under the suite that authors of others use, and the suite under backends with a mistake."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from neo.ops import spec
from neo.ops.pooled_lookup import LocalTable, MergedGradient
from neo.ops.reference.pooled_lookup import ReferencePooledLookup
from neo.ops.spec import Capability, Device, capability, register_backend
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.testing.op_suite import OpSuite


class TestReference(OpSuite):
    backend = "reference"


class TestFbgemm(OpSuite):
    backend = "fbgemm"


class _Changed(ReferencePooledLookup):
    """The reference, told of another optimizer than it was asked for."""

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__(tables, slots=slots, optimizer=self.changed(optimizer), device=device, seed=seed)

    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return optimizer


class WrongSum(ReferencePooledLookup):
    """Forgets the last id of the batch."""

    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        kept = offsets.clamp(max=max(int(offsets[-1]) - 1, 0))
        return super().pool(values[: int(kept[-1])], kept, None if weights is None else weights[: int(kept[-1])])


class IgnoredEps(_Changed):
    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return dataclasses.replace(optimizer, eps=1e-8)


class IgnoredDecay(_Changed):
    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return dataclasses.replace(optimizer, weight_decay=0.0)


class OneKindOfDecay(_Changed):
    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return dataclasses.replace(optimizer, weight_decay_mode=WeightDecayMode.L2)


class AlwaysNearest(_Changed):
    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return dataclasses.replace(optimizer, stochastic_rounding=False)


class LocalRounding(ReferencePooledLookup):
    """Rounds by the rows of the shard, not of the table."""

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        local = [dataclasses.replace(table, first_row=0) for table in tables]
        super().__init__(local, slots=slots, optimizer=optimizer, device=device, seed=seed)


class UnmergedDuplicates(ReferencePooledLookup):
    """Takes two steps with half of the gradient each instead of one."""

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        merged = self.merge(values, offsets, weights, gradient)
        counts = [1.0 + float(part.rows.numel() > 0) for part in merged]
        self._lr = lr
        halves = [MergedGradient(p.rows, p.gradient / count) for p, count in zip(merged, counts, strict=True)]
        self.apply(self.add_decay(halves))
        self.apply(self.add_decay(halves))


class LateRate(ReferencePooledLookup):
    """Takes the learning rate at the backward."""

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        super().step(values, offsets, weights, gradient, self.learning_rate)


class OwnSquares(ReferencePooledLookup):
    """Ignores the squares of the whole row."""

    def apply(self, merged: Sequence[MergedGradient], mean_squares: Sequence[Tensor] | None = None) -> None:
        super().apply(merged)


class EveryRowDecays(ReferencePooledLookup):
    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        super().step(values, offsets, weights, gradient, lr)
        for weight in self.weights():
            weight.mul_(1 - lr * self.optimizer.weight_decay)


class _StepChanged(ReferencePooledLookup):
    """Changes the gradient before the fused step."""

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        super().step(values, offsets, weights, self.changed(gradient), lr)

    def changed(self, gradient: Tensor) -> Tensor:
        return gradient


class HiddenNanInOutput(ReferencePooledLookup):
    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return super().pool(values, offsets, weights).nan_to_num()


class HiddenNanInGradient(_StepChanged):
    def changed(self, gradient: Tensor) -> Tensor:
        return gradient.nan_to_num()


class ClampedGradient(_StepChanged):
    def changed(self, gradient: Tensor) -> Tensor:
        return gradient.clamp(-100, 100)


class FlushedGradient(_StepChanged):
    def changed(self, gradient: Tensor) -> Tensor:
        return gradient.where(gradient.abs() > 1e-3, 0.0)


class ClampedOutput(ReferencePooledLookup):
    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return super().pool(values, offsets, weights).clamp(-1000, 1000)


class ManyBagsScaled(_StepChanged):
    def changed(self, gradient: Tensor) -> Tensor:
        return gradient / 2 if len(gradient) > 1024 else gradient


class DoubledAccumulator(_Changed):
    def changed(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        return dataclasses.replace(optimizer, initial_accumulator=2 * optimizer.initial_accumulator)


class HalfOfANewRate(ReferencePooledLookup):
    def set_learning_rate(self, lr: float) -> None:
        super().set_learning_rate(lr / 2)


class DecayWithoutRate(ReferencePooledLookup):
    """Decoupled decay of the whole strength, whatever the learning rate."""

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        if self.optimizer.weight_decay_mode is WeightDecayMode.DECOUPLED and self.optimizer.weight_decay:
            rows = self.merge(values, offsets, weights, gradient)
            for weight, part in zip(self.weights(), rows, strict=True):
                weight[part.rows] *= 1 - (1 - lr) * self.optimizer.weight_decay
        super().step(values, offsets, weights, gradient, lr)


class NoBiasCorrection(ReferencePooledLookup):
    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        self.num_steps = 10**9
        super().step(values, offsets, weights, gradient, lr)


class SlotTwice(ReferencePooledLookup):
    """Counts the last slot of a table with several twice."""

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        if len(set(self.slots)) < len(self.slots):
            width = self.tables[self.slots[-1]].num_columns
            gradient = torch.cat([gradient[:, :-width], 2 * gradient[:, -width:]], dim=1)
        super().step(values, offsets, weights, gradient, lr)


@pytest.fixture
def registered() -> Iterator[Callable[[type], str]]:
    """Register a class in this module under a name that is taken out again."""
    names = []

    def register(broken: type) -> str:
        name = f"broken_{broken.__name__}"
        able = capability("reference", Device.CPU)
        assert able is not None
        own: Capability = dataclasses.replace(able, backend=name)
        register_backend(name, f"{__name__}:{broken.__name__}", (own,))
        names.append(name)
        return name

    yield register
    for name in names:
        del spec.POOLED_LOOKUPS._targets[name], spec._CAPABILITIES[name, Device.CPU]


@pytest.mark.parametrize(
    ("broken", "test", "text"),
    [
        (WrongSum, "test_equals_the_reference", "output is off by"),
        (IgnoredEps, "test_every_accepted_option_changes_the_result", "accepts eps and ignores it"),
        (IgnoredDecay, "test_every_accepted_option_changes_the_result", "accepts weight_decay and ignores it"),
        (IgnoredDecay, "test_equals_the_reference", "weights are off by"),
        (OneKindOfDecay, "test_every_accepted_option_changes_the_result", "accepts weight_decay_mode and ignores it"),
        (AlwaysNearest, "test_every_accepted_option_changes_the_result", "accepts stochastic_rounding and ignores it"),
        (LocalRounding, "test_random_rounding_is_the_same_in_every_shard", "rounds otherwise"),
        (UnmergedDuplicates, "test_duplicates_are_merged_before_the_step", "weights are off by"),
        (LateRate, "test_the_learning_rate_is_that_of_the_forward", "the rate of a later forward was taken"),
        (OwnSquares, "test_column_shards_that_share_their_squares_are_the_whole_table", "of two column shards"),
        (HiddenNanInOutput, "test_what_is_not_finite_stays_visible", "output: .* NaN or infinity has to stay visible"),
        (HiddenNanInGradient, "test_what_is_not_finite_stays_visible", "weights: .* infinity has to stay visible"),
        (ClampedGradient, "test_large_and_small_values_equal_the_reference", "is off by|are off by"),
        (FlushedGradient, "test_large_and_small_values_equal_the_reference", "is off by|are off by"),
        (ClampedOutput, "test_large_and_small_values_equal_the_reference", "output is off by"),
        (ManyBagsScaled, "test_many_bags", "weights are off by"),
        (DoubledAccumulator, "test_equals_the_reference", "'sum' is off by|weights are off by"),
        (DoubledAccumulator, "test_every_hyper_parameter_has_the_value_that_was_given", "off by"),
        (HalfOfANewRate, "test_every_learning_rate_is_taken", "weights are off by"),
        (DecayWithoutRate, "test_equals_the_reference", "weights are off by"),
        (NoBiasCorrection, "test_equals_the_reference", "weights are off by"),
        (SlotTwice, "test_equals_the_reference", "is off by|are off by"),
        (EveryRowDecays, "test_rows_that_no_bag_holds_stay", "rows moved that no bag holds"),
    ],
)
def test_the_suite_finds_a_mistake(registered: Callable[[type], str], broken: type, test: str, text: str) -> None:
    class Suite(OpSuite):
        backend = registered(broken)

    with pytest.raises(AssertionError, match=text):
        getattr(Suite(), test)()

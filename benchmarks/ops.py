"""Nanoseconds per looked-up id of every lookup kernel, beside ``nn.EmbeddingBag`` and the memory's bandwidth.

Each kernel takes turns with FBGEMM's row-wise AdaGrad, step by step on the same inputs, so that what slows the machine
slows both. One thread; times are that thread's CPU time, which waiting for a busy core does not lengthen.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata

import torch
from torch import Tensor, nn, optim
from workload import CASES, Workload, make_inputs

from neo.ops.pooled_lookup import LocalTable
from neo.ops.spec import POOLED_LOOKUPS
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.tables.spec import WeightsDtype

SIZES = {
    "multi_hot": replace(CASES["multi_hot"], global_batch_size=1024),
    "one_hot": replace(CASES["one_hot"], global_batch_size=2048),
}
_HALVES = (WeightsDtype.FP16, WeightsDtype.BF16)
_TORCH_OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": optim.SGD,
    "adagrad": optim.Adagrad,
    "adam": optim.SparseAdam,
}

Step = Callable[[int], tuple[float, float]]
"""Run one step on a batch; return the seconds of its forward, and of its backward with the update."""


@dataclass(frozen=True)
class Subject:
    """One kernel with its options."""

    backend: str
    optimizer: SparseOptimizerSpec

    def label(self) -> str:
        """Name it in a row of the table."""
        spec = self.optimizer
        decay = f" {spec.weight_decay_mode}" if spec.weight_decay else ""
        rounding = (
            "" if spec.weights_dtype is WeightsDtype.FP32 else " random" if spec.stochastic_rounding else " nearest"
        )
        return f"{self.backend:9s} {spec.name:20s} {spec.weights_dtype}{rounding}{decay}"

    def least_bytes(self, case: Workload, num_ids: int, num_touched: int) -> tuple[int, int]:
        """Return what forward and backward have to move at least: weights, states and gradients, each once."""
        row = case.dim * self.optimizer.weights_dtype.num_bytes
        pooled = 4 * case.dim * case.num_tables * case.global_batch_size
        state = self.optimizer.state_bytes(1, case.dim)
        return num_ids * row + pooled, 2 * num_touched * (row + state) + pooled


BASE = Subject("fbgemm", SparseOptimizerSpec("rowwise_adagrad"))


def subjects(short: bool) -> Iterator[Subject]:
    """Yield what is measured."""
    adam = SparseOptimizerSpec("adam", weight_decay=0.01, weight_decay_mode=WeightDecayMode.DECOUPLED)
    if short:
        yield from (Subject("torch", SparseOptimizerSpec("sgd")), Subject("reference", adam))
        return
    for name in _TORCH_OPTIMIZERS:
        yield Subject("torch", SparseOptimizerSpec(name))
    for name in ("sgd", "adagrad"):
        yield Subject("fbgemm", SparseOptimizerSpec(name))
    nearest = SparseOptimizerSpec("rowwise_adagrad", weights_dtype=WeightsDtype.FP16, stochastic_rounding=False)
    yield from (Subject("fbgemm", nearest), Subject("reference", nearest))
    for name in ("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"):
        yield Subject("reference", SparseOptimizerSpec(name))
        for dtype in _HALVES:
            yield Subject("reference", SparseOptimizerSpec(name, weights_dtype=dtype))
    for dtype in (WeightsDtype.FP32, *_HALVES):
        for mode in WeightDecayMode:
            yield Subject("reference", replace(adam, weights_dtype=dtype, weight_decay_mode=mode))


def kernel(subject: Subject, case: Workload, batches: Sequence[Tensor], offsets: Tensor, gradient: Tensor) -> Step:
    """Return the step of one of neo's backends."""
    tables = [LocalTable(f"t{i}", case.rows, case.dim, key=f"t{i}") for i in range(case.num_tables)]
    op = POOLED_LOOKUPS.get(subject.backend)(
        tables, slots=range(case.num_tables), optimizer=subject.optimizer, device=torch.device("cpu")
    )
    for weight in op.weights():
        weight.copy_(torch.randn(weight.shape) * 0.02)

    def step(index: int) -> tuple[float, float]:
        started = time.thread_time()
        pooled = op(batches[index % len(batches)], offsets, None)
        middle = time.thread_time()
        pooled.backward(gradient)
        return middle - started, time.thread_time() - middle

    return step


def torch_modules(subject: Subject, case: Workload, batches: Sequence[Tensor], gradient: Tensor) -> Step:
    """Return the step of ``nn.EmbeddingBag(sparse=True)`` modules with an optimizer of ``torch.optim``."""
    modules = [nn.EmbeddingBag(case.rows, case.dim, mode="sum", sparse=True) for _ in range(case.num_tables)]
    make = _TORCH_OPTIMIZERS[subject.optimizer.name]
    optimizer = make([module.weight for module in modules], lr=subject.optimizer.lr)
    shape = (case.num_tables, case.global_batch_size, case.pooling)

    def step(index: int) -> tuple[float, float]:
        started = time.thread_time()
        ids = batches[index % len(batches)].view(shape)
        pooled = torch.cat([module(ids[table]) for table, module in enumerate(modules)], dim=1)
        middle = time.thread_time()
        optimizer.zero_grad()
        pooled.backward(gradient)
        optimizer.step()
        return middle - started, time.thread_time() - middle

    return step


def bandwidth() -> float:
    """Return bytes per second that one thread reads and writes when it copies 256 MiB, the best of five."""
    source = torch.ones(1 << 26)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        started = time.thread_time()
        target.copy_(source)
        times.append(time.thread_time() - started)
    return 2 * 4 * source.numel() / min(times[1:])


def measure(case: Workload, steps: int, short: bool) -> float:
    """Print the table of one case; return the lowest speed of the reference relative to the base."""
    batches = [inputs.values for inputs in make_inputs(case, 0, 1)]
    num_ids = batches[0].numel()
    starts = torch.arange(case.num_tables).repeat_interleave(num_ids // case.num_tables) * case.rows
    num_touched = (batches[0] + starts).unique().numel()
    offsets = torch.arange(0, num_ids + 1, case.pooling)
    gradient = torch.randn(
        case.global_batch_size, case.num_tables * case.dim, generator=torch.Generator().manual_seed(0)
    )
    bytes_per_s = bandwidth()
    sizes = f"{case.num_tables} tables x {case.rows} x {case.dim}, batch {case.global_batch_size}, {case.pooling} ids"
    print(f"\n{case.name}: {sizes}; {num_ids} ids, {num_touched} rows touched; copying {bytes_per_s / 1e9:.1f} GB/s")
    print(f"{'':54s} ns per id         of bandwidth      speed, of fbgemm's")
    print(f"{'':54s} forward backward  forward backward  row-wise AdaGrad")
    base = kernel(BASE, case, batches, offsets, gradient)
    of_reference = []
    for subject in (BASE, *subjects(short)):
        if subject.backend == "torch":
            step = torch_modules(subject, case, batches, gradient)
        else:
            step = base if subject == BASE else kernel(subject, case, batches, offsets, gradient)
        times = [(base(index), step(index)) for index in range(steps + 2)][2:]
        forward = statistics.median(own[0] for _, own in times)
        backward = statistics.median(own[1] for _, own in times)
        speed = statistics.median(sum(first) / sum(own) for first, own in times)
        least = subject.least_bytes(case, num_ids, num_touched)
        shares = [moved / seconds / bytes_per_s for moved, seconds in zip(least, (forward, backward), strict=True)]
        print(
            f"{subject.label():54s} {forward / num_ids * 1e9:7.1f} {backward / num_ids * 1e9:8.1f}"
            f"  {shares[0]:7.2f} {shares[1]:8.2f}  {speed:.2f}x",
            flush=True,
        )
        if subject.backend == "reference":
            of_reference.append(speed)
    return min(of_reference)


def main() -> int:
    """Measure every case; exit 1 if an option of the reference is slower than half of the base."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=sorted(SIZES), action="append")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--short", action="store_true", help="two kernels, small tables: whether the script runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "fbgemm-gpu-cpu", "numpy"))
    print(
        f"{versions}, Python {platform.python_version()}; one thread, its CPU time, medians of {arguments.steps} turns"
    )
    slowest = []
    for name in arguments.case or sorted(SIZES):
        case = replace(SIZES[name], rows=1000, global_batch_size=64) if arguments.short else SIZES[name]
        slowest.append(measure(case, arguments.steps, arguments.short))
    print(f"\nslowest of the reference: {min(slowest):.2f}x of fbgemm's row-wise AdaGrad, wanted 0.50x")
    return 0 if arguments.short or min(slowest) >= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())

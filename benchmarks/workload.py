"""The sizes and the inputs that both sides of a training benchmark share; needs torch alone."""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NUM_DENSE = 13
NUM_BATCHES = 4  # made before the clock starts, used in turn
ZIPF = 1.05


@dataclass(frozen=True)
class Workload:
    """One case: ``num_tables`` tables of ``rows x dim``, ``pooling`` ids per bag, a global batch over both ranks."""

    name: str
    num_tables: int
    rows: int
    dim: int
    pooling: int
    global_batch_size: int
    bottom_mlp: tuple[int, ...]
    top_mlp: tuple[int, ...]


CASES = {
    case.name: case
    for case in (
        Workload("one_hot", 26, 100_000, 64, 1, 2048, (512, 256), (512, 512, 256)),
        Workload("multi_hot", 10, 100_000, 128, 20, 2048, (64,), (64, 64)),
    )
}


@dataclass(frozen=True)
class Inputs:
    """One rank's batch: dense ``[B, 13]``, lengths ``[tables * B]`` int32, ids ``[N]`` int64, labels ``[B]``."""

    dense: Tensor
    lengths: Tensor
    values: Tensor
    labels: Tensor


def make_inputs(case: Workload, rank: int, world_size: int) -> list[Inputs]:
    """Return this rank's batches; the same for every library."""
    generator = torch.Generator().manual_seed(rank)
    samples = case.global_batch_size // world_size
    bags = case.num_tables * samples
    batches = []
    for _ in range(NUM_BATCHES):
        uniform = torch.rand(bags * case.pooling, generator=generator)
        popularity = ((case.rows ** (1 - ZIPF) - 1) * uniform + 1) ** (1 / (1 - ZIPF))
        ids = ((popularity.long() - 1).clamp_(0, case.rows - 1) * 2654435761) % case.rows
        batches.append(
            Inputs(
                torch.rand(samples, NUM_DENSE, generator=generator),
                torch.full((bags,), case.pooling, dtype=torch.int32),
                ids,
                (torch.rand(samples, generator=generator) > 0.7).float(),
            )
        )
    return batches


def parse_arguments() -> argparse.Namespace:
    """Read the arguments that each side is started with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=sorted(CASES), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=5)
    return parser.parse_args()


class Clock:
    """Times of consecutive steps, from the end of one to the end of the next."""

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._last = 0.0
        self._times_s: list[float] = []

    def tick(self) -> None:
        """Mark the end of a step."""
        now = time.perf_counter()
        self._times_s.append(now - self._last)
        self._last = now

    def report(self, versions: str) -> None:
        """Print the median step time in milliseconds; the last line of the output."""
        times = sorted(self._times_s[1 + self._warmup :])
        print(f"{versions}\n{times[len(times) // 2] * 1e3:.3f}", flush=True)


def run_rank(train: Callable[[argparse.Namespace, int, int], None]) -> None:
    """Run ``train(arguments, rank, world_size)`` as one of torchrun's processes, on one thread."""
    torch.set_num_threads(1)
    train(parse_arguments(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

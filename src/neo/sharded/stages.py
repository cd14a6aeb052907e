"""The stages of a step by name, in the traces of ``torch.profiler``; without a profiler a stage costs nothing."""

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function


class Stage(StrEnum):
    """What a step spends its time on; the names stand in traces."""

    DATA_WAIT = "neo::data_wait"
    INPUT_DIST = "neo::input_dist"
    LOOKUP = "neo::lookup"
    OUTPUT_DIST = "neo::output_dist"
    DENSE_FORWARD = "neo::dense_forward"
    BACKWARD = "neo::backward"
    OUTPUT_DIST_BACKWARD = "neo::output_dist_backward"
    SPARSE_UPDATE = "neo::sparse_update"
    ALL_REDUCE = "neo::all_reduce"
    OPTIMIZER = "neo::optimizer"


_NOTHING = nullcontext()


def is_profiled() -> bool:
    """Return whether a profiler is recording."""
    return torch.autograd.profiler._is_profiler_enabled


def stage(name: Stage) -> AbstractContextManager[Any]:
    """Return what names the code in its block, where a profiler is recording."""
    return record_function(name.value) if is_profiled() else _NOTHING


def name_backward(output: Tensor, name: Stage) -> None:
    """Name the backward of the node that made ``output``, where a profiler is recording."""
    node = output.grad_fn
    if node is None or not is_profiled():
        return
    opened: list[record_function] = []

    def begin(gradients: Any) -> None:
        opened.append(record_function(name.value))
        opened[-1].__enter__()

    def end(inputs: Any, outputs: Any) -> None:
        opened.pop().__exit__(None, None, None)

    node.register_prehook(begin)
    node.register_hook(end)

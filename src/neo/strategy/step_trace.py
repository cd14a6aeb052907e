"""``callbacks.profiler``: a trace of chosen steps, for https://ui.perfetto.dev or chrome://tracing, stages by name."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, record_function
from typing_extensions import override

from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.sharded.stages import Stage
from neo.strategy.callback_options import ProfilerSpec
from neo.strategy.lightning_module import RecommendationModule

FOLDER = "profile"


class StepTrace(Callback):
    """Write ``profile/rank_R.json.gz`` on every rank: what each of the chosen steps spent its time on.

    Args:
        spec: Which steps.
        run_dir: The run folder.
        console: Where the place of the files is printed, on rank 0.
    """

    def __init__(self, spec: ProfilerSpec, run_dir: Path, console: Console) -> None:
        self._spec = spec
        self._folder = run_dir / FOLDER
        self._console = console
        self._profile: profile | None = None
        self._is_written = False
        self._open: dict[Stage, record_function] = {}
        self._remove: list[Callable[[], None]] = []

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start before the first batch is fetched, if that is the step."""
        self._between_steps(trainer, pl_module)

    @override
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is there."""
        self._end(Stage.DATA_WAIT)

    @override
    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """The backward begins."""
        self._begin(Stage.BACKWARD)

    @override
    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The backward is over."""
        self._end(Stage.BACKWARD)

    @override
    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """The dense optimizer begins."""
        self._begin(Stage.OPTIMIZER)

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End after the last of the steps; else wait for the next batch."""
        self._end(Stage.OPTIMIZER)
        if self._profile is not None and trainer.global_step >= self._spec.from_step + self._spec.num_steps - 1:
            self._write(trainer)
        self._between_steps(trainer, pl_module)

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A validation is no waiting for data."""
        self._end(Stage.DATA_WAIT)

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Wait for the next batch again."""
        self._begin(Stage.DATA_WAIT)

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write what there is, or say that there is nothing."""
        if self._profile is not None:
            self._write(trainer)
        if not self._is_written and trainer.is_global_zero:
            wanted, reached = self._spec.from_step, trainer.global_step
            self._console.print(
                f"no trace: this run ended with step {reached}, before callbacks.profiler.from_step={wanted}",
                highlight=False,
                soft_wrap=True,
            )

    @override
    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write the trace of a run that fails while it is traced."""
        if self._profile is not None:
            self._write(trainer)

    def _between_steps(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._profile is None and not self._is_written and trainer.global_step + 1 == self._spec.from_step:
            self._start(module)
        self._begin(Stage.DATA_WAIT)

    def _start(self, module: pl.LightningModule) -> None:
        activities = [ProfilerActivity.CPU]
        if module.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        assert isinstance(module, RecommendationModule)
        for part in _dense_parts(module.model):
            self._remove += _named(part)
        self._profile = profile(
            activities=activities, record_shapes=self._spec.shapes, profile_memory=self._spec.memory, acc_events=True
        )
        self._profile.start()

    def _write(self, trainer: pl.Trainer) -> None:
        for name in list(self._open):
            self._end(name)
        for remove in self._remove:
            remove()
        finished, self._profile, self._is_written = self._profile, None, True
        assert finished is not None
        finished.stop()
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"rank_{trainer.global_rank}.json.gz"
        finished.export_chrome_trace(str(path))
        name_all_reduces(path, rank=trainer.global_rank)
        if trainer.is_global_zero:
            self._console.print(f"trace: {self._folder} (open it at https://ui.perfetto.dev)", highlight=False)

    def _begin(self, name: Stage) -> None:
        if self._profile is not None and name not in self._open:
            self._open[name] = record_function(name.value)
            self._open[name].__enter__()

    def _end(self, name: Stage) -> None:
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.__exit__(None, None, None)


def name_all_reduces(path: Path, *, rank: int) -> None:
    """Add ``neo::all_reduce`` to a trace for each all-reduce: DDP starts them where Python cannot name them.

    Args:
        path: A trace, ``*.json.gz``; replaced.
        rank: The rank that it is of, which becomes the name of its process.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    found = [event for event in events if event.get("name") in _ALL_REDUCES and event.get("ph") == "X"]
    events += [event | {"name": Stage.ALL_REDUCE.value, "cat": "user_annotation"} for event in found]
    for event in events:
        if event.get("name") == "process_name":
            event["args"]["name"] = f"rank {rank}"
    draft = path.with_suffix(".tmp")
    with gzip.open(draft, "wt", encoding="utf-8") as file:
        json.dump(trace, file)
    draft.replace(path)


_ALL_REDUCES = ("gloo:all_reduce", "nccl:all_reduce")


def _dense_parts(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the largest modules without tables below ``module``."""
    for child in module.children():
        if isinstance(child, EmbeddingBagCollection):
            continue
        if any(isinstance(part, EmbeddingBagCollection) for part in child.modules()):
            yield from _dense_parts(child)
        else:
            yield child


def _named(module: nn.Module) -> list[Callable[[], None]]:
    """Name the forward of a module in traces; return what takes that back."""
    opened: list[record_function] = []

    def begin(module: nn.Module, inputs: Any) -> None:
        opened.append(record_function(Stage.DENSE_FORWARD.value))
        opened[-1].__enter__()

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        opened.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(begin).remove, module.register_forward_hook(end).remove]

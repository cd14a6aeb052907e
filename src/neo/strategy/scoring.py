"""What evaluation and prediction share: the checkpoint's model on this rank, its samples, and a progress bar."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typing_extensions import override

from neo.config.run_config import RunConfig
from neo.data.loader import make_loader
from neo.data.schema import DataSchema, load_schema
from neo.errors import DataError
from neo.ops.spec import Device
from neo.strategy.epoch_loader import EpochLoader
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.parts import World, make_module, read_run_plan, this_world
from neo.strategy.quiet import silence_lightning

_LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Scoring:
    """A model that is ready to score.

    Attributes:
        world: This rank's place.
        module: The model; its weights are the checkpoint's once the Trainer has begun.
        loader: This rank's samples, in the order of the data.
        trainer: What runs the one over the other.
        global_batch_size: Samples of a batch over all ranks.
    """

    world: World
    module: RecommendationModule
    loader: EpochLoader
    trainer: pl.Trainer
    global_batch_size: int


def make_scoring(
    config: RunConfig, *, run_dir: Path, checkpoint: Path, doing: str, callbacks: tuple[Callback, ...] = ()
) -> Scoring:
    """Return this rank's part of scoring the validation samples, with torchrun's environment variables set.

    Args:
        config: The configuration.
        run_dir: Folder with ``plan.json``.
        checkpoint: Where the weights and the encoding come from.
        doing: What the progress bar says.
        callbacks: What is to be done with each batch.

    Raises:
        DataError: There are no such samples, or they are not what the configuration says.
        CheckpointError: The checkpoint is damaged.
    """
    silence_lightning()
    torch.set_float32_matmul_precision(config.trainer.matmul_precision.value)
    world = this_world(config)
    schema = load_schema(checkpoint / "data_schema")
    loader = validation_loader(config, schema, world)
    module = make_module(config, schema)
    strategy = NeoStrategy(
        plan=read_run_plan(run_dir, module),
        backend=config.ops.backend,
        comms=config.comms,
        seed=config.seed,
        fingerprints={"config": config.fingerprint(), "data": schema.fingerprint},
    )
    shown = [_Progress(doing, loader, console=Console(file=sys.stdout))] if config.trainer.progress_bar else []
    trainer = pl.Trainer(
        accelerator="gpu" if world.device is Device.CUDA else "cpu",
        devices=world.local_size,
        num_nodes=world.size // world.local_size,
        strategy=strategy,
        precision=config.trainer.precision.value,
        limit_val_batches=config.trainer.limit_val_batches,
        logger=False,
        callbacks=[_LoadWeights(strategy, checkpoint), *callbacks, *shown],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
    )
    return Scoring(world, module, loader, trainer, config.data.training_batch_size)


def validation_loader(config: RunConfig, schema: DataSchema, world: World) -> EpochLoader:
    """Return this rank's validation samples.

    Raises:
        DataError: There are none, or a file is missing, empty or broken, or lacks a column.
    """
    loader = make_loader(
        config.data,
        schema,
        split="val",
        global_batch_size=config.data.training_batch_size,
        rank=world.rank,
        world_size=world.size,
        seed=config.seed,
        limit_samples=config.data.limit_samples,
    )
    if loader is None:
        raise DataError("there are no validation samples: write data.val_path=FILE, or data.val_samples=COUNT")
    return EpochLoader(loader)


class _LoadWeights(Callback):
    """Read the checkpoint's weights as soon as the tables have their storage."""

    def __init__(self, strategy: NeoStrategy, checkpoint: Path) -> None:
        self._strategy = strategy
        self._checkpoint = checkpoint

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Read them before the first batch."""
        self._strategy.load_weights(self._checkpoint)

    @override
    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Read them before the first batch."""
        self._strategy.load_weights(self._checkpoint)


class _Progress(Callback):
    """Show on rank 0 how many batches are done: a bar on a terminal, else a line now and then."""

    def __init__(self, doing: str, loader: EpochLoader, *, console: Console) -> None:
        self._doing = doing
        self._console = console
        self._total = _length(loader)
        self._bar: Progress | None = None
        self._shown_s = 0.0
        self._unsaid = ""  # the last line that came too soon after another

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the bar."""
        self._start(trainer)

    @override
    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the bar."""
        self._start(trainer)

    @override
    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Count the batch."""
        self._show(trainer, batch_idx + 1)

    @override
    def on_predict_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Count the batch."""
        self._show(trainer, batch_idx + 1)

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the bar as it is; say how it ended where lines were printed."""
        if self._unsaid:
            self._console.print(self._unsaid, highlight=False)
        self._stop()

    @override
    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the bar as it is; say how it ended where lines were printed."""
        if self._unsaid:
            self._console.print(self._unsaid, highlight=False)
        self._stop()

    @override
    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Free the terminal for the error."""
        self._stop()

    def _start(self, trainer: pl.Trainer) -> None:
        self._shown_s = time.monotonic()
        if trainer.is_global_zero and self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console)
            self._bar.add_task(self._doing, total=self._total)
            self._bar.start()

    def _show(self, trainer: pl.Trainer, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)
        elif trainer.is_global_zero:
            of_total = "" if self._total is None else f"/{self._total}"
            self._unsaid = f"{self._doing}: batch {done}{of_total}"
            if time.monotonic() - self._shown_s >= _LINE_EVERY_S:
                self._shown_s = time.monotonic()
                self._console.print(self._unsaid, highlight=False)
                self._unsaid = ""

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _length(loader: EpochLoader) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None

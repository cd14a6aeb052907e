"""What every job of a worker is made of: its place among the ranks, loaders, the module with its model, a Trainer."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import nn

from neo.config.devices import execution_device
from neo.config.run_config import RunConfig
from neo.data.loader import make_loader
from neo.data.schema import DataSchema
from neo.errors import ConfigError
from neo.models.spec import EMBEDDINGS_PATH, MODELS, tables_of
from neo.ops.spec import Device
from neo.plan.plan_reader import read_plan
from neo.plan.sharding_plan import ShardingPlan
from neo.planner.overrides import table_optimizers
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.epoch_loader import EpochLoader
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.loggers import log_configuration, make_loggers
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.validation_times import validation_times


@dataclass(frozen=True)
class World:
    """This process among the others, as torchrun's environment says."""

    rank: int
    size: int
    local_size: int
    device: Device


@dataclass(frozen=True)
class Loaders:
    """The loaders of a run; ``val`` is None without validation data."""

    train: EpochLoader
    val: EpochLoader | None


def this_world(config: RunConfig) -> World:
    """Return this process's place, by torchrun's environment variables."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return World(
        rank=int(os.environ.get("RANK", "0")),
        size=size,
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", str(size))),
        device=execution_device(config.trainer.accelerator),
    )


def make_loaders(config: RunConfig, schema: DataSchema, world: World) -> Loaders:
    """Return this rank's loaders.

    Raises:
        DataError: A file is missing, empty or broken, or lacks a column.
    """
    found = [
        make_loader(
            config.data,
            schema,
            split=split,
            global_batch_size=config.data.training_batch_size,
            rank=world.rank,
            world_size=world.size,
            seed=config.seed,
            limit_samples=config.data.limit_samples if split == "train" else None,
        )
        for split in ("train", "val")
    ]
    train, val = (None if loader is None else EpochLoader(loader) for loader in found)
    assert train is not None
    return Loaders(train, val)


def make_module(config: RunConfig, schema: DataSchema) -> RecommendationModule:
    """Return the module around the configured model; its tables have no storage yet.

    Raises:
        ConfigError: An optimizer is for no table.
    """
    tables = {f"{EMBEDDINGS_PATH}.{table.name}": table for table in tables_of(config.model, schema.features)}
    own, unknown = table_optimizers(config.optim, tables)
    if unknown:
        raise ConfigError(unknown)
    embeddings = EmbeddingBagCollection(
        list(tables.values()),
        optimizer=config.optim.sparse,
        out_of_range=config.data.out_of_range.value,
        table_optimizers={tables[key].name: optimizer for key, optimizer in own.items()},
    )
    build = cast(Any, MODELS.get(config.model.name)).from_spec
    model: nn.Module = build(config.model, embeddings=embeddings, num_dense=len(schema.dense_names), seed=config.seed)
    return RecommendationModule(model, config.optim, dense_names=schema.dense_names)


def embeddings_of(module: RecommendationModule) -> EmbeddingBagCollection:
    """Return the tables of a module."""
    embeddings = module.get_submodule(EMBEDDINGS_PATH)
    assert isinstance(embeddings, EmbeddingBagCollection)
    return embeddings


def read_run_plan(run_dir: Path, module: RecommendationModule) -> ShardingPlan:
    """Return the plan of the run folder for the tables of a module."""
    tables = {f"{EMBEDDINGS_PATH}.{table.name}": table for table in embeddings_of(module).tables}
    return read_plan(run_dir / "plan.json", tables)


def make_trainer(
    config: RunConfig, run_dir: Path, world: World, *, strategy: NeoStrategy, callbacks: list[Callback]
) -> pl.Trainer:
    """Return a Trainer with neo's loggers; neo's callbacks take the place of Lightning's bar and summary."""
    spec = config.trainer
    loggers = make_loggers(config.logger, run_dir, rank=world.rank, resumes=config.checkpoint.resume is not None)
    log_configuration(loggers, asdict(config))
    return pl.Trainer(
        accelerator="gpu" if world.device is Device.CUDA else "cpu",
        devices=world.local_size,
        num_nodes=world.size // world.local_size,
        strategy=strategy,
        precision=spec.precision.value,
        max_steps=-1 if spec.max_steps is None else spec.max_steps,
        max_epochs=-1 if spec.max_epochs is None else spec.max_epochs,
        log_every_n_steps=1,  # TrainLog decides; Lightning has nothing to log by itself
        logger=loggers or False,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        **validation_times(spec),
    )

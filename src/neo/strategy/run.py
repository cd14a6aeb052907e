"""The worker's side of a run: from a resolved configuration and a run folder to a trained model and its summary."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from rich.console import Console
from torch import nn

from neo.comms.collectives import TorchCollectives
from neo.config.devices import execution_device
from neo.config.run_config import RunConfig
from neo.data.loader import attainable, make_loader
from neo.data.schema import DataSchema
from neo.data.vocabulary import load_schema
from neo.errors import ConfigError
from neo.models.spec import EMBEDDINGS_PATH, MODELS, tables_of
from neo.ops.spec import Device
from neo.plan.plan_reader import read_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan
from neo.planner.overrides import table_optimizers
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.callbacks import StepMeter, TrainLog
from neo.strategy.divergence import LossGuard
from neo.strategy.epoch_loader import EpochLoader
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.progress_bar import ProgressBar
from neo.strategy.progress_file import ProgressFile
from neo.strategy.quiet import silence_lightning
from neo.strategy.spec import executed_on
from neo.strategy.summary import CommsUsed, RunOutcome, print_summary, write_summary
from neo.strategy.traffic import TrafficBytes, TrafficMeter, TrafficPerStep
from neo.versions import installed_versions


@dataclass(frozen=True)
class _World:
    """This process among the others, as torchrun's environment says."""

    rank: int
    size: int
    local_size: int
    device: Device


@dataclass(frozen=True)
class _Told:
    """What every rank tells rank 0 at the end."""

    fallbacks: tuple[str, ...]
    out_of_range: dict[str, int]
    traffic: TrafficBytes


@dataclass(frozen=True)
class _Loaders:
    train: EpochLoader
    val: EpochLoader | None


def run_training(config: RunConfig, *, run_dir: Path) -> dict[str, Any] | None:
    """Train as one rank of a run, with torchrun's environment variables set.

    Reads ``plan.json`` and ``data_schema/`` in ``run_dir``; rank 0 writes ``summary.json`` and the logs there.

    Returns:
        The content of ``summary.json`` on rank 0, None on the others.

    Raises:
        NeoError: Data, plan or configuration are wrong; the message says what to change.
    """
    silence_lightning()
    torch.set_float32_matmul_precision(config.trainer.matmul_precision.value)
    world = _world(config)
    schema = load_schema(run_dir / "data_schema")
    loaders = _loaders(config, schema, world)
    module = _module(config, schema)
    plan = _read_plan(run_dir, module)
    strategy = NeoStrategy(
        plan=plan,
        backend=config.ops.backend,
        comms=config.comms,
        column_wise_semantics=config.sharding.column_wise_semantics,  # The plan's word comes first where it has one.
        seed=config.seed,
        fingerprints={"config": config.fingerprint(), "data": schema.fingerprint},
        forward_sync_buffers=False,
        gradient_as_bucket_view=True,
    )
    console = Console(file=sys.stdout, stderr=False)
    meter = StepMeter(warmup_steps=config.trainer.throughput_warmup_steps)
    log = TrainLog(meter, every_n_steps=config.trainer.log_every_n_steps)
    traffic = TrafficMeter(lambda: strategy.traffic)
    callbacks: list[Callback] = [
        LossGuard(),
        meter,
        log,
        traffic,
        ProgressFile(run_dir / "progress.json", meter=meter, log=log),
    ]
    if config.trainer.progress_bar:
        callbacks.append(ProgressBar(meter, console=console))
    trainer = _trainer(config, run_dir, world, strategy=strategy, callbacks=callbacks)
    trainer.fit(module, loaders.train, loaders.val)
    steps = trainer.global_step
    if loaders.val is not None and module.report_step != steps:
        trainer.validate(module, loaders.val, verbose=False)
    embeddings = _embeddings(module)
    own = _Told(embeddings.fallbacks, embeddings.out_of_range_counts, traffic.total)
    told = cast(list[_Told], TorchCollectives().all_gather_object(own))
    if world.rank != 0:
        return None
    outcome = RunOutcome(
        world_size=world.size,
        steps=steps,
        samples=meter.samples,
        throughput=meter.throughput(),
        train_loss=log.last_loss,
        val=module.report,
        attainable=attainable(config.data, schema, config.seed),
        planned_for=config.hardware.scaled_to(world.size).label(),
        executed_on=executed_on(world.device, world.size),
        plan_fingerprint=strategy.plan_fingerprint,
        config_fingerprint=config.fingerprint(),
        fallbacks=tuple(dict.fromkeys(line for rank in told for line in rank.fallbacks)),
        out_of_range={table: sum(rank.out_of_range[table] for rank in told) for table in own.out_of_range},
        column_wise_semantics="per_shard" if plan.column_wise_semantics is ColumnWiseSemantics.PER_SHARD else None,
        comms=CommsUsed.of(plan, config.comms),
        optimizer=config.optim.sparse.name,
        weights_dtype=config.optim.sparse.weights_dtype.value,
        traffic=TrafficPerStep.of([rank.traffic for rank in told], traffic.steps),
    )
    summary = outcome.to_dict(installed_versions())
    write_summary(run_dir / "summary.json", summary)
    print_summary(outcome, console)
    return summary


def _world(config: RunConfig) -> _World:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return _World(
        rank=int(os.environ.get("RANK", "0")),
        size=size,
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", str(size))),
        device=execution_device(config.trainer.accelerator),
    )


def _loaders(config: RunConfig, schema: DataSchema, world: _World) -> _Loaders:
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
    return _Loaders(train, val)


def _module(config: RunConfig, schema: DataSchema) -> RecommendationModule:
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


def _embeddings(module: RecommendationModule) -> EmbeddingBagCollection:
    embeddings = module.get_submodule(EMBEDDINGS_PATH)
    assert isinstance(embeddings, EmbeddingBagCollection)
    return embeddings


def _read_plan(run_dir: Path, module: RecommendationModule) -> ShardingPlan:
    tables = {f"{EMBEDDINGS_PATH}.{table.name}": table for table in _embeddings(module).tables}
    return read_plan(run_dir / "plan.json", tables)


def _trainer(
    config: RunConfig, run_dir: Path, world: _World, *, strategy: NeoStrategy, callbacks: list[Callback]
) -> pl.Trainer:
    spec = config.trainer
    loggers: list[Logger] = [
        CSVLogger(run_dir, name="", version="logs"),
        TensorBoardLogger(run_dir, name="", version="tensorboard"),
    ]
    return pl.Trainer(
        accelerator="gpu" if world.device is Device.CUDA else "cpu",
        devices=world.local_size,
        num_nodes=world.size // world.local_size,
        strategy=strategy,
        precision=spec.precision.value,
        max_steps=-1 if spec.max_steps is None else spec.max_steps,
        max_epochs=-1 if spec.max_epochs is None else spec.max_epochs,
        log_every_n_steps=1,  # TrainLog decides; Lightning has nothing to log by itself
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )

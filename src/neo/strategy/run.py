"""The worker's side of a run: from a resolved configuration and a run folder to a trained model and its summary."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch.callbacks import Callback
from rich.console import Console

from neo.checkpoint.folder import FOLDER, complete_checkpoints
from neo.checkpoint.manifest import Facts
from neo.comms.collectives import TorchCollectives
from neo.config.run_config import RunConfig
from neo.data.loader import attainable
from neo.data.vocabulary import load_schema
from neo.plan.sharding_plan import ColumnWiseSemantics
from neo.strategy.callbacks import StepMeter, TrainLog
from neo.strategy.checkpoint_writer import CheckpointWriter, InitialWeights, metrics_of
from neo.strategy.divergence import LossGuard
from neo.strategy.fallbacks import all_fallbacks, planned_fallbacks
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.parts import embeddings_of, make_loaders, make_module, make_trainer, read_run_plan, this_world
from neo.strategy.position import DataPosition
from neo.strategy.preemption import Preempted, SigtermNotice
from neo.strategy.progress_bar import ProgressBar
from neo.strategy.progress_file import ProgressFile
from neo.strategy.quiet import silence_lightning
from neo.strategy.spec import executed_on
from neo.strategy.summary import CommsUsed, RunOutcome, print_summary, write_summary
from neo.strategy.traffic import TrafficBytes, TrafficMeter, TrafficPerStep
from neo.strategy.validation_times import check_validation
from neo.strategy.watching import watching_callbacks
from neo.versions import installed_versions

_COPIES = ("resolved.yaml", "plan.json", "data_schema")  # what a checkpoint keeps of the run folder


@dataclass(frozen=True)
class _Told:
    """What every rank tells rank 0 at the end."""

    fallbacks: tuple[str, ...]
    out_of_range: dict[str, int]
    traffic: TrafficBytes


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
    world = this_world(config)
    schema = load_schema(run_dir / "data_schema")
    loaders = make_loaders(config, schema, world)
    module = make_module(config, schema)
    plan = read_run_plan(run_dir, module)
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
    position = DataPosition(loaders.train)
    notice = SigtermNotice()
    callbacks: list[Callback] = [
        *([InitialWeights(config.checkpoint.weights_from)] if config.checkpoint.weights_from is not None else []),
        LossGuard(),
        position,
        meter,
        log,
        traffic,
        ProgressFile(run_dir / "progress.json", meter=meter, log=log),
    ]
    if config.trainer.progress_bar:
        callbacks.append(ProgressBar(meter, console=console))
    callbacks += watching_callbacks(config, run_dir, console)
    check_validation(config.trainer, loaders.train, loaders.val)
    callbacks.append(CheckpointWriter(config.checkpoint, run_dir, notice=notice))  # The last: it saves the others.
    trainer = make_trainer(config, run_dir, world, strategy=strategy, callbacks=callbacks)
    strategy.checkpoint_facts = lambda: Facts(
        step=trainer.global_step,
        epoch=position.epoch,
        samples=meter.samples,
        plan_fingerprint=strategy.plan_fingerprint,
        data_fingerprint=schema.fingerprint,
        val=metrics_of(module.report) if module.report_step == trainer.global_step else None,
    )
    strategy.checkpoint_copies = {name: run_dir / name for name in _COPIES if (run_dir / name).exists()}
    status = "done"
    try:
        trainer.fit(module, loaders.train, loaders.val, ckpt_path=config.checkpoint.resume)
        steps = trainer.global_step
        if loaders.val is not None and module.report_step != steps:
            trainer.validate(module, loaders.val, verbose=False)
    except Preempted:
        steps, status = trainer.global_step, "preempted"
    finally:
        notice.restore()
    embeddings = embeddings_of(module)
    own = _Told(embeddings.fallbacks, embeddings.out_of_range_counts, traffic.total)
    told = cast(list[_Told], TorchCollectives().all_gather_object(own))
    if world.rank != 0:
        return None
    saved = complete_checkpoints(run_dir / FOLDER)
    outcome = RunOutcome(
        status=status,
        checkpoint=str(saved[-1].relative_to(run_dir)) if saved else None,
        resumed_from=config.checkpoint.resume,
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
        fallbacks=all_fallbacks(planned_fallbacks(run_dir), *(rank.fallbacks for rank in told)),
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

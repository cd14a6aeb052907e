"""The parent's work for runs on the ranks of the test's pool: learn the schema, plan, leave both in the run folder."""

import copy
from pathlib import Path
from typing import Any

from neo.config.purpose import Purpose
from neo.config.resolve import resolve_content
from neo.config.run_config import RunConfig
from neo.data.vocabulary import learn_schema
from neo.models.spec import EMBEDDINGS_PATH, tables_of
from neo.ops.spec import Device
from neo.plan.serialize import write_plan
from neo.planner.overrides import table_optimizers
from neo.planner.planner import make_plan
from neo.strategy.run import run_training

BASE: dict[str, Any] = {
    "seed": 3,
    "hardware": {"name": "local", "detect": True},
    "data": {"num_samples": 2_000, "val_samples": 1_000, "global_batch_size": 256},
    "trainer": {"accelerator": "cpu", "max_epochs": 2, "throughput_warmup_steps": 2, "log_every_n_steps": 4},
    "optim": {"sparse": {"name": "sgd", "lr": 0.5}, "dense": {"name": "sgd", "lr": 0.1}},
}


def prepare(run_dir: Path, world_size: int, *, seed: Any = None, **changes: dict[str, Any]) -> RunConfig:
    """Do the parent's work: learn the schema, plan, and leave both in the run folder."""
    content = copy.deepcopy(BASE)
    if seed is not None:
        content["seed"] = seed
    for group, values in changes.items():
        content.setdefault(group, {}).update(values)
    config = resolve_content(content, purpose=Purpose.TRAIN)
    folder = run_dir / "data_schema"
    schema = learn_schema(config.data, num_embeddings=None, pooling_factors=None, seed=config.seed, folder=folder)
    tables = {f"{EMBEDDINGS_PATH}.{table.name}": table for table in tables_of(config.model, schema.features)}
    planned = make_plan(
        tables,
        sharding=config.sharding,
        hardware=config.hardware,
        world_size=world_size,
        optimizer=config.optim.sparse,
        ops_backend=config.ops.backend,
        device=Device.CPU,
        table_optimizers=table_optimizers(config.optim, tables)[0],
    )
    write_plan(run_dir / "plan.json", planned.plan, planned.fingerprint)
    return config


def train(config: RunConfig, run_dir: Path) -> dict[str, Any] | None:
    """Do one worker's part."""
    return run_training(config, run_dir=run_dir)

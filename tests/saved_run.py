"""A run whose last step is kept as a checkpoint, as ``neo train`` keeps it, on the ranks of the test's pool."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from integration.run_parent import BASE, prepare
from neo.checkpoint.folder import FOLDER, step_name
from neo.checkpoint.manifest import Facts
from neo.config.run_config import RunConfig
from neo.data.vocabulary import load_schema
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.parts import make_loaders, make_module, make_trainer, read_run_plan, this_world
from worker_pool import WorkerPool


def saved_run(pool: WorkerPool, run_dir: Path, world_size: int, **changes: dict[str, Any]) -> tuple[Path, Any]:
    """Train ten steps, validate, save; return the checkpoint and the metrics of the validation."""
    run_dir.mkdir(parents=True, exist_ok=True)
    changes.setdefault("trainer", {}).setdefault("max_steps", 10)
    config = prepare(run_dir, world_size, **changes)
    content = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE.items()}
    for group, values in changes.items():
        content.setdefault(group, {}).update(values)
    content["trainer"]["devices"] = world_size
    OmegaConf.save(OmegaConf.create(content), run_dir / "resolved.yaml")
    saved: tuple[Path, dict[str, Any]] = pool.run(world_size, train_and_save, config, run_dir, timeout_s=120)[0]
    return saved


def train_and_save(config: RunConfig, run_dir: Path) -> tuple[Path, dict[str, Any]]:
    """Do one worker's part."""
    world = this_world(config)
    schema = load_schema(run_dir / "data_schema")
    loaders = make_loaders(config, schema, world)
    module = make_module(config, schema)
    strategy = NeoStrategy(plan=read_run_plan(run_dir, module), backend=config.ops.backend, seed=config.seed)
    strategy.checkpoint_copies = {
        name: run_dir / name for name in ("plan.json", "resolved.yaml", "data_schema") if (run_dir / name).exists()
    }
    trainer = make_trainer(config, run_dir, world, strategy=strategy, callbacks=[])
    trainer.fit(module, loaders.train)
    trainer.validate(module, loaders.val, verbose=False)
    assert module.report is not None
    val = asdict(module.report)
    strategy.checkpoint_facts = lambda: Facts(
        trainer.global_step, samples=2560, val={key: val[key] for key in ("auc", "ne", "log_loss")}
    )
    path = run_dir / FOLDER / step_name(trainer.global_step)
    trainer.save_checkpoint(path)
    return path, val

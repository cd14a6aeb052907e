"""``neo train``: resolve, plan, start the workers, and say how it went."""

import logging
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig

from neo.cli.planning import keyed, plan_tables, settled_training
from neo.cli.run_folder import clear, held
from neo.cli.shared_schema import schema_of
from neo.cli.start import Start, clear_the_way, find_start, require_tables, take_schema
from neo.config.devices import execution_device, num_processes
from neo.config.resolve import read_resolved, resolve, write_resolved
from neo.config.run_config import RunConfig
from neo.data.vocabulary import load_schema
from neo.errors import ConfigError, Finding, InfeasiblePlanError, NeoError
from neo.launch.environment import RankEnvironment, rank_environment
from neo.launch.meeting import announce, await_announcement, forget, signs_of_life
from neo.launch.process import become_worker, run_workers
from neo.launch.sign_in import await_end_of_workers
from neo.launch.summary import RunFacts, Status, complete_summary, write_facts
from neo.models.spec import EMBEDDINGS_PATH, tables_of
from neo.ops.spec import Device
from neo.plan.report import plan_report
from neo.plan.serialize import write_plan
from neo.planner.planner import PlanResult
from neo.strategy.spec import executed_on

log = logging.getLogger("neo")


@dataclass(frozen=True)
class _World:
    """Where this run executes."""

    device: Device
    size: int
    local_size: int


def train(config: DictConfig, run_dir: Path) -> int:
    """Run one training job in ``run_dir`` and return its exit code.

    Raises:
        ConfigError: The configuration is wrong.
        InfeasiblePlanError: No placement fits the memory of the machine.
        DataError: The data is not what the configuration says.
    """
    ranks = rank_environment()
    if ranks is None:
        return _train_here(config, run_dir)
    if ranks.rank == 0:
        _prepare_for_all(config, run_dir, ranks)
    code = await_announcement(run_dir, ranks)
    if code == 0:
        become_worker(run_dir, ranks.variables)
    return code


def _train_here(config: DictConfig, run_dir: Path) -> int:
    with held(run_dir):
        return _train_in(config, run_dir)


def _train_in(config: DictConfig, run_dir: Path) -> int:
    if left := await_end_of_workers(run_dir):
        raise NeoError(f"workers of an earlier run in {run_dir} are still there (processes {left}); end them first")
    run = resolve(config)
    clear(run_dir, keep=run.sharding.path)
    start = find_start(run, run_dir)
    processes = num_processes(run.trainer.devices, run.trainer.accelerator)
    _prepare(config, run, start, run_dir, _World(execution_device(run.trainer.accelerator), processes, processes))
    outcome = run_workers(run_dir, num_processes=processes, launch=run.launch, preemptible=run.checkpoint.on_preemption)
    if outcome.done:
        complete_summary(run_dir, Status.DONE)
        return 0
    status = Status.INTERRUPTED if outcome.interrupted_by else Status.FAILED
    complete_summary(run_dir, status, error=outcome.message.rpartition("\n\n")[2])
    sys.stdout.flush()
    print(outcome.message, file=sys.stderr)
    return 1


def _prepare_for_all(config: DictConfig, run_dir: Path, ranks: RankEnvironment) -> None:
    """Fill the run folder as rank 0 of a job that something else started; the others are told in any case."""
    code = 1
    try:
        forget(run_dir)
        with signs_of_life(run_dir, ranks):
            run = resolve(config, num_started=ranks.world_size)
            clear(run_dir, keep=run.sharding.path)
            _require(_as_started(run, ranks))
            device = execution_device(run.trainer.accelerator)
            start = find_start(run, run_dir)
            _prepare(config, run, start, run_dir, _World(device, ranks.world_size, ranks.local_world_size))
        code = 0
    except NeoError as error:
        code = error.exit_code
        raise
    finally:
        announce(run_dir, ranks, code)


def _prepare(config: DictConfig, run: RunConfig, start: Start, run_dir: Path, world: _World) -> None:
    """Learn what has to be learned from the data, plan, and write all that a worker reads."""
    fingerprint = _write_resolved(config, run, start, run_dir, world)
    run = replace(run, hardware=run.hardware.scaled_to(world.size))
    facts = RunFacts(
        world_size=world.size,
        planned_for=run.hardware.label(),
        executed_on=executed_on(world.device, world.size),
        config_fingerprint=fingerprint,
        resumed_from=str(start.checkpoint) if start.resumes else None,
    )
    write_facts(run_dir, facts)
    try:
        planned = _plan(run, start, run_dir, world)
    except NeoError as error:
        infeasible = isinstance(error, InfeasiblePlanError)
        complete_summary(run_dir, Status.INFEASIBLE if infeasible else Status.FAILED, error=str(error))
        raise
    write_plan(run_dir / "plan.json", planned.plan, planned.fingerprint)
    # Only now, when the run will begin, are the checkpoints of another one moved out of its way.
    cleared = clear_the_way(start, run, run_dir)
    if cleared != start:
        facts = replace(facts, config_fingerprint=_write_resolved(config, run, cleared, run_dir, world))
    facts = replace(facts, plan_fingerprint=planned.fingerprint, fallbacks=planned.fallbacks)
    write_facts(run_dir, facts)
    print(f"planned for: {facts.planned_for}; executed on: {facts.executed_on}")
    print(plan_report(planned.view), end="")
    print(f"run folder: {run_dir}", flush=True)


def _write_resolved(config: DictConfig, run: RunConfig, start: Start, run_dir: Path, world: _World) -> str:
    """Write what the workers read and return its fingerprint, as each of them will compute it."""
    settled = settled_training(run, device=world.device, local_world_size=world.local_size)
    write_resolved(run_dir / "resolved.yaml", config, settled | start.settled)
    return read_resolved(run_dir / "resolved.yaml").fingerprint()


def _plan(run: RunConfig, start: Start, run_dir: Path, world: _World) -> PlanResult:
    folder = run_dir / "data_schema"
    schema = load_schema(folder) if take_schema(start, folder) else schema_of(run, folder, run_dir)
    tables = keyed(tables_of(run.model, schema.features), EMBEDDINGS_PATH)
    require_tables(start, run, tables)
    return plan_tables(run, tables, device=world.device)


def _as_started(run: RunConfig, ranks: RankEnvironment) -> list[Finding]:
    devices, nodes = run.trainer.devices, run.trainer.num_nodes
    wanted = None if devices is None else devices * nodes
    if wanted in (None, ranks.world_size):
        return []
    problem = f"{devices} on {nodes} node{'' if nodes == 1 else 's'}, but {ranks.starter} started {ranks.world_size}"
    return [Finding("trainer.devices", problem, "leave it out: the number of started processes counts")]


def _require(findings: list[Finding]) -> None:
    if findings:
        raise ConfigError(findings)

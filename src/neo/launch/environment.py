"""Whether this process was started as one of many, by torchrun or Slurm, and as which. Torch-free."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

_TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
_SLURM_STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]+")
_FIRST_PORT, _NUM_PORTS = 15000, 20000


@dataclass(frozen=True)
class RankEnvironment:
    """The place of this process among the ranks of a job that something else started.

    Attributes:
        starter: ``torchrun`` or ``srun``.
        job: A name that is the same on all ranks of the job and on no rank of another one.
        rank: Global rank.
        world_size: Ranks of the job.
        local_world_size: Ranks on this node.
        variables: What torch.distributed has to find in the environment of the worker.
    """

    starter: str
    job: str
    rank: int
    world_size: int
    local_world_size: int
    variables: Mapping[str, str]

    @property
    def run_dir(self) -> str:
        """The run folder of the job, relative to where it was started."""
        return f"outputs/{self.job}"


def rank_environment(variables: Mapping[str, str] | None = None) -> RankEnvironment | None:
    """Return this process's place in a torchrun or Slurm job, or None if neo has to start the workers itself.

    Args:
        variables: The environment; that of this process by default.
    """
    found = os.environ if variables is None else variables
    if _TORCHRUN_ID in found and "RANK" in found:
        return _torchrun(found)
    if "SLURM_PROCID" in found and "SLURM_JOB_ID" in found and _slurm_tasks(found) > 1:
        return _slurm(found)
    return None


def _torchrun(found: Mapping[str, str]) -> RankEnvironment:
    job = found[_TORCHRUN_ID]
    if job in ("", "none"):  # torchrun without --rdzv-id: its port, and on one node its process, name the job.
        single_node = found.get("GROUP_WORLD_SIZE", "1") == "1"
        job = f"{found.get('MASTER_PORT', '0')}-{os.getppid()}" if single_node else found.get("MASTER_PORT", "0")
    return RankEnvironment(
        starter="torchrun",
        job=_FORBIDDEN.sub("-", f"torchrun-{job}"),
        rank=int(found["RANK"]),
        world_size=int(found.get("WORLD_SIZE", "1")),
        local_world_size=int(found.get("LOCAL_WORLD_SIZE", found.get("WORLD_SIZE", "1"))),
        variables={},
    )


def _slurm(found: Mapping[str, str]) -> RankEnvironment:
    job, step = found["SLURM_JOB_ID"], found.get("SLURM_STEP_ID")
    name = f"slurm-{job}" if step in (None, "0") else f"slurm-{job}-{step}"
    world_size = _slurm_tasks(found)
    local = int(found.get("SLURM_TASKS_PER_NODE", str(world_size)).split("(")[0].split(",")[0])
    digits = "".join(filter(str.isdigit, job)) or "0"
    return RankEnvironment(
        starter="srun",
        job=_FORBIDDEN.sub("-", name),
        rank=int(found["SLURM_PROCID"]),
        world_size=world_size,
        local_world_size=local,
        variables={
            _TORCHRUN_ID: name,
            "RANK": found["SLURM_PROCID"],
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": found.get("SLURM_LOCALID", "0"),
            "LOCAL_WORLD_SIZE": str(local),
            "GROUP_RANK": found.get("SLURM_NODEID", "0"),
            "MASTER_ADDR": found.get("MASTER_ADDR") or first_host(found.get("SLURM_STEP_NODELIST", _nodes(found))),
            "MASTER_PORT": found.get("MASTER_PORT") or str(_FIRST_PORT + int(digits) % _NUM_PORTS),
        },
    )


def _slurm_tasks(found: Mapping[str, str]) -> int:
    return next((int(found[name]) for name in _SLURM_STEP if name in found), 1)


def _nodes(found: Mapping[str, str]) -> str:
    return found.get("SLURM_JOB_NODELIST", found.get("SLURM_NODELIST", "127.0.0.1"))


def first_host(nodes: str) -> str:
    """Return the first host of Slurm's list: ``node03`` of ``node[03-07,12],other1``."""
    match = re.match(r"([^\[,]+)(?:\[([^\]]+)\])?", nodes)
    if match is None:
        return nodes
    prefix, ranges = match.groups()
    return prefix + (re.split(r"[-,]", ranges)[0] if ranges else "")

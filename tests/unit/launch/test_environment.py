"""R35: every rank of a job that something else started finds the same run folder."""

import os

import pytest

from neo.launch.environment import RankEnvironment, first_host, rank_environment

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job 7",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_NODELIST": "node[03-04]",
}


def _found(variables: dict[str, str]) -> RankEnvironment:
    found = rank_environment(variables)
    assert found is not None
    return found


def test_nothing_started_this_process() -> None:
    assert rank_environment({}) is None
    assert rank_environment({"WORLD_SIZE": "4", "RANK": "0"}) is None


def test_torchrun_with_an_id() -> None:
    found = _found(TORCHRUN)
    assert found.run_dir == "outputs/torchrun-job-7"
    assert (found.starter, found.rank, found.world_size, found.local_world_size) == ("torchrun", 3, 4, 2)
    assert found.run_dir == _found(TORCHRUN | {"RANK": "0"}).run_dir


def test_torchrun_without_an_id_is_named_by_what_its_ranks_share() -> None:
    one_node = _found(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "1"})
    assert one_node.run_dir == f"outputs/torchrun-29500-{os.getppid()}"
    assert _found(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}).run_dir == "outputs/torchrun-29500"


def test_slurm_gives_what_torch_needs() -> None:
    found = _found(SLURM)
    assert found.run_dir == "outputs/slurm-4711"
    assert (found.starter, found.rank, found.world_size, found.local_world_size) == ("srun", 5, 8, 4)
    assert dict(found.variables) == {
        "TORCHELASTIC_RUN_ID": "slurm-4711",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "node03",
        "MASTER_PORT": "19711",
    }
    assert _found(SLURM | {"SLURM_STEP_ID": "2"}).run_dir == "outputs/slurm-4711-2"


def test_slurm_with_one_task_is_an_ordinary_process() -> None:
    assert rank_environment(SLURM | {"SLURM_NTASKS": "1"}) is None
    assert rank_environment(SLURM | {"SLURM_STEP_NUM_TASKS": "1"}) is None


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("node03", "node03"), ("a1,b2", "a1"), ("node[03-07,12],other1", "node03"), ("gpu[5],x", "gpu5")],
)
def test_first_host_of_a_slurm_list(nodes: str, host: str) -> None:
    assert first_host(nodes) == host

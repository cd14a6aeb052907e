import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from neo.hardware import detect
from neo.hardware.detect import LocalHost, rounded_memory
from neo.hardware.spec import HardwareConfig

GIB = 2**30
MIB = 2**20


def set_host(monkeypatch: pytest.MonkeyPatch, memory: int, gpus: Sequence[int] = ()) -> None:
    monkeypatch.setattr(detect, "host_memory", lambda: memory)
    monkeypatch.setattr(detect, "gpu_memory_sizes", lambda: list(gpus))


@pytest.mark.parametrize("memory", [15 * GIB + 300 * MIB, 503 * GIB, 30 * GIB + 700 * MIB])
@pytest.mark.parametrize("jitter", [-40 * MIB, -1, 1, 37 * MIB])
def test_r29_jitter_of_host_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch, memory: int, jitter: int) -> None:
    set_host(monkeypatch, memory)
    first = HardwareConfig(detect=True).to_spec()
    set_host(monkeypatch, memory + jitter)
    assert HardwareConfig(detect=True).to_spec() == first


def test_rounding_is_down_and_never_by_more_than_a_sixteenth() -> None:
    assert rounded_memory(16 * GIB + 1) == 16 * GIB
    assert rounded_memory(31 * GIB + 900 * MIB) == 31 * GIB
    assert rounded_memory(3 * MIB + 1) == 3 * MIB
    assert rounded_memory(MIB - 1) == 0


def test_without_gpus_two_processes_share_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    set_host(monkeypatch, 16 * GIB)
    spec = HardwareConfig(name="local", detect=True).to_spec()
    assert (spec.world_size, spec.accelerator.hbm.capacity_bytes, spec.ddr.capacity_bytes) == (2, 8 * GIB, 0)
    assert spec.shared_host_bytes == 16 * GIB
    assert spec.scaled_to(4).local_world_size == 4
    emulated = HardwareConfig(name="local", detect=True, accelerators_per_node=1).to_spec().scaled_to(4)
    assert (emulated.num_nodes, emulated.local_world_size) == (4, 1)
    assert emulated.accelerator.hbm.capacity_bytes == 4 * GIB


def test_with_gpus_their_memory_is_the_first_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    set_host(monkeypatch, 256 * GIB, [80 * GIB, 79 * GIB])
    spec = HardwareConfig(name="local", detect=True).to_spec()
    assert (spec.world_size, spec.accelerator.hbm.capacity_bytes) == (2, rounded_memory(79 * GIB))
    assert spec.ddr.capacity_bytes == 256 * GIB
    assert spec.label() == "2 local accelerators"


def test_what_is_configured_is_not_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    set_host(monkeypatch, 16 * GIB)
    config = HardwareConfig(detect=True, accelerators_per_node=4)
    config.accelerator.hbm.capacity = "1GiB"
    config.node.ddr.capacity = "2GiB"
    spec = config.to_spec()
    assert (spec.world_size, spec.accelerator.hbm.capacity_bytes, spec.ddr.capacity_bytes) == (4, GIB, 2 * GIB)
    assert spec.shared_host_bytes is None


def test_the_driver_s_list_of_gpus_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(stdout: str, code: int = 0) -> None:
        done = subprocess.CompletedProcess(["nvidia-smi"], code, stdout, "")
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: done)

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    answer("81559\n81559\n")
    assert detect.gpu_memory_sizes() == [81559 * MIB, 81559 * MIB]
    answer("No devices were found\n")
    assert detect.gpu_memory_sizes() == []
    answer("", code=9)
    assert detect.gpu_memory_sizes() == []

    def hang(*args: Any, **kwargs: Any) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 10)

    monkeypatch.setattr(subprocess, "run", hang)
    assert detect.gpu_memory_sizes() == []
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert detect.gpu_memory_sizes() == []


def test_this_host_has_memory() -> None:
    host = detect.detect_local_host()
    assert host.host_memory_bytes > 0
    assert LocalHost(1, 0, 0).num_accelerators == 2

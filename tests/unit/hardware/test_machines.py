"""Every machine under ``hardware/``: it is found, valid, and each of its numbers says where it comes from."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from neo.hardware.machine import HardwareSpec, Link, MemoryTier
from neo.hardware.spec import HardwareConfig

ROOT = Path(__file__).parents[3] / "hardware"
FILES = sorted(ROOT.rglob("*.yaml"))
MARK = re.compile(r"#.*\[(datasheet|paper|derived|benchmark)\b")
GIB = 2**30


def machine(name: str) -> HardwareSpec:
    merged = OmegaConf.merge(OmegaConf.structured(HardwareConfig), OmegaConf.load(ROOT / f"{name}.yaml"))
    config = OmegaConf.to_object(merged)
    assert isinstance(config, HardwareConfig)
    assert config.validate() == []
    return config.to_spec()


def test_all_machines_are_found() -> None:
    names = [path.stem for path in FILES]
    assert names == ["dgx_a100", "dgx_h100", "local", "planner_bench", "zion", "zionex"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_machine_is_valid(path: Path) -> None:
    assert machine(path.stem).world_size >= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_number_has_its_source_on_its_line(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        written = re.match(r"\s*\w+: ([0-9][^#]*)", line)
        if written is None or line.startswith("num_nodes: 1") or path.stem == "local":
            continue
        assert MARK.search(line), f"{path.name}:{number}: {line}"


@pytest.mark.parametrize("path", [path for path in FILES if path.stem != "local"], ids=lambda path: path.stem)
def test_each_part_with_numbers_carries_a_source(path: Path) -> None:
    spec = machine(path.stem)
    parts: list[MemoryTier | Link] = [spec.accelerator.hbm, spec.ddr]
    parts += [spec.accelerator.host_link, spec.scale_up, spec.scale_out]
    for part in [part for part in parts if part.bandwidth_bytes_per_s is not None]:
        assert re.match(r"\[(datasheet|paper|derived|benchmark)\]", part.source), part


def test_zionex_is_the_machine_of_the_paper() -> None:
    spec = machine("zionex")
    assert spec.label() == "8 ZionEX accelerators"
    assert spec.accelerator.hbm.capacity_bytes == 40 * GIB
    assert spec.scale_out.bandwidth_bytes_per_s == 25e9
    assert spec.scale_up.bandwidth_bytes_per_s == 300e9
    assert spec.ddr.capacity_bytes == 1_500_000_000_000
    assert spec.accelerator.bf16_flops_per_s == 312e12


def test_what_a_v100_lacks_is_absent() -> None:
    accelerator = machine("zion").accelerator
    assert accelerator.fp16_flops_per_s == 125e12
    assert accelerator.bf16_flops_per_s is None
    assert accelerator.tf32_flops_per_s is None


def test_planner_bench_is_the_machine_of_the_benchmark() -> None:
    spec = machine("planner_bench")
    assert spec.ddr.capacity_bytes == 8 * 187 * GIB
    assert spec.accelerator.hbm.bandwidth_bytes_per_s == 1555 * GIB
    assert spec.accelerator.host_link.bandwidth_bytes_per_s == 32 * GIB
    assert (spec.scale_up.bandwidth_bytes_per_s, spec.scale_out.bandwidth_bytes_per_s) == (300 * GIB, 25 * GIB)
    assert (spec.scale_up.latency_s, spec.scale_out.latency_s, spec.ssd.capacity_bytes) == (0.0, 0.0, 0)
    # The bench's totals: 8 accelerators hold 1,816 GiB, 32 hold 7,264.
    assert 8 * spec.accelerator.hbm.usable_bytes + spec.ddr.usable_bytes == 1816 * GIB

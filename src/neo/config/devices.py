"""What this host can execute on, found without importing torch."""

import os
from functools import cache
from pathlib import Path

from neo.hardware.detect import gpu_memory_sizes
from neo.ops.spec import Device
from neo.strategy.spec import Accelerator

CPU_PROCESSES = 2
"""Processes that ``trainer.devices=auto`` starts where there is no GPU."""


@cache
def num_gpus() -> int:
    """Return the number of CUDA devices that a process started now would see."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    found = len(gpu_memory_sizes())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    named = [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    return min(found, len(named))


def execution_device(accelerator: Accelerator) -> Device:
    """Return what the workers of this host run on."""
    if accelerator is Accelerator.AUTO:
        return Device.CUDA if num_gpus() > 0 else Device.CPU
    return Device(accelerator.value)


def num_processes(devices: int | None, accelerator: Accelerator) -> int:
    """Return the processes to start on this host: ``devices``, or one per GPU, or two on the CPU."""
    if devices is not None:
        return devices
    return num_gpus() if execution_device(accelerator) is Device.CUDA and num_gpus() > 0 else CPU_PROCESSES


def fits_here(processes: int, accelerator: Accelerator) -> bool:
    """Return whether this host has a GPU or, on the CPU, a core for each of so many processes."""
    if execution_device(accelerator) is Device.CUDA:
        return num_gpus() >= processes
    return processes <= max(num_cores(), CPU_PROCESSES)


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

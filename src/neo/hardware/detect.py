"""What this host has, for ``hardware=local``; without torch."""

import os
import shutil
import subprocess
from dataclasses import dataclass

_MIB = 2**20
_DEFAULT_CPU_PROCESSES = 2  # What trainer.devices=auto starts where there is no GPU.
_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_QUERY_TIMEOUT_S = 10


@dataclass(frozen=True)
class LocalHost:
    """What was found on this host.

    Attributes:
        host_memory_bytes: Memory of the host, rounded down (see ``rounded_memory``).
        num_gpus: CUDA devices that the driver lists.
        gpu_memory_bytes: Memory of the smallest of them, rounded down; 0 without any.
    """

    host_memory_bytes: int
    num_gpus: int
    gpu_memory_bytes: int

    @property
    def num_accelerators(self) -> int:
        """GPUs, or the number of CPU processes that a run starts by default."""
        return self.num_gpus if self.num_gpus > 0 else _DEFAULT_CPU_PROCESSES


def detect_local_host() -> LocalHost:
    """Look at this host's memory and GPUs."""
    gpus = gpu_memory_sizes()
    return LocalHost(rounded_memory(host_memory()), len(gpus), rounded_memory(min(gpus, default=0)))


def host_memory() -> int:
    """Return the bytes of memory that the operating system reports."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def rounded_memory(num_bytes: int) -> int:
    """Round down to a whole sixteenth of the next lower power of two, and to whole MiB.

    The amount that an operating system reports differs a little from boot to boot and between equal machines;
    a plan must not change with it.
    """
    if num_bytes < _MIB:
        return 0
    step = max(_MIB, 1 << max(0, num_bytes.bit_length() - 5))
    return num_bytes // step * step


def gpu_memory_sizes() -> list[int]:
    """Return the memory in bytes of each CUDA device that a process started now would see; empty without a driver.

    ``CUDA_VISIBLE_DEVICES`` is heeded; of names that are no numbers only their count is.
    """
    if shutil.which(_QUERY[0]) is None:
        return []
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode != 0:
        return []
    sizes = [int(line) * _MIB for line in answer.stdout.split() if line.isdecimal()]
    return _visible(sizes, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(sizes: list[int], names: str | None) -> list[int]:
    """Keep what CUDA shows: the devices named, up to the first name that is none."""
    if names is None:
        return sizes
    kept = []
    for position, name in enumerate(part.strip() for part in names.split(",")):
        if name in ("", "-1"):
            break
        index = int(name) if name.isdecimal() else position
        if index >= len(sizes):
            break
        kept.append(sizes[index])
    return kept

"""Checks that need no torch: the interpreter, who else installs ``neo``, plugins, cores, disk and shared memory."""

import base64
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import neo
from neo.config.devices import num_processes
from neo.config.plugins import ENTRY_POINT_GROUP, load_plugins
from neo.doctor.check import Check, State
from neo.errors import NeoError
from neo.strategy.spec import Accelerator

DISTRIBUTION = "neo-zionex"
OLDEST_PYTHON = (3, 11)
_GIB = 2**30
_LITTLE_DISK_BYTES = 2 * _GIB
_LITTLE_SHARED_BYTES = 64 * 2**20  # what containers get by default; worker processes pass batches through it
_SHARED_MEMORY = Path("/dev/shm")


def python_check(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Look at the interpreter."""
    found = f"{'.'.join(map(str, version))} at {sys.executable}"
    if version[:2] < OLDEST_PYTHON:
        return Check("python", State.FAIL, found, "neo needs Python 3.11 or newer: make the environment with one")
    return Check("python", State.OK, found)


def import_name_check() -> Check:
    """Look whether the package ``neo`` is ours alone: another distribution of that import name overwrites files."""
    others = sorted(set(metadata.packages_distributions().get("neo", [])) - {DISTRIBUTION})
    where = str(Path(neo.__file__ or "").parent)
    fix = f"pip uninstall {' '.join(others)}, then pip install --force-reinstall --no-deps {DISTRIBUTION}"
    if others:
        return Check("import name", State.FAIL, f"{', '.join(others)} installs a package 'neo' as well", fix)
    changed = changed_files()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        fix = f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
        found = f"{changed[0]}{more} is not the file that {DISTRIBUTION} installed"
        return Check("import name", State.FAIL, found, fix)
    return Check("import name", State.OK, f"neo {neo.__version__} from {where}")


def changed_files() -> list[str]:
    """Return the Python files of the installed distribution that differ from its record; none in a checkout."""
    try:
        recorded = metadata.distribution(DISTRIBUTION).files or []
    except metadata.PackageNotFoundError:
        return []
    changed = []
    for file in recorded:
        path = Path(str(file.locate()))
        if file.suffix != ".py" or file.hash is None or file.hash.mode != "sha256":
            continue
        digest = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            changed.append(str(file))
    return sorted(changed)


def plugins_check() -> Check:
    """Load every installed plugin, as each command does."""
    names = sorted(entry.name for entry in metadata.entry_points(group=ENTRY_POINT_GROUP))
    try:
        load_plugins()
    except NeoError as error:
        return Check("plugins", State.FAIL, str(error), "update or uninstall that package")
    return Check("plugins", State.OK, ", ".join(names) if names else "none installed")


def cores_check(environment: Mapping[str, str]) -> Check:
    """Compare the threads that a run would use with the cores of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = num_processes(None, Accelerator.AUTO)
    given = environment.get("OMP_NUM_THREADS", "")
    if not given:
        threads = max(1, cores // processes)
        return Check("cores", State.OK, f"{cores}; a run of {processes} processes gets {threads} threads each")
    found = f"{cores}; OMP_NUM_THREADS={given} for each of {processes} processes"
    if not given.isdecimal() or int(given) * processes > cores > 1:
        fix = f"unset OMP_NUM_THREADS (neo divides the cores), or set it to {max(1, cores // processes)}"
        return Check("cores", State.WARN, found, fix)
    return Check("cores", State.OK, found)


def disk_check(folder: Path) -> Check:
    """Write into the folder where runs would be written, and look at its free space."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"neo")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        fix = "go to a folder that you may write to, or give runs one: hydra.run.dir=FOLDER"
        return Check("disk", State.FAIL, f"{folder}: {error.strerror or error}", fix)
    found = f"{free / _GIB:.1f} GiB free in {folder}"
    if free < _LITTLE_DISK_BYTES:
        return Check("disk", State.WARN, found, "make room: checkpoints and run folders are written here")
    return Check("disk", State.OK, found)


def shared_memory_check(folder: Path = _SHARED_MEMORY) -> Check:
    """Look at the shared memory that processes of one host pass batches and messages through."""
    if not folder.is_dir():
        return Check("shared memory", State.OK, f"no {folder} on this system")
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**20:,.0f} MiB free in {folder}"
    if free < _LITTLE_SHARED_BYTES:
        fix = "free it, or start the container with more: --shm-size=1g or --ipc=host"
        return Check("shared memory", State.WARN, found, fix)
    return Check("shared memory", State.OK, found)


def host_checks(folder: Path, environment: Mapping[str, str]) -> list[Check]:
    """Return all checks of this module."""
    return [
        python_check(),
        import_name_check(),
        plugins_check(),
        cores_check(environment),
        disk_check(folder),
        shared_memory_check(),
    ]

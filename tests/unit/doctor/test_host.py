"""The checks without torch: each finds the fault that it is for."""

import base64
import hashlib
import os
import shutil
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from neo.doctor import host
from neo.doctor.check import Check, State
from neo.errors import NeoError


def test_an_old_python() -> None:
    assert host.python_check().state is State.OK
    old = host.python_check((3, 10, 2))
    assert old.state is State.FAIL
    assert old.found.startswith("3.10.2 at ")
    assert old.fix == "neo needs Python 3.11 or newer: make the environment with one"


def test_another_distribution_with_our_import_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"neo": ["neo-zionex", "neo"]})
    assert host.import_name_check() == Check(
        "import name",
        State.FAIL,
        "neo installs a package 'neo' as well",
        "pip uninstall neo, then pip install --force-reinstall --no-deps neo-zionex",
    )


def test_files_that_another_distribution_overwrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"ours").digest()).rstrip(b"=").decode()

    class Recorded(SimpleNamespace):
        def __str__(self) -> str:
            return str(self.path.name)

        def locate(self) -> Path:
            return Path(self.path)

    paths = [tmp_path / name for name in ("a.py", "b.py", "gone.py", "conf.yaml")]
    hashed = SimpleNamespace(mode="sha256", value=digest)
    files = [Recorded(path=path, suffix=path.suffix, hash=hashed) for path in paths]
    (tmp_path / "a.py").write_bytes(b"ours")
    (tmp_path / "b.py").write_bytes(b"theirs")
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"neo": ["neo-zionex"]})
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(files=files))
    check = host.import_name_check()
    assert check.found == "b.py and 1 more is not the file that neo-zionex installed"
    assert check.fix == "pip install --force-reinstall --no-deps neo-zionex"


def test_a_plugin_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise NeoError("plugin 'acme' of acme cannot be loaded: needs acme 2; update or uninstall that package")

    monkeypatch.setattr(host, "load_plugins", broken)
    check = host.plugins_check()
    assert (check.state, check.fix) == (State.FAIL, "update or uninstall that package")
    assert "needs acme 2" in check.found


def test_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "num_processes", lambda devices, accelerator: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert host.cores_check({}).found == "8; a run of 2 processes gets 4 threads each"
    assert host.cores_check({"OMP_NUM_THREADS": "4"}).state is State.OK
    assert host.cores_check({"OMP_NUM_THREADS": "8"}) == Check(
        "cores",
        State.WARN,
        "8; OMP_NUM_THREADS=8 for each of 2 processes",
        "unset OMP_NUM_THREADS (neo divides the cores), or set it to 4",
    )


def test_disk_and_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def free(amount: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=amount))

    free(10 * 2**30)
    assert host.disk_check(tmp_path) == Check("disk", State.OK, f"10.0 GiB free in {tmp_path}")
    assert host.shared_memory_check(tmp_path).state is State.OK
    free(2**20)
    assert host.disk_check(tmp_path).state is State.WARN
    assert host.shared_memory_check(tmp_path) == Check(
        "shared memory",
        State.WARN,
        f"1 MiB free in {tmp_path}",
        "free it, or start the container with more: --shm-size=1g or --ipc=host",
    )
    missing = tmp_path / "nowhere"
    assert host.shared_memory_check(missing).state is State.OK
    refused = host.disk_check(missing)
    assert (refused.state, refused.found) == (State.FAIL, f"{missing}: No such file or directory")
    assert "hydra.run.dir=FOLDER" in refused.fix

"""The wheel, installed away from the repository, with a third party's plugin beside it."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACME = ROOT / "tests" / "plugins" / "acme_neo"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build neo's wheel and the plugin's; needs no network."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in (ROOT, ACME):
        done = _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=source)
        assert done.returncode == 0, done.stderr
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def site(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install both beside each other; what they depend on is the environment's."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet"]
    files = [str(path) for path in wheels.values()]
    done = _run([sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *files], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def _run(command: list[str], *, cwd: Path, site: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)


def _neo(*arguments: str, cwd: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    return _run([str(site / "bin" / "neo"), *arguments], cwd=cwd, site=site)


def _repository_files() -> Iterator[str]:
    for folder in ("conf", "hardware", "recipes"):
        for path in (ROOT / folder).rglob("*.yaml"):
            yield str(path.relative_to(ROOT))


def test_the_wheel_holds_every_configuration_file(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["neo_zionex"]) as wheel:
        names = wheel.namelist()
        for file in _repository_files():
            inside = f"neo/{file}" if file.startswith("conf/") else f"neo/conf/{file}"
            assert wheel.read(inside) == (ROOT / file).read_bytes()
        assert {"neo/conf/__init__.py", "neo/cli/main.py", "neo/py.typed"} <= set(names)
        assert len(names) == len(set(names))
        assert not [name for name in names if name.startswith(("tests/", "docs/")) or "__pycache__" in name]
        entry_points = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "neo = neo.cli.main:main" in entry_points


def test_a_users_own_files_and_a_plugins_are_choices(site: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "hardware").mkdir(parents=True)
    machine = (ROOT / "hardware" / "zionex.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine" / "hardware" / "mybox.yaml").write_text(machine.replace("name: ZionEX", "name: MyBox"))
    own = ["--config-dir", str(tmp_path / "mine"), "hardware=mybox"]
    shown = _neo("plan", "--cfg", "job", *own, cwd=tmp_path, site=site)
    assert shown.returncode == 0, shown.stderr
    assert "name: MyBox" in shown.stdout
    wrong = _neo("plan", *own[:2], "hardware=mybix", cwd=tmp_path, site=site)
    assert wrong.returncode == 2
    choices = "acmebox, dgx_a100, dgx_h100, local, mybox, planner_bench, zion, zionex"
    assert f"did you mean 'mybox'? Choices: {choices}" in wrong.stderr
    planned = _neo("plan", "hardware=acmebox", "hydra.run.dir=plan", cwd=tmp_path, site=site)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("planned for: 4 AcmeBox accelerators\n")


def test_doctor_tries_the_plugin_too(site: Path, tmp_path: Path) -> None:
    done = _neo("doctor", "--json", cwd=tmp_path, site=site)
    told = json.loads(done.stdout)
    states = {check["name"]: check["state"] for check in told["checks"]}
    assert done.returncode == (0 if told["works"] else 1)
    found = {check["name"]: check["found"] for check in told["checks"]}
    assert states["import name"] == "ok", found
    assert found["import name"].endswith(f"from {site / 'neo'}")
    assert found["plugins"] == "acme"
    expected = ("lookup reference on cpu", "lookup acme on cpu", "all-to-all gloo", "disk")
    assert {states[name] for name in expected} == {"ok"}, found


def test_training_with_what_the_plugin_adds(site: Path, tmp_path: Path) -> None:
    done = _neo(
        "train", "hardware=acmebox", "sharding=auto", "model=acme_linear", "ops.backend=acme", "optim.sparse.name=sgd",
        "comms.forward=acme_fp64", "model.num_embeddings=[500,600]", "sharding=row_wise", "trainer.accelerator=cpu",
        "data.num_samples=2000", "data.val_samples=400", "data.global_batch_size=100", "trainer.max_steps=5",
        "hydra.run.dir=run", cwd=tmp_path, site=site,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["steps"], summary["planned_for"]) == ("done", 5, "2 AcmeBox accelerators")
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert {table["kernel"] for table in plan["tables"].values()} == {"acme"}
    assert summary["fallbacks"] == []


def test_the_plugin_passes_the_suites(site: Path, tmp_path: Path) -> None:
    suites = tmp_path / "suites.py"
    suites.write_text((ACME / "suites.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(suites)]
    done = _run(command, cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout

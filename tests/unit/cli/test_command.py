"""Arguments, flags and exit codes, without starting anything."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import neo
from neo.cli.command import _split
from neo.cli.main import main
from neo.cli.planning import keyed
from neo.errors import ConfigError
from neo.tables.spec import TableSpec

ROOT = Path(__file__).parents[3]


def _run(command: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(ROOT / command), *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_flags_may_stand_between_overrides() -> None:
    flags, overrides, asked = _split(["seed=1", "-m", "data=csv", "--config-dir", "there", "~model"])
    assert flags == ["-m", "--config-dir", "there"]
    assert overrides == ["seed=1", "data=csv", "~model"]
    assert asked.multirun
    assert asked.config_dir == "there"


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("neo: 'trian' is not a command; did you mean 'train'? Choices: checkpoint, ")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"neo {neo.__version__}\n"


def test_without_a_command_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "neo train" in capsys.readouterr().out


def test_two_tables_of_one_name_are_refused() -> None:
    table = TableSpec("user", 10, 4, ("user",))
    assert list(keyed([table], "model.embeddings")) == ["model.embeddings.user"]
    with pytest.raises(ConfigError, match="model: table 'user' occurs twice; rename one"):
        keyed([table, table], "")


@pytest.mark.parametrize("command", ["train.py", "plan.py"])
def test_five_mistakes_exit_2_soon_and_start_nothing(command: str, tmp_path: Path) -> None:
    before_s = _children_s()
    done = _run(
        command, "sharding=tabel_wise", "seed=-1", "trainer.max_step=1", "+foo=1", "trainer.devices", cwd=tmp_path
    )
    assert _children_s() - before_s < 18 * _import_of_hydra_s()
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("5 mistakes in the configuration:\n")
    assert "did you mean 'table_wise'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_hydra_itself_refuses_is_a_wrong_configuration(tmp_path: Path) -> None:
    done = _run("plan.py", "hydra.nonsense=1", cwd=tmp_path)
    assert done.returncode == 2
    assert "hydra.nonsense" in done.stderr


def test_cfg_shows_the_configuration_fast_and_without_torch(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'SRC'); from neo.cli.main import main\n"
        "code = main(['plan', '--cfg', 'job', 'optim.sparse.lr=0.5'])\n"
        "heavy = sorted({'torch', 'lightning', 'fbgemm_gpu', 'pyarrow', 'numpy'} & set(sys.modules))\n"
        "print(code, heavy, file=sys.stderr)"
    ).replace("SRC", str(ROOT / "src"))
    used_s = []
    for _ in range(3):
        before_s = _children_s()
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        used_s.append(_children_s() - before_s)
    assert done.stderr == "0 []\n"
    assert "lr: 0.5" in done.stdout
    assert min(used_s) < 6 * _import_of_hydra_s()  # 3 to 4 times on a quiet machine, 0.5 to 0.6 s


def _import_of_hydra_s() -> float:
    """Return the processor time of importing Hydra, 0.17 s on a quiet machine: how slow this one is now."""
    used_s = []
    for _ in range(3):
        before_s = _children_s()
        subprocess.run([sys.executable, "-c", "import hydra.main, hydra._internal.hydra"], check=True, timeout=60)
        used_s.append(_children_s() - before_s)
    return min(used_s)


def _children_s() -> float:
    """Return the processor time of all ended children: unlike the clock it leaves out what waits for others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("shown", ["job", "all", "hydra"])
@pytest.mark.parametrize("command", ["train.py", "plan.py"])
def test_cfg_shows_nothing_that_could_not_be_run(command: str, shown: str, tmp_path: Path) -> None:
    """A value of a known key, a key of two groups together, and a name: all are found."""
    wrong = ("comms.forward=fp8", "trainer.precision=16-mixed", "optim.sparse.lr=-1", "+foo=1")
    done = _run(command, "--cfg", shown, *wrong, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    keys = [line.split(":")[0].strip() for line in done.stderr.splitlines()]
    assert keys == ["4 mistakes in the configuration", "foo", "optim.sparse.lr", "comms.forward", "trainer.precision"]
    assert list(tmp_path.iterdir()) == []


def test_cfg_with_a_mistake(tmp_path: Path) -> None:
    done = _run("plan.py", "--cfg", "job", "sharding=x", "optim.sparse.lr=fast", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "2 mistakes in the configuration:"

"""Every command of the README's common tasks runs as it stands (its first two blocks are run by .ci/run)."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[2:]
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout to run in, so that outputs and examples do not end up in the real one."""
    where = tmp_path_factory.mktemp("checkout")
    for name in ("train.py", "plan.py", "docs", "recipes"):
        (where / name).symlink_to(ROOT / name)
    return where


def test_the_readme_has_the_commands() -> None:
    assert len(COMMANDS) == 21, COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, folder: Path) -> None:
    words = shlex.split(command)
    programs = {
        "python": [sys.executable],
        "neo": [sys.executable, "-m", "neo.cli.main"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if "train.py" in command:
        assert "samples/s" in done.stdout

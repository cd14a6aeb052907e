"""One run, one folder: it can be written, and nobody else has it."""

import errno
import os
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from neo.cli import job
from neo.cli.run_folder import check_run_dir, held
from neo.config.purpose import Purpose
from neo.errors import ConfigError


def test_a_folder_that_cannot_be_made_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (finding,) = check_run_dir(["seed=1", f"hydra.run.dir={tmp_path}/file/run"])
    assert str(finding) == (
        f"hydra.run.dir: '{tmp_path}/file/run' cannot be written: Not a directory; name another folder"
    )
    assert check_run_dir([f"hydra.run.dir='{tmp_path}/new/run'"]) == []
    assert check_run_dir(["hydra.run.dir=outputs/${now:%H}", "seed=2"]) == []


def test_a_folder_in_use_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    text = (
        f"hydra.run.dir: '{tmp_path}' is in use by the run of process {os.getpid()}; wait for its end, or name "
        "another folder"
    )
    with held(tmp_path), pytest.raises(ConfigError, match=re.escape(text)), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_a_full_disk_ends_the_run_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "plan.json"))

    monkeypatch.setattr("neo.cli.plan.plan", full)
    text = f"the run in {tmp_path} cannot go on: {tmp_path}/plan.json: No space left on device"
    assert job.run_job(Purpose.PLAN, OmegaConf.create({}), tmp_path) == job.JobEnd(1, text)
    assert capsys.readouterr().err == f"{text}\n"

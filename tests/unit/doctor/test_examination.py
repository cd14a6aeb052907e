"""What is tried after what, and the pair of torch and FBGEMM."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from neo.doctor import examination
from neo.doctor.check import Check, State
from neo.ops.spec import FbgemmStatus

Seen = list[list[str]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Replace every process by one that finds nothing wrong, and note what was asked."""
    asked: Seen = []

    def well(name: str, arguments: Sequence[str], *, fix: str, timeout_s: float) -> Check:
        asked.append(list(arguments)[:3])
        return Check(name, State.OK, "torch 2.13.0" if name == "torch" else "fine")

    monkeypatch.setattr(examination, "run_probe", well)
    monkeypatch.setattr(examination, "num_gpus", lambda: 0)
    return asked


def test_everything_is_tried(seen: Seen, tmp_path: Path) -> None:
    names = [check.name for check in examination.examine(tmp_path, timeout_s=1)]
    assert names[:7] == ["python", "import name", "plugins", "cores", "disk", "shared memory", "torch"]
    assert names[7:] == ["torch and fbgemm", "lookup fbgemm on cpu", "lookup reference on cpu", "all-to-all gloo"]
    assert ["exchange", "gloo", "0"] in seen
    assert ["exchange", "gloo", "1"] in seen


def test_gpus_are_tried_too(seen: Seen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examination, "num_gpus", lambda: 4)
    names = [check.name for check in examination.examine(tmp_path, timeout_s=1)]
    assert {"lookup fbgemm on cuda", "lookup reference on cuda", "all-to-all nccl"} <= set(names)
    assert ["exchange", "nccl", "1"] in seen


def test_nothing_follows_a_torch_that_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def dead(name: str, arguments: Sequence[str], *, fix: str, timeout_s: float) -> Check:
        return Check(name, State.FAIL, "ModuleNotFoundError: No module named 'torch'", fix)

    monkeypatch.setattr(examination, "run_probe", dead)
    last = examination.examine(tmp_path, timeout_s=1)[-1]
    assert (last.name, last.fix) == ("torch", "reinstall torch as PyTorch's install page says for this platform")


@pytest.mark.parametrize(
    ("status", "state", "found"),
    [
        (
            FbgemmStatus(False, "fbgemm_gpu is not installed (torch is 2.13.0); install it"),
            State.WARN,
            "fbgemm_gpu is not installed (torch is 2.13.0); ops=auto takes the slower reference backend",
        ),
        (
            FbgemmStatus(False, "fbgemm_gpu 1.6.0 was not built for torch 2.13.0; install it"),
            State.FAIL,
            "fbgemm_gpu 1.6.0 was not built for torch 2.13.0",
        ),
    ],
)
def test_fbgemm_that_cannot_work(
    status: FbgemmStatus, state: State, found: str, monkeypatch: pytest.MonkeyPatch, seen: Seen, tmp_path: Path
) -> None:
    monkeypatch.setattr(examination, "fbgemm_status", lambda: status)
    check = examination.fbgemm_check(1)
    assert (check.state, check.found) == (state, found)
    assert "torch 2.13 with fbgemm 1.8" in check.fix
    assert ["lookup", "fbgemm", "cpu"] not in seen
    names = [check.name for check in examination.examine(tmp_path, timeout_s=1)]
    assert "lookup fbgemm on cpu" not in names
    assert "lookup reference on cpu" in names


def test_fbgemm_of_the_right_version_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, arguments: Sequence[str], *, fix: str, timeout_s: float) -> Check:
        assert list(arguments) == ["import", "fbgemm_gpu"]
        return Check(name, State.FAIL, "ImportError: undefined symbol: _ZN3c10", fix)

    monkeypatch.setattr(examination, "fbgemm_status", lambda: FbgemmStatus(True))
    monkeypatch.setattr(examination, "run_probe", broken)
    check = examination.fbgemm_check(1)
    assert check.found == "ImportError: undefined symbol: _ZN3c10"
    assert check.fix.startswith("install a pair that is known to work (torch 2.13 with fbgemm 1.8)")


@pytest.mark.parametrize("loads", [True, False])
def test_a_lookup_that_fails_is_told_with_its_cause_once(
    loads: bool, monkeypatch: pytest.MonkeyPatch, seen: Seen, tmp_path: Path
) -> None:
    def probe(name: str, arguments: Sequence[str], *, fix: str, timeout_s: float) -> Check:
        broken = list(arguments)[:2] == ["lookup", "fbgemm"] or (arguments[0] == "import" and not loads)
        return Check(name, State.FAIL if broken else State.OK, "torch 2.13.0", fix)

    monkeypatch.setattr(examination, "run_probe", probe)
    monkeypatch.setattr(examination, "fbgemm_status", lambda: FbgemmStatus(True))
    failed = [check.name for check in examination.examine(tmp_path, timeout_s=1) if check.state is State.FAIL]
    assert failed == ["lookup fbgemm on cpu" if loads else "torch and fbgemm"]

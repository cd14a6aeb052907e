"""One verdict from many checks, and what the command prints and returns."""

import json
from pathlib import Path

import pytest

from neo.cli import doctor
from neo.doctor.check import Check, State, Verdict, verdict_of

OK = Check("torch", State.OK, "torch 2.13.0")
WARN = Check("cores", State.WARN, "2; OMP_NUM_THREADS=8", "unset it")
FAIL = Check("disk", State.FAIL, "/runs: Read-only file system", "go to another folder")


def test_all_well() -> None:
    assert verdict_of([OK, OK]) == Verdict(True, "neo works here", "")


def test_a_warning_is_no_failure() -> None:
    assert verdict_of([OK, WARN]) == Verdict(True, "neo works here, with less than it could have: cores", "unset it")
    assert verdict_of([WARN]).exit_code == 0


def test_the_first_failure_comes_first() -> None:
    other = Check("all-to-all gloo", State.FAIL, "did not end within 120 s", "name an interface")
    verdict = verdict_of([OK, WARN, FAIL, other])
    assert verdict == Verdict(
        False,
        "neo does not work here: disk: /runs: Read-only file system (1 more check failed)",
        "go to another folder",
    )
    assert verdict.exit_code == 1


def test_a_check_is_one_line_of_json() -> None:
    assert Check.from_json(WARN.to_json()) == WARN
    for line in ('{"name": "x"}', "3", "no json"):
        with pytest.raises(ValueError):  # noqa: PT011 - json's own error is one
            Check.from_json(line)


@pytest.mark.parametrize(("checks", "code"), [([OK, WARN], 0), ([OK, FAIL], 1)])
def test_the_command(
    checks: list[Check], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[float] = []

    def examined(folder: Path, *, timeout_s: float) -> list[Check]:
        asked.append(timeout_s)
        return checks

    monkeypatch.setattr(doctor, "examine", examined)
    assert doctor.run_doctor(["--timeout", "7"]) == code
    assert asked == [7.0]
    printed = capsys.readouterr().out
    assert verdict_of(checks).text in printed
    assert f"fix: {verdict_of(checks).fix}" in printed
    assert doctor.run_doctor(["--json"]) == code
    content = json.loads(capsys.readouterr().out)
    assert (content["works"], content["verdict"]) == (code == 0, verdict_of(checks).text)
    assert [check["name"] for check in content["checks"]] == [check.name for check in checks]
    assert "torch" in content["versions"]

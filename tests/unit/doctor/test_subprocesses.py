"""However a probe's process ends, there is a check that says so."""

import pytest

from neo.doctor.check import Check, State
from neo.doctor.subprocesses import run_probe

GOOD = Check("x", State.OK, "fine")


def probe(code: str, timeout_s: float = 20.0) -> Check:
    return run_probe("probe", [], fix="mend it", timeout_s=timeout_s, python=("-c", code))


def test_what_a_probe_prints_last_is_its_finding() -> None:
    assert probe(f"print('a library says hello'); print('''{GOOD.to_json()}''')") == Check("probe", State.OK, "fine")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("raise ImportError('libfoo.so: undefined symbol: _ZN3c10')", "undefined symbol: _ZN3c10"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV"),
        ("print('no finding')", "ended with exit code 0 and said nothing"),
        (f"import sys; print('''{GOOD.to_json()}'''); sys.exit('died later')", "died later"),
    ],
)
def test_a_process_that_dies_is_a_failure(code: str, found: str) -> None:
    check = probe(code)
    assert (check.name, check.state, check.fix) == ("probe", State.FAIL, "mend it")
    assert found in check.found


def test_a_process_that_hangs_is_ended() -> None:
    check = probe("import time; time.sleep(60)", timeout_s=0.5)
    assert check == Check("probe", State.FAIL, "did not end within 0.5 s", "mend it")

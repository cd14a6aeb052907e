"""The probes that load torch, in this process: they find what is wrong."""

from typing import Any

import pytest
import torch

from neo.doctor import probes
from neo.doctor.check import State
from neo.ops.reference.pooled_lookup import ReferencePooledLookup
from neo.ops.spec import POOLED_LOOKUPS


def test_torch_and_the_gpus_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert probes.torch_probe("0").state is State.OK
    unreached = probes.torch_probe("2")
    assert unreached.state is State.FAIL
    assert "reaches 0 of 2 GPUs that the driver lists" in unreached.found


def test_a_module_that_does_not_load_is_the_processs_error() -> None:
    assert probes.import_probe("json").state is State.OK
    with pytest.raises(ModuleNotFoundError):
        probes.import_probe("no_such_module_at_all")


@pytest.mark.parametrize("backend", ["reference", "fbgemm"])
def test_a_lookup_of_each_backend(backend: str) -> None:
    if backend == "fbgemm":
        pytest.importorskip("fbgemm_gpu")
    check = probes.lookup_probe(backend, "cpu")
    assert (check.state, check.found) == (State.OK, "lookup and update equal plain torch within 1e-06")


def test_a_backend_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(ReferencePooledLookup):
        def __call__(self, *arguments: Any) -> torch.Tensor:
            return super().__call__(*arguments) * 1.5

    monkeypatch.setattr(POOLED_LOOKUPS, "get", lambda name: Wrong)
    check = probes.lookup_probe("reference", "cpu")
    assert check.state is State.FAIL
    assert check.found.startswith("lookup and update differ from plain torch by ")

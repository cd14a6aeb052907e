from dataclasses import replace

import pytest
import torch
from torch import nn, optim

from neo.optim.dense import dense_optimizer
from neo.optim.spec import DenseOptimizerConfig, DenseOptimizerName, OptimConfig

SPEC = OptimConfig(dense=DenseOptimizerConfig(name="sgd", lr=0.3)).to_spec().dense
KINDS = {"sgd": optim.SGD, "adagrad": optim.Adagrad, "adam": optim.Adam, "adamw": optim.AdamW}


@pytest.mark.parametrize("name", list(DenseOptimizerName))
def test_every_optimizer_gets_its_hyper_parameters(name: DenseOptimizerName) -> None:
    spec = replace(SPEC, name=name, lr=0.25, weight_decay=0.125, beta1=0.5, beta2=0.75, eps=1e-3, momentum=0.1)
    optimizer = dense_optimizer([nn.Parameter(torch.ones(2))], spec)
    assert type(optimizer) is KINDS[name]
    expected = {"lr": 0.25, "weight_decay": 0.125, "betas": (0.5, 0.75), "eps": 1e-3, "momentum": 0.1, "name": "dense"}
    (group,) = optimizer.param_groups
    assert {key: value for key, value in expected.items() if key in group} == {
        key: group[key] for key in expected if key in group
    }
    assert {"lr", "weight_decay"} < group.keys()


@pytest.mark.parametrize("name", list(DenseOptimizerName))
def test_a_sparse_group_travels_along_without_values(name: DenseOptimizerName) -> None:
    parameter = nn.Parameter(torch.ones(2))
    sparse = {"params": [nn.Parameter(torch.empty(0), requires_grad=False)], "lr": 0.7, "name": "sparse"}
    optimizer = dense_optimizer([parameter], replace(SPEC, name=name), sparse_groups=[sparse])
    assert [(group["name"], group["lr"]) for group in optimizer.param_groups] == [("dense", 0.3), ("sparse", 0.7)]
    parameter.sum().backward()
    optimizer.step()
    assert bool((parameter < 1).all())

"""What the backends claim for CUDA, under the same suite as on the CPU."""

import pytest
import torch

from neo.ops.spec import Device
from neo.testing.op_suite import OpSuite

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


class TestReference(OpSuite):
    backend = "reference"
    device = Device.CUDA


class TestFbgemm(OpSuite):
    backend = "fbgemm"
    device = Device.CUDA

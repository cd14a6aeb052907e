"""The codecs on CUDA: the same suite as on the CPU. Skipped, with the reason, where there is no GPU."""

import pytest
import torch

from neo.testing.codec_suite import CodecSuite

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


class TestFp32(CodecSuite):
    codec = "fp32"
    device = "cuda"


class TestFp16(CodecSuite):
    codec = "fp16"
    device = "cuda"
    honours_scale = True


class TestBf16(CodecSuite):
    codec = "bf16"
    device = "cuda"


class TestInt8(CodecSuite):
    codec = "int8"
    device = "cuda"

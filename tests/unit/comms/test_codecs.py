"""The codecs that neo brings, by the suite that it ships, and what only one of them promises."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from neo.comms.codecs import Codec, ErrorBound, Fp32Codec
from neo.comms.half_codecs import Bf16Codec, Fp16Codec
from neo.comms.int8_codec import Int8RowwiseCodec
from neo.comms.spec import CODECS
from neo.testing.codec_suite import CodecSuite


class TestFp32(CodecSuite):
    codec = "fp32"

    def wire_bytes(self, widths: Sequence[int]) -> int:
        return 4 * sum(widths)


class TestFp16(CodecSuite):
    codec = "fp16"
    honours_scale = True

    def wire_bytes(self, widths: Sequence[int]) -> int:
        return 2 * sum(widths)


class TestBf16(CodecSuite):
    codec = "bf16"

    def wire_bytes(self, widths: Sequence[int]) -> int:
        return 2 * sum(widths)


class TestInt8(CodecSuite):
    codec = "int8"

    def wire_bytes(self, widths: Sequence[int]) -> int:
        return sum(width + 8 for width in widths)


def test_the_registered_codecs() -> None:
    assert CODECS.names() == ("bf16", "fp16", "fp32", "int8")


def test_fp32_changes_no_bit() -> None:
    rows = torch.tensor([[1.5, -0.0, float("inf"), 3.4e38]])
    assert torch.equal(Fp32Codec().decode(Fp32Codec().encode(rows, (4,)), (4,)), rows)


def test_fp16_saturates_and_says_nan_for_infinity() -> None:
    codec = Fp16Codec()
    rows = torch.tensor([[70_000.0, -70_000.0, 65_504.0, float("inf"), float("-inf"), float("nan"), 0.1]])
    arrived = codec.decode(codec.encode(rows, (7,)), (7,))[0]
    assert arrived[:3].tolist() == [65_504.0, -65_504.0, 65_504.0]
    assert arrived[3:6].isnan().all()
    assert float(arrived[6]) == float(torch.tensor(0.1).half())
    scaled = codec.decode(codec.encode(rows, (7,), scale=4.0), (7,), scale=4.0)[0]
    assert scaled[:3].tolist() == [16_376.0, -16_376.0, 16_376.0]


def test_a_loss_scale_makes_fp16_as_good_as_float32_range() -> None:
    codec, rows = Fp16Codec(), torch.tensor([[3e-9, 1e-8]])
    assert codec.decode(codec.encode(rows, (2,)), (2,)).tolist() == [[0.0, 0.0]]
    arrived = codec.decode(codec.encode(rows, (2,), scale=2.0**15), (2,), scale=2.0**15)
    torch.testing.assert_close(arrived, rows, rtol=2.0**-10, atol=0.0)


def test_bf16_keeps_infinity_and_range() -> None:
    codec, rows = Bf16Codec(), torch.tensor([[float("inf"), float("-inf"), 1e38, 1e-38]])
    arrived = codec.decode(codec.encode(rows, (4,), scale=1024.0), (4,), scale=1024.0)
    torch.testing.assert_close(arrived, rows, rtol=2.0**-8, atol=0.0)


def test_int8_is_exact_on_its_own_grid() -> None:
    """Whole numbers from -27 to 227 span 254 steps of 1."""
    rows = torch.arange(-27.0, 228.0).unsqueeze(0)
    codec = Int8RowwiseCodec()
    assert torch.equal(codec.decode(codec.encode(rows, (255,)), (255,)), rows)


def test_int8_follows_the_range_of_each_vector() -> None:
    """A narrow vector beside a wide one, and one far from 0, keep steps of their own."""
    rows = torch.cat([torch.rand(3, 8) * 1e-3, torch.rand(3, 8) * 1e3, 500.0 + torch.rand(3, 8)], dim=1)
    codec = Int8RowwiseCodec()
    error = (codec.decode(codec.encode(rows, (8, 8, 8)), (8, 8, 8)) - rows).abs()
    ranges = [part.amax(1) - part.amin(1) for part in rows.split(8, dim=1)]
    for part, spread in zip(error.split(8, dim=1), ranges, strict=True):
        assert (part.amax(1) <= spread / 507 + 1e-4).all()
    assert float(error[:, :8].max()) < 1e-5


def test_int8_wire_is_steps_offsets_and_bytes() -> None:
    wire = Int8RowwiseCodec().encode(torch.tensor([[0.0, 254.0, -127.0, 127.0]]), (2, 2))
    assert wire[0, :8].view(torch.float32).tolist() == [1.0, 1.0]
    assert wire[0, 8:16].view(torch.float32).tolist() == [0.0, 127.0]
    assert wire[0, 16:].tolist() == [0, 254, 0, 254]


@pytest.mark.parametrize("widths", [(4, 8, 4, 8), (8, 4, 4, 8), (4, 4, 8, 8)], ids=str)
def test_int8_does_not_mix_vectors_of_one_width(widths: tuple[int, ...]) -> None:
    rows = torch.randn(5, sum(widths)) * torch.cat([torch.full((width,), 10.0**i) for i, width in enumerate(widths)])
    codec, alone = Int8RowwiseCodec(), []
    for part, width in zip(rows.split(list(widths), dim=1), widths, strict=True):
        alone.append(codec.decode(codec.encode(part.contiguous(), (width,)), (width,)))
    assert torch.equal(codec.decode(codec.encode(rows, widths), widths), torch.cat(alone, dim=1))


class _Broken(Fp16Codec):
    """What an author may get wrong, one mistake at a time."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake
        self.calls = 0
        if mistake == "boasts":
            self.bound = ErrorBound(relative=2.0**-13, absolute=2.0**-25, largest=65504.0)

    def wire_columns(self, widths: Sequence[int]) -> int:
        return sum(widths) + (self.mistake == "miscounts")

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        match self.mistake:
            case "overflows":
                return (rows * scale).to(torch.float16)
            case "hides NaN":
                return super().encode(rows.nan_to_num(), widths, scale=scale)
            case "modifies":
                return super().encode(rows.add_(1.0), widths, scale=scale)
            case "ignores the scale":
                return super().encode(rows, widths)
            case "moves 0":
                return super().encode(torch.where(rows == 0, rows.new_full((), 1e-6), rows), widths, scale=scale)
            case "looks around":
                return super().encode(rows * (1.0 + 2.0**-9 * (len(rows) > 1)), widths, scale=scale)
            case "forgets":
                return super().encode(rows * (1.0 + 2.0**-9 * (self.calls % 2)), widths, scale=scale)
        return super().encode(rows, widths, scale=scale)

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        return super().decode(wire, widths, scale=1.0 if self.mistake == "ignores the scale" else scale)


def _suite(mistake: str) -> CodecSuite:
    class Broken(CodecSuite):
        codec = staticmethod(lambda: _Broken(mistake))
        honours_scale = True

        def wire_bytes(self, widths: Sequence[int]) -> int:
            return 2 * sum(widths)

    return Broken()


@pytest.mark.parametrize(
    ("mistake", "test", "message"),
    [
        ("boasts", lambda s: s.test_the_error_is_within_the_stated_bound("random", 65, (20, 12)), "the bound allows"),
        ("overflows", lambda s: s.test_a_finite_value_never_becomes_infinite(70_000.0, 1.0), "arrived as inf"),
        ("hides NaN", lambda s: s.test_what_is_not_finite_does_not_arrive_as_finite(float("nan"), (1, 1)), "nan arri"),
        ("modifies", lambda s: s.test_0_arrives_as_0(1.0, (20, 12)), "encode modified its input"),
        ("ignores the scale", lambda s: s.test_a_loss_scale_keeps_tiny_gradients(), "Tensor-likes are not close"),
        ("moves 0", lambda s: s.test_0_arrives_as_0(1.0, (20, 12)), "0 beside 1.0 arrived as"),
        ("looks around", lambda s: s.test_a_row_does_not_depend_on_the_others("random"), "row 0 differs alone"),
        ("forgets", lambda s: s.test_the_same_rows_give_the_same_bytes(), "two passages differ"),
        ("miscounts", lambda s: s.test_the_bytes_on_the_wire_are_as_stated((20, 12)), "65|66 bytes"),
        ("miscounts", lambda s: s.test_0_arrives_as_0(1.0, (20, 12)), "33 columns were stated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_suite_catches_a_broken_codec(mistake: str, test: Callable[[Any], None], message: str) -> None:
    test(_suite("sound"))  # what catches the mistake passes without it
    with pytest.raises(AssertionError, match=message):
        test(_suite(mistake))


def test_a_codec_must_be_one() -> None:
    suite = type("Wrong", (CodecSuite,), {"codec": staticmethod(lambda: object())})()
    with pytest.raises(AssertionError, match="is no Codec"):
        suite.make()


def test_every_codec_writes_and_reads_on_the_rows_device() -> None:
    """The meta device runs no kernel: an operation that only the CPU has would leave it."""
    for name in CODECS:
        codec = CODECS.get(name)()
        assert isinstance(codec, Codec)
        wire = codec.encode(torch.empty(3, 32, device="meta"), (20, 12))
        assert wire.device.type == "meta"
        assert codec.decode(wire, (20, 12)).device.type == "meta"

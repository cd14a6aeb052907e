"""What every codec owes, as pytest tests for its author to subclass (needs pytest).

```python
class TestMine(CodecSuite):
    codec = "mine"  # registered in neo.comms.spec.CODECS; or codec = MyCodec

    def wire_bytes(self, widths):  # leave it out where the codec states no size
        return 2 * sum(widths)
```

``honours_scale = True`` says that the loss scale has to work. ``docs/extending.md`` has a whole example.

Shapes: R rows (samples), V vectors in each, D the sum of their widths.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from neo.comms.codecs import Codec
from neo.comms.spec import CODECS

# No multiple of a block, of a cache line or of each other; many alike, none at all, one of no width.
WIDTHS: tuple[tuple[int, ...], ...] = (
    (20, 12), (1,), (1, 1, 1), (64, 64, 64, 64), (20, 12, 20, 1, 12), (260,), (7, 0, 5), (),
)  # fmt: skip
ROWS = (0, 1, 3, 65)
_FLOAT32_ROUNDING = 2.0**-23


def _random(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randn(num_rows, width, generator=generator)


def _dyadic(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randint(-64, 65, (num_rows, width), generator=generator) / 64.0


def _one_sign(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return 100.0 + torch.rand(num_rows, width, generator=generator)


def _mixed(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    """Values of all sizes side by side, in one vector and between rows."""
    exponents = torch.randint(-30, 13, (num_rows, width), generator=generator).float()
    return torch.randn(num_rows, width, generator=generator) * exponents.exp2()


def _tiny(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randn(num_rows, width, generator=generator) * 1e-12


def _subnormal(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randn(num_rows, width, generator=generator) * 1e-39


def _large(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randn(num_rows, width, generator=generator) * 1e37


def _constant(generator: torch.Generator, num_rows: int, width: int) -> Tensor:
    return torch.randn(num_rows, 1, generator=generator).expand(num_rows, width).clone()


VALUES: dict[str, Callable[[torch.Generator, int, int], Tensor]] = {
    "random": _random,
    "dyadic": _dyadic,
    "one sign": _one_sign,
    "mixed scales": _mixed,
    "tiny": _tiny,
    "subnormal": _subnormal,
    "large": _large,
    "constant": _constant,
}


class CodecSuite:
    """Subclass it and name the codec; pytest collects the tests.

    Attributes:
        codec: The codec's registered name, or something that makes one.
        device: Where the tests run.
        honours_scale: Whether the codec applies the loss scale, so that values too small for it survive.
    """

    codec: ClassVar[str | Callable[[], Codec]]
    device: ClassVar[str] = "cpu"
    honours_scale: ClassVar[bool] = False

    def make(self) -> Codec:
        """Return a new codec."""
        chosen = type(self).codec
        made: object = CODECS.get(chosen)() if isinstance(chosen, str) else chosen()
        assert isinstance(made, Codec), f"{made!r} is no Codec"
        return made

    def wire_bytes(self, widths: Sequence[int]) -> int | None:
        """Return the bytes on the wire of one row of vectors, or None if the codec does not state them."""
        return None

    def passage(self, codec: Codec, rows: Tensor, widths: Sequence[int], scale: float = 1.0) -> Tensor:
        """Return what arrives of ``rows``, after the checks that hold for every passage."""
        before = rows.clone()
        wire = codec.encode(rows, widths, scale=scale)
        assert torch.equal(rows.nan_to_num(), before.nan_to_num()), "encode modified its input"
        assert wire.dtype == codec.dtype, f"the wire is {wire.dtype}, and {codec.dtype} was stated"
        columns = codec.wire_columns(widths)
        assert wire.shape == (len(rows), columns), f"the wire is {tuple(wire.shape)}, and {columns} columns were stated"
        assert wire.device == rows.device, f"the wire is on {wire.device}, its rows on {rows.device}"
        sent = wire.clone()
        arrived = codec.decode(wire, widths, scale=scale)
        assert torch.equal(_bytes(wire), _bytes(sent)), "decode modified the wire"
        assert arrived.dtype == torch.float32 and arrived.shape == rows.shape, (
            f"{tuple(rows.shape)} arrived as {arrived.dtype} {tuple(arrived.shape)}"
        )
        return arrived

    def values(self, kind: str, num_rows: int, widths: Sequence[int], seed: int = 0) -> Tensor:
        """Return float32 rows ``[num_rows, sum(widths)]`` of one kind of ``VALUES``."""
        generator = torch.Generator().manual_seed(seed)
        parts = [VALUES[kind](generator, num_rows, width) for width in widths]
        return torch.cat([torch.zeros(num_rows, 0), *parts], dim=1).to(self.device)

    @pytest.mark.parametrize("widths", WIDTHS, ids=str)
    @pytest.mark.parametrize("num_rows", ROWS)
    @pytest.mark.parametrize("kind", VALUES)
    def test_the_error_is_within_the_stated_bound(self, kind: str, num_rows: int, widths: tuple[int, ...]) -> None:
        """Random, dyadic, large, tiny and mixed values; 0 rows, 0 widths and sizes that are no multiple of a block."""
        codec, rows = self.make(), self.values(kind, num_rows, widths)
        _require_bound(codec, rows, self.passage(codec, rows, widths), widths)

    @pytest.mark.parametrize("exponent", [-16, 0, 10, 20])
    @pytest.mark.parametrize("kind", ["random", "tiny"])
    def test_the_bound_holds_under_a_loss_scale(self, kind: str, exponent: int) -> None:
        """Scales above and below 1, also where they saturate."""
        codec, scale = self.make(), 2.0**exponent
        rows = self.values(kind, 3, (20, 12))
        arrived = self.passage(codec, rows, (20, 12), scale)
        _require_bound(codec, rows, arrived, (20, 12), scale if self.honours_scale else 1.0)

    @pytest.mark.parametrize("widths", [(20, 12), (1,), (4, 4, 4)], ids=str)
    @pytest.mark.parametrize("beside", [0.0, 1.0, -3.7, 1e-30, 70_000.0])
    def test_0_arrives_as_0(self, beside: float, widths: tuple[int, ...]) -> None:
        """0 is exact, whatever stands beside it: rows that a sample does not touch must not move."""
        codec = self.make()
        rows = torch.full((3, sum(widths)), beside, device=self.device)
        rows[:, ::2] = 0.0
        arrived = self.passage(codec, rows, widths)
        assert not arrived[:, ::2].any(), f"0 beside {beside} arrived as {arrived[:, ::2].unique().tolist()}"

    @pytest.mark.parametrize("value", [70_000.0, -70_000.0, 1e30, -3e38])
    @pytest.mark.parametrize("scale", [1.0, 2.0**16])
    def test_a_finite_value_never_becomes_infinite(self, value: float, scale: float) -> None:
        """70,000 is beyond fp16; values above the largest arrive as the largest."""
        codec = self.make()
        rows = self.values("random", 3, (20, 12))
        rows[1, 5] = value
        arrived = self.passage(codec, rows, (20, 12), scale)
        assert arrived.isfinite().all(), f"{value} arrived as {float(arrived[1, 5])}"
        largest = codec.bound.largest / (scale if self.honours_scale else 1.0)
        expected = max(-largest, min(largest, value))
        allowed = max(codec.bound.relative, _FLOAT32_ROUNDING) * abs(value)
        assert abs(float(arrived[1, 5]) - expected) <= allowed, (
            f"{value} arrived as {float(arrived[1, 5])}, not {expected}"
        )

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("widths", [(20, 12), (1, 1)], ids=str)
    def test_what_is_not_finite_does_not_arrive_as_finite(self, value: float, widths: tuple[int, ...]) -> None:
        """NaN stays NaN, infinity does not turn into a number, and both spoil their own vector alone."""
        codec, rows = self.make(), self.values("random", 3, widths)
        rows[1, 0] = value
        arrived = self.passage(codec, rows, widths)
        assert not arrived[1, 0].isfinite(), f"{value} arrived as {float(arrived[1, 0])}"
        if value != value:
            assert arrived[1, 0].isnan(), f"NaN arrived as {float(arrived[1, 0])}"
        others = torch.cat([arrived[0], arrived[1, widths[0] :], arrived[2]])
        assert others.isfinite().all(), f"{value} in one vector spoiled another"

    @pytest.mark.parametrize("kind", ["random", "mixed scales"])
    def test_a_row_does_not_depend_on_the_others(self, kind: str) -> None:
        """A row has the same bytes alone and among others, so that batches may be cut anywhere."""
        codec, widths = self.make(), (20, 12)
        rows = self.values(kind, 65, widths)
        together = codec.encode(rows, widths)
        for row in (0, 31, 64):
            alone = codec.encode(rows[row : row + 1].clone(), widths)
            assert torch.equal(_bytes(alone), _bytes(together[row : row + 1].clone())), f"row {row} differs alone"
        some = [7, 64, 0]
        assert torch.equal(codec.decode(together[some], widths), codec.decode(together, widths)[some])

    def test_rows_that_are_views_arrive(self) -> None:
        """Neither direction needs contiguous rows."""
        codec, widths = self.make(), (20, 12)
        wide = self.values("random", 5, (3, 20, 12))
        view = wide[:, 3:]
        assert torch.equal(self.passage(codec, view, widths), self.passage(codec, view.clone(), widths))
        wire = codec.encode(view, widths)
        longer = torch.cat([wire, wire], dim=1)[:, : wire.shape[1]]
        assert torch.equal(codec.decode(longer, widths), codec.decode(wire, widths)), "decode needs contiguous rows"

    def test_the_same_rows_give_the_same_bytes(self) -> None:
        """Encoding is deterministic and keeps nothing of the rows before."""
        codec, widths = self.make(), (20, 12)
        rows = self.values("mixed scales", 65, widths)
        wire = codec.encode(rows, widths)
        for other in (codec, self.make()):
            assert torch.equal(_bytes(other.encode(rows, widths)), _bytes(wire)), "two passages differ"

    def test_what_arrived_passes_again_within_the_bound(self) -> None:
        """A second passage, as between nodes, adds no more than the bound."""
        codec, widths = self.make(), (20, 12)
        once = self.passage(codec, self.values("random", 3, widths), widths)
        _require_bound(codec, once, self.passage(codec, once, widths), widths)

    @pytest.mark.parametrize("widths", WIDTHS, ids=str)
    def test_the_bytes_on_the_wire_are_as_stated(self, widths: tuple[int, ...]) -> None:
        """The wire is as small as the codec says."""
        codec, stated = self.make(), self.wire_bytes(widths)
        if stated is None:
            pytest.skip("wire_bytes states no size")
        found = codec.wire_columns(widths) * codec.dtype.itemsize
        assert found == stated, f"{found} bytes for widths {widths}, and {stated} were stated"

    def test_a_loss_scale_keeps_tiny_gradients(self) -> None:
        """1e-9 arrives under a scale of 2^20."""
        codec, scale = self.make(), 2.0**20
        rows = torch.full((3, 8), 1e-9, device=self.device)
        arrived = self.passage(codec, rows, (8,), scale)
        torch.testing.assert_close(arrived, rows, rtol=max(codec.bound.relative, _FLOAT32_ROUNDING), atol=0.0)
        if self.honours_scale:
            assert not torch.equal(self.passage(codec, rows, (8,)), arrived), "the scale has no effect"


def _require_bound(codec: Codec, rows: Tensor, arrived: Tensor, widths: Sequence[int], scale: float = 1.0) -> None:
    """Fail where an element is farther away than the bound allows under the scale that was applied."""
    bound = codec.bound
    vectors = zip(rows.double().split(list(widths), dim=1), arrived.double().split(list(widths), dim=1), strict=True)
    for number, (sent, got) in enumerate(vectors):
        if not sent.numel():
            continue
        largest = bound.largest / scale
        allowed = bound.relative * sent.abs().amax(dim=1, keepdim=True) + bound.absolute / scale
        excess = (got - sent.clamp(-largest, largest)).abs() - allowed
        if not bool((excess <= 0).all()):  # NaN is an excess, too
            row, column = divmod(int(excess.nan_to_num(nan=float("inf")).argmax()), sent.shape[1])
            raise AssertionError(
                f"row {row}, vector {number}, column {column}: {float(sent[row, column])} arrived as "
                f"{float(got[row, column])}, and the bound allows {float(allowed[row, 0])}"
            )


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)

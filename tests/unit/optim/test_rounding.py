"""Random rounding: unbiased at every size of weight, exact where it can be, and what happens beyond the largest one."""

import math

import pytest
import torch
from torch import Tensor

from neo.optim import rounding
from neo.optim.rounding import RandomBits, column_hashes, round_at_random, row_hashes, table_salt

CPU = torch.device("cpu")
ROWS, COLUMNS = 512, 64
DTYPES = [torch.float16, torch.bfloat16]


def bits(step: int = 1, *, seed: int = 0, key: str = "t", rows: int = ROWS) -> RandomBits:
    salts = torch.full((rows,), table_salt(seed, key))
    return RandomBits(row_hashes(salts, torch.arange(rows), step), column_hashes(0, COLUMNS, CPU))


def constant(value: float) -> Tensor:
    return torch.full((ROWS, COLUMNS), value)


def spacing(value: float, dtype: torch.dtype) -> float:
    smallest = 2.0**-24 if dtype is torch.float16 else 2.0**-133
    relative = 2.0**-10 if dtype is torch.float16 else 2.0**-7
    return max(smallest, relative * 2.0 ** math.floor(math.log2(abs(value))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [1.0001, -1.0001, 0.02003, 3e-5, -3.3e-5, 6.1e-5, 2e-8, 1234.56])
def test_the_mean_is_kept(value: float, dtype: torch.dtype) -> None:
    values = constant(value)
    rounded = torch.cat([round_at_random(values, bits(step), dtype) for step in range(1, 5)]).double().flatten()
    exact, gap = float(values[0, 0].double()), spacing(value, dtype)
    share = (exact / gap) % 1.0
    # Six standard deviations of the mean, and the 2^-13 of a gap to which float16 divides it.
    allowed = gap * (6 * math.sqrt(share * (1 - share) / rounded.numel()) + 2.0**-13)
    assert abs(float(rounded.mean()) - exact) <= allowed
    assert rounded.unique().numel() == 2
    assert (rounded - exact).abs().max() < gap


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_representable_stays(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    values = every[every.isfinite()].float()
    values = values[: values.numel() // COLUMNS * COLUMNS].view(-1, COLUMNS)
    for step in range(1, 4):
        assert torch.equal(round_at_random(values, bits(step, rows=len(values)), dtype).float(), values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_the_largest_number_it_rounds_to_the_nearest(dtype: torch.dtype) -> None:
    """There is no second neighbour to keep a mean with, and a run that diverges has to show it."""
    largest = torch.finfo(dtype).max
    gap = spacing(largest, dtype)
    edge = [largest, largest + gap / 4, largest + gap * 0.6, math.inf, -math.inf, math.nan, -largest - gap / 4, 1.0]
    values = torch.tensor(edge, dtype=torch.float64).float().repeat(ROWS, COLUMNS // len(edge))
    got = round_at_random(values, bits(), dtype)[0, : len(edge)].float()
    expected = torch.tensor([largest, largest, math.inf, math.inf, -math.inf, math.nan, -largest, 1.0])
    assert torch.equal(got.nan_to_num(7.0, math.inf, -math.inf), expected.nan_to_num(7.0, math.inf, -math.inf))


@pytest.mark.parametrize("flushes", [False, True])
def test_both_ways_to_float16_give_the_same_bits(flushes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is taken depends on the neighbours of a value, and so on the plan."""
    exponents = torch.linspace(-28, 15, ROWS * COLUMNS).view(ROWS, COLUMNS)
    values = exponents.exp2() * (torch.arange(COLUMNS) % 2 * 2.0 - 1.0)
    results = []
    torch.set_flush_denormal(flushes)
    try:
        for has_many in (False, True):
            monkeypatch.setattr(rounding, "_has_many_small", lambda values, has_many=has_many: has_many)
            results.append(round_at_random(values, bits(), torch.float16).view(torch.int16))
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(*results)
    assert results[0].unique().numel() > ROWS


def test_no_row_and_no_negative_zero_is_special() -> None:
    none = RandomBits(torch.zeros(0, dtype=torch.int32), column_hashes(0, COLUMNS, CPU))
    assert round_at_random(torch.zeros(0, COLUMNS), none, torch.float16).shape == (0, COLUMNS)
    for dtype in DTYPES:
        assert not round_at_random(constant(-0.0), bits(), dtype).any()


def test_bits_are_independent_between_rows_columns_steps_seeds_and_tables() -> None:
    base = bits().draw(16).double().flatten()
    assert abs(float(base.mean()) / 2**16 - 0.5) < 0.01
    others = {
        "step": bits(2).draw(16).flatten(),
        "seed": bits(seed=1).draw(16).flatten(),
        "table": bits(key="u").draw(16).flatten(),
        "row": bits().draw(16).roll(1, 0).flatten(),
        "column": bits().draw(16).roll(1, 1).flatten(),
    }
    for name, other in others.items():
        correlation = float(torch.corrcoef(torch.stack([base, other.double()]))[0, 1])
        assert abs(correlation) < 5 / math.sqrt(base.numel()), name
    columns = torch.corrcoef(bits(rows=4096).draw(16).double().T) - torch.eye(COLUMNS)
    assert columns.abs().max() < 6 / math.sqrt(4096)


def test_large_seeds_rows_and_steps_wrap_around() -> None:
    salts = torch.tensor([table_salt(2**63, "t")] * 2)
    hashes = row_hashes(salts, torch.tensor([0, 2**62]), 2**62)
    assert hashes.dtype is torch.int32 and hashes[0] != hashes[1]

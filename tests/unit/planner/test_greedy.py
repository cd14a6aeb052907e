import numpy as np
import pytest

from neo.planner.partitioners.greedy import partition
from neo.planner.problem import DoesNotFitError, Item, Piece
from neo.planner.spec import PARTITIONERS


def item(key: str, *loads: float, num_bytes: int = 1) -> Item:
    return Item(key, tuple(Piece(load, num_bytes) for load in loads))


def spread(
    *items: Item, world_size: int = 2, free: int = 10, load: tuple[float, ...] | None = None
) -> dict[str, object]:
    carried = np.zeros(world_size) if load is None else np.array(load)
    return dict(partition(items, load=carried, free_bytes=np.full(world_size, free, dtype=np.int64)))


def test_largest_first_to_the_least_loaded_rank() -> None:
    assert spread(item("a", 1.0), item("b", 3.0), item("c", 2.0)) == {"b": (0,), "c": (1,), "a": (1,)}


def test_equal_items_go_by_name_to_the_lowest_rank() -> None:
    assert spread(item("b", 1.0), item("a", 1.0)) == {"a": (0,), "b": (1,)}


def test_load_that_a_rank_carries_already_counts() -> None:
    assert spread(item("a", 1.0), load=(5.0, 0.0)) == {"a": (1,)}


def test_pieces_of_an_item_lie_on_different_ranks() -> None:
    assert spread(item("a", 5.0, 1.0, 1.0), world_size=3) == {"a": (0, 1, 2)}


def test_memory_goes_before_balance() -> None:
    assert spread(item("a", 3.0, num_bytes=6), item("b", 2.0, num_bytes=3), item("c", 1.9, num_bytes=6)) == {
        "a": (0,),
        "b": (1,),
        "c": (1,),
    }


def test_what_fits_nowhere_is_named_with_the_best_rank() -> None:
    with pytest.raises(DoesNotFitError, match="'b' needs 8 B; rank 1 has 7 B left") as caught:
        spread(item("a", 2.0, num_bytes=5), item("c", 1.5, num_bytes=3), item("b", 1.0, num_bytes=8))
    assert (caught.value.key, caught.value.rank, caught.value.free_bytes) == ("b", 1, 7)


def test_it_is_registered() -> None:
    assert PARTITIONERS.get("greedy") is partition

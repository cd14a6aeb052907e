"""Finding a table by its key in the plan (``model.embeddings.user_id``) or by its bare name (``user_id``)."""

from collections.abc import Iterable, Sequence

from neo.errors import did_you_mean, nearest

_MOST_LISTED = 30
_MOST_NAMED = 3


def bare_name(key: str) -> str:
    """Return the last part of a plan key."""
    return key.rpartition(".")[2]


def several_named(keys: Sequence[str]) -> str:
    """Return the bare names, of many only the first: ``a, b, c and 5 more``."""
    names = [bare_name(key) for key in keys]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def matching_keys(name: str, keys: Iterable[str]) -> list[str]:
    """Return the keys that ``name`` may mean: the key itself, or else every key whose bare name it is."""
    known = list(keys)
    if name in known:
        return [name]
    return sorted(key for key in known if bare_name(key) == name)


def nearest_table(name: str, keys: Iterable[str]) -> str:
    """Return ``did you mean …`` for a name that is no table; lists the tables where they are few."""
    known = list(keys)
    names = known if "." in name else [bare_name(key) for key in known]
    if len(names) <= _MOST_LISTED:
        return did_you_mean(name, names)
    near = nearest(name, sorted(names), cutoff=0.5)
    count = f"the model has {len(names)} tables"
    return f"did you mean '{near[0]}'? ({count})" if near else count

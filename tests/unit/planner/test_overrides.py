"""Optimizers of single tables, by bare name or plan key."""

from neo.optim.spec import DenseOptimizerConfig, OptimConfig, OptimSpec, SparseOptimizerConfig, SparseOptimizerSpec
from neo.planner.overrides import table_optimizers

KEYS = ("model.embeddings.user", "model.embeddings.item")


def optim(**tables: dict[str, float]) -> OptimSpec:
    sparse = SparseOptimizerConfig(name="adagrad", lr=0.5, tables=tables)
    assert sparse.validate() == []
    return OptimConfig(sparse=sparse, dense=DenseOptimizerConfig()).to_spec()


def test_a_table_keeps_what_it_does_not_have_of_its_own() -> None:
    own, findings = table_optimizers(optim(user={"eps": 0.1}), KEYS)
    assert own == {"model.embeddings.user": SparseOptimizerSpec(name="adagrad", lr=0.5, eps=0.1)}
    assert findings == []


def test_a_table_may_be_named_by_its_key() -> None:
    own, findings = table_optimizers(optim(**{"model.embeddings.item": {"lr": 0.25}}), KEYS)
    assert own["model.embeddings.item"].lr == 0.25
    assert findings == []


def test_names_of_no_table_and_two_names_of_one_are_refused() -> None:
    _, findings = table_optimizers(optim(usr={"lr": 1.0}, user={"lr": 1.0}, **{KEYS[0]: {"lr": 2.0}}), KEYS)
    assert [str(finding) for finding in findings] == [
        "optim.sparse.tables.user: is the table that optim.sparse.tables.model.embeddings.user names too; "
        "keep one of them",
        "optim.sparse.tables.usr: 'usr' is not a table; did you mean 'user'? Choices: item, user",
    ]

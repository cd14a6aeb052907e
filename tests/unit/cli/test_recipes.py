"""The recipes of public benchmarks: planned without data, in the sizes that they name."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra

from neo.cli.plan import plan
from neo.config.store import register

GIB = 2**30


@pytest.mark.parametrize(
    ("recipe", "rows", "dim", "ids", "gib"),
    [("criteo_kaggle", 33_762_577, 16, 26, (2.1, 2.2)), ("mlperf_dlrm_dcnv2", 204_184_588, 128, 214, (194, 196))],
)
def test_a_recipe_plans_without_data(
    recipe: str, rows: int, dim: int, ids: int, gib: tuple[float, float], tmp_path: Path
) -> None:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_module("neo.conf", version_base="1.3"):
        config = compose("config", overrides=[f"+recipes={recipe}", "hardware=zionex"])
    assert (sum(config.model.num_embeddings), sum(config.model.pooling_factors)) == (rows, ids)
    assert (len(config.model.num_embeddings), config.data.global_batch_size) == (26, 65_536)
    assert plan(config, tmp_path) == 0
    memory = json.loads((tmp_path / "estimate.json").read_text())["memory"]
    weights = sum(rank["hbm"]["weights"] for rank in memory)
    copies = weights - rows * dim * 4
    assert 0 <= copies < 2**20  # tiny tables are kept on every rank
    assert gib[0] < (weights + sum(rank["hbm"]["optimizer"] for rank in memory)) / GIB < gib[1]

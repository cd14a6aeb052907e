"""``plan.py``: what it prints and writes, its exit codes, and that it imports no torch."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def _plan(run_dir: Path, *overrides: str) -> "subprocess.CompletedProcess[str]":
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from neo.cli.main import main\n"
        "code = main(['plan', *sys.argv[1:]])\n"
        "heavy = sorted({'torch', 'lightning', 'fbgemm_gpu'} & set(sys.modules))\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", script, f"hydra.run.dir={run_dir}", *overrides],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_plan_for_the_named_machine(tmp_path: Path) -> None:
    done = _plan(tmp_path, "model.num_embeddings=[1000,2000]", "hardware.num_nodes=2", "trainer.devices=4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("planned for: 16 ZionEX accelerators\n")
    assert "trainer.devices=4 changes no plan of a machine: write hardware.accelerators_per_node=… and" in done.stdout
    assert {"resolved.yaml", "plan.json", "estimate.json"} <= {path.name for path in tmp_path.iterdir()}
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert (plan["version"], plan["world_size"], plan["local_world_size"]) == (1, 16, 8)
    assert len(plan["tables"]) == 2
    assert all(key.startswith("model.embeddings.") for key in plan["tables"])
    estimate = json.loads((tmp_path / "estimate.json").read_text())
    assert estimate["feasible"] is True
    assert len(estimate["memory"]) == 16
    assert estimate["memory"][0]["hbm"]["capacity"] == 40 * 2**30
    assert "iteration_time_s" not in estimate
    assert "global_batch_size: 8192" in (tmp_path / "resolved.yaml").read_text()


def test_an_infeasible_plan_exits_3_and_says_why(tmp_path: Path) -> None:
    done = _plan(tmp_path, "model.num_embeddings=[100000000,100000000]", "model.embedding_dim=2048")
    assert done.returncode == 3
    estimate = json.loads((tmp_path / "estimate.json").read_text())
    assert estimate["feasible"] is False
    assert estimate["reason"] in done.stderr
    assert "sparse_0" in estimate["reason"] or "sparse_1" in estimate["reason"]
    assert not (tmp_path / "plan.json").exists()
    assert estimate["shortage"]["tier"] == "hbm"
    assert estimate["shortage"]["capacity_per_rank"] == 40 * 2**30
    assert estimate["shortage"]["needed_on_one_rank"] > 40 * 2**30
    assert estimate["shortage"]["all_ranks"] == 8 * 40 * 2**30
    assert estimate["shortage"]["all_tables"] > 8 * 40 * 2**30


def test_a_list_of_tables_is_keyed_by_bare_names(tmp_path: Path) -> None:
    tables = tmp_path / "tables.csv"
    tables.write_text("name,rows,dim,pooling\nuser,1000,16,1\nitem,500,8,20\n")
    done = _plan(tmp_path / "run", "model=table_list", f"model.path={tables}", "hardware=planner_bench")
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert sorted(plan["tables"]) == ["item", "user"]


def test_a_plan_is_read_back_and_scored(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert _plan(first, "model.num_embeddings=[1000,2000]").returncode == 0
    given = ["sharding=file", f"sharding.path={first / 'plan.json'}"]
    assert _plan(second, "model.num_embeddings=[1000,2000]", *given).returncode == 0
    assert (first / "plan.json").read_text() == (second / "plan.json").read_text()
    other = _plan(second, "model.num_embeddings=[1000,2000]", "hardware.num_nodes=2", *given)
    assert other.returncode == 2
    assert "world_size" in other.stderr
    assert not (second / "plan.json").exists()


def test_data_that_cannot_be_read_exits_1(tmp_path: Path) -> None:
    data = tmp_path / "clicks.csv"
    data.write_text("label,color\n1,red\n0\n")
    done = _plan(tmp_path / "run", "data=csv", f"data.path={data}", "data.label=label", "data.categorical=[color]")
    assert done.returncode == 1
    assert "clicks.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_report_says_the_way_of_the_exchange_and_what_has_no_effect(tmp_path: Path) -> None:
    nodes = ("hardware.num_nodes=2", "model.num_embeddings=[100000,100000]", "sharding=row_wise")
    said = "Note: the exchange is hierarchical: within each of 2 nodes first, then between them."
    assert said in _plan(tmp_path, *nodes).stdout
    assert said not in _plan(tmp_path, *nodes, "comms.exchange=flat").stdout
    done = _plan(tmp_path, "hardware.accelerators_per_node=1", "comms.forward=fp16")
    assert "Note: comms.forward: fp16 has no effect: one rank sends nothing" in done.stdout
    told = json.loads((tmp_path / "estimate.json").read_text())["fallbacks"]
    assert told == ["comms.forward: fp16 has no effect: one rank sends nothing"]

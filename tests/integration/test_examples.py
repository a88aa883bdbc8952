"""The examples do what they say, each in one command, with a broker of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
import ray
from waiting import slow_s

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    environment = {k: v for k, v in os.environ.items() if k != "BOOTSTRAP"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=slow_s(240))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.ray
def test_the_revenue_is_the_same_from_ray_and_from_spark(ray_local, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    shown = run("revenue_pipeline.py")
    assert "The same 19,821 rows from both." in shown
    assert "The same 4 dead letters from both." in shown
    assert "|     DE|  4977|1005097.12|" in shown


@pytest.mark.slow
def test_windows_of_the_first_run_come_out_in_the_second():
    shown = run("spark_structured_streaming.py")
    assert "run 1: SparkStatus(state='finished'" in shown
    assert "|1970-01-01 01:00:00|     DE|" in shown


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("arguments", [[], ["--spark"]], ids=["ray", "spark"])
def test_a_trained_model_scores_a_topic_on_either_engine(arguments):
    shown = run("model_scoring.py", *arguments)
    assert "accuracy on held-out orders: 0.825" in shown
    assert "19,996 orders scored" in shown


@pytest.mark.slow
@pytest.mark.ray
def test_workers_come_for_a_burst_and_go_again():
    shown = run("autoscale.py")
    assert "    1 → 4 workers: lag " in shown
    assert re.search(r"lag +[\d,]+  ([4-8]) of \1 workers", shown)
    assert re.search(r"    [4-8] → 1 workers: ", shown)
    assert re.search(r"scored 30,500 orders\ngeneration of the Kafka group: (\d+) before, \1 after\n", shown)


@pytest.mark.slow
@pytest.mark.ray
def test_an_engine_is_fed_record_by_record_and_in_batches():
    shown = run("model_queue.py")
    assert re.search(r"record by record: 1,200 prompts in [\d.]+ s\n", shown)
    assert re.search(r"batch after batch: 1,200 prompts in [\d.]+ s\n", shown)
    assert "times as fast record by record" in shown


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom_and_shows_tables():
    notebook = nbformat.read(EXAMPLES / "pipeline.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=slow_s(200), kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    shown = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("before rows enter the JVM" in output for output in shown)
    assert any("<td>o-1</td>" in output and "<td>24.5</td>" in output for output in shown)
    assert any("<td>finished</td>" in output and "<td>10,000</td>" in output for output in shown)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.kafka
def test_history_and_live_are_in_files_once(tmp_path):
    shown = run("backfill_then_live.py", str(tmp_path))
    assert "live on Ray" in shown
    assert "22000 orders in files, 22000 different ones" in shown

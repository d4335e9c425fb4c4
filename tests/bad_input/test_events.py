"""Wrong events, statistics, KPIs and rewards: one message that names the component, wherever the environment lives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import FIT, require_only_evidence, tree

pytestmark = pytest.mark.filterwarnings("ignore")

DEPOT = "tests.events.depot"
SALES = {"class_path": f"{DEPOT}.SalesReward"}
TABLE: list[tuple[str, list[str]]] = [
    ("wrong_argument", ["FireEvents.burnt()", "'aera'", "burnt(area: 'float')"]),
    ("failing_step", ["step statistic None of StepEvents.burnt", "input_name='area'", "IndexError: list index"]),
    ("text", ["episode statistic None of TextEvents.burnt", "could not convert string to float: 'much'"]),
    ("nothing", ["epoch statistic 'total' of EpochEvents.burnt", "TypeError", "NoneType"]),
    ("unknown_input", ["InputEvents.burnt", "input_name='totl'", "['total']"]),
    ("unknown_attribute", ["AttributeEvents.burnt", "input_name='size'", "['area']"]),
    ("two_topics", ["InventoryEvents", "broken_events", "tests.events.depot", "rename one"]),
    ("bad_kpi", ["KPI 'usage' is nan", "omit"]),
    ("bad_reward", ["environment 0", "step of BadRewardEnv returned the reward inf", "not finite"]),
]


def refused(project: Path, capsys: pytest.CaptureFixture[str], env: dict[str, Any], vectorization: str) -> str:
    before = tree(project)
    options = ["--data.env", json.dumps(env), "--data.vectorization", vectorization]
    status = main([*FIT, *options])
    error = capsys.readouterr().err
    assert status == 2, error
    assert "Traceback" not in error
    assert error.count("maze-pl: error: ") == 1
    require_only_evidence(before, project)
    message = error.partition("maze-pl: error: ")[2]
    assert len(message.splitlines()) == 1
    return message


SLOW = pytest.mark.slow
WORKERS = [
    pytest.param("subprocess", *row, id=f"{row[0]}-subprocess", marks=[pytest.mark.long] * (row[0] != "failing_step"))
    for row in TABLE
]
CASES = [pytest.param("sequential", *row, id=f"{row[0]}-sequential") for row in TABLE]


@pytest.mark.slow
@pytest.mark.parametrize(("vectorization", "name", "parts"), [*CASES, *WORKERS])
def test_what_is_wrong_about_events_is_said_in_one_message(
    project: Path, capsys: pytest.CaptureFixture[str], vectorization: str, name: str, parts: list[str]
) -> None:
    message = refused(project, capsys, {"class_path": f"tests.bad_input.broken_events.{name}"}, vectorization)
    for part in parts:
        assert part in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init_args", "parts", "vectorization"),
    [
        ({}, ["aggregator 'storage' (StorageReward) is nan"], "sequential"),
        pytest.param({}, ["aggregator 'storage' (StorageReward) is nan"], "subprocess", marks=SLOW),
        ({"weights": {"storrage": 1.0}}, ["'storrage'", "['sales', 'storage']"], "sequential"),
    ],
)
def test_a_combined_reward_names_the_part_that_is_wrong(
    project: Path, capsys: pytest.CaptureFixture[str], init_args: dict[str, Any], parts: list[str], vectorization: str
) -> None:
    broken = {"class_path": f"{DEPOT}.StorageReward", "init_args": {"broken_at": 3}}
    combined = {"aggregators": {"sales": SALES, "storage": broken}, **init_args}
    aggregator = {"class_path": "maze_pl.envs.WeightedRewardAggregator", "init_args": combined}
    env = {"class_path": f"{DEPOT}.make_depot", "init_args": {"reward_aggregator": aggregator}}
    message = refused(project, capsys, env, vectorization)
    for part in parts:
        assert part in message

"""Descriptions of the statistics that algorithms record: each has one, and the page on diagnostics names it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from maze_pl.modules import A2C, IMPALA, PPO
from maze_pl.modules.described_statistics import DESCRIPTIONS
from tests.modules.kit import train_table

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

PAGE = Path(__file__).parents[2] / "docs" / "diagnostics.md"
SOURCES = Path(__file__).parents[2] / "maze_pl"
RECORDING = ("record", "coefficient", "optional_coefficient", "value_at")
MEASURES = "measures"  # dicts of numbers that data modules pass on to be recorded


def named_in(tree: ast.AST) -> Iterator[str]:
    """Names of statistics in a source file: of `record`, of options with schedules, and of dicts of data modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if name in RECORDING and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(one, "attr", None) == MEASURES for one in targets):
                yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))


def test_every_statistic_has_one_line_and_stands_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, text in DESCRIPTIONS.items():
        assert "\n" not in text
        assert len(text) <= 100, name
        assert f"`{name}`" in page, name


def test_every_name_that_algorithms_and_data_modules_record_is_described() -> None:
    names: set[str] = set()
    for folder in ("modules", "datamodules"):
        for path in sorted((SOURCES / folder).rglob("*.py")):
            names.update(named_in(ast.parse(path.read_text(encoding="utf-8"))))
    assert {"best_return", "priority_alpha", "value_clip_range", "target_entropy_multiplier", "td_error"} <= names
    names.remove("lr")  # recorded as learning_rate
    assert sorted(names - set(DESCRIPTIONS)) == []


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA])
def test_what_is_recorded_is_described(kit: SimpleNamespace, algorithm: Any) -> None:
    options = {"batch_size": 40, "target_kl": 1.0} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(), capture="off", **options)
    kit.fit(module, length=1)
    described = module.described_statistics()
    for name in train_table(module):
        topic, event, *_ = name.split("/")
        assert topic != module.topic or f"{topic}/{event}" in described, name


def test_custom_algorithms_describe_their_own_statistics(kit: SimpleNamespace) -> None:
    class First(A2C):
        topic = "OwnEvents"
        statistics: ClassVar[Mapping[str, str]] = {"size": "its size", "rho": "something else"}

    class Second(First):
        statistics: ClassVar[Mapping[str, str]] = {"width": "its width"}

    described = Second(actor_critic=kit.make_actor_critic()).described_statistics()
    assert described["OwnEvents/size"] == "its size"
    assert described["OwnEvents/rho"] == "something else"
    assert described["OwnEvents/width"] == "its width"
    assert described["OwnEvents/policy_loss"].startswith("loss of the policy")
    assert described["OwnEvents/value_loss"] == "loss of the estimated values"

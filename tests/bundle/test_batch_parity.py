"""Batches of a bundle are compared with its single decisions; networks that decide nothing are named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.bundle.batch_parity import require_equal_batches
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.parity import Parity, require_parity
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import DiscretizeActionsWrapper, ObservationStackWrapper
from maze_pl_runtime import Decision, Policy
from tests.bundle.written_policies import Written

PENDULUM = partial(GymMazeEnv, "Pendulum-v1")
DISCRETE = partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 7}})
STACKED = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("bundles") / "agent.bundle", PENDULUM, [DISCRETE, STACKED])


@pytest.fixture(scope="module")
def decisions(written: Written) -> list[Any]:
    return recorded_decisions(written.env, written.policy, written.parts.roles, 2, 20, 0)


class OfTheFirstRow(Policy):
    """Takes the decision of the first row in all rows of a batch."""

    def decide(self, *arguments: Any, **options: Any) -> Decision:
        decision = super().decide(*arguments, **options)
        if decision.action["action"].ndim == 2:
            for values in (decision.action, decision.parameters):
                for name, array in values.items():
                    values[name] = array[:1].repeat(len(array), axis=0)
        return decision


class WithTheFirstNumbers(Policy):
    """Samples all rows of a batch with the uniform numbers of the first row."""

    def decide(self, *arguments: Any, uniforms: Any = None, **options: Any) -> Decision:
        if np.ndim(uniforms) == 2:
            uniforms = uniforms[:1].repeat(len(uniforms), axis=0)
        return super().decide(*arguments, uniforms=uniforms, **options)


class Counting(Policy):
    """Counts its decisions."""

    n_calls = 0

    def decide(self, *arguments: Any, **options: Any) -> Decision:
        self.n_calls += 1
        return super().decide(*arguments, **options)


def test_a_batch_that_is_decided_differently_is_refused(written: Written, decisions: list[Any]) -> None:
    graphs = written.parts.graphs
    bundle = Counting.load(written.path)
    parity, singles = require_parity(bundle, written.policy, graphs, decisions, 0)
    assert (parity.decisions, parity.untested) == (40, [])
    assert bundle.n_calls == 2 * 40
    require_equal_batches(parity, bundle, graphs, singles)
    assert bundle.n_calls == 2 * 40 + 2
    message = (
        r"in a batch as it does one by one: a batch of 32 decisions of sub-step 0, row \d+: parameters of 'action'"
    )
    with pytest.raises(ExportError, match=message):
        require_equal_batches(Parity(2, 40), OfTheFirstRow.load(written.path), graphs, singles)


def test_a_batch_that_is_sampled_differently_is_refused(written: Written, decisions: list[Any]) -> None:
    graphs = written.parts.graphs
    wrong = WithTheFirstNumbers.load(written.path)
    parity, singles = require_parity(wrong, written.policy, graphs, decisions, 0)
    message = r"a batch of 32 sampled decisions of sub-step 0, row \d+: action 'action' differs"
    with pytest.raises(ExportError, match=message):
        require_equal_batches(parity, wrong, graphs, singles)


def test_sub_steps_without_a_decision_are_named(written: Written, decisions: list[Any], tmp_path: Path) -> None:
    graphs: Any = {**written.parts.graphs, "never": written.parts.graphs[0]}
    parity, singles = require_parity(Policy.load(written.path), written.policy, graphs, decisions, 0)
    assert parity.untested == ["sub-step 'never'"]
    require_equal_batches(parity, Policy.load(written.path), graphs, singles)

"""What an environment in tensors returns and changes is checked in the first rollout, on any device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.events.topics import StatisticsError
from maze_pl.modules import PPO
from tests.devices import DEVICES

N_ENVS, FIRST = 3, 10


class Faulty(TensorEnv):
    """Two sub-steps, and one fault.

    Attributes:
        fault: Name of the fault, "" for none.
    """

    def __init__(self, fault: str = "") -> None:
        super().__init__(max_episode_steps=6)
        self.fault = fault
        self.unit = torch.ones(())
        self.day = 0
        self.missing = math.nan
        self.counts = [0, {"n": 0}]

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        place = spaces.Box(-1e3, 1e3, (2,))
        return {"a": spaces.Dict({"place": place, "kind": spaces.Discrete(5)}), "b": spaces.Dict({"place": place})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {key: spaces.Dict({"way": spaces.Discrete(2)}) for key in ("a", "b")}

    @property
    def kpi_names(self) -> tuple[str, ...]:
        return ("level",)

    def make_tensors(self, n_envs: int) -> None:
        self.level = torch.zeros(n_envs, device=self.device)
        self.parts = {"one": [torch.zeros(n_envs, device=self.device)]}
        self.table = SimpleNamespace(inner=SimpleNamespace(constant=torch.ones(2, device=self.device)), day=0)
        self.table.latest = None

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.level.masked_fill_(which, 0.0)
        self.table.begun = getattr(self.table, "begun", 0)
        if self.fault == "n_steps in begin":
            self.n_steps.masked_fill_(which, 0)
        if self.fault == "replaced in begin":
            self.level = torch.where(which, 0.0, self.level)

    def observe(self, step_key: Any) -> dict[str, Any]:
        place = torch.stack([self.level, self.level], 1)
        kind: Any = torch.zeros_like(self.level, dtype=torch.int64)
        if self.fault == "n_steps in observe":
            self.n_steps.clamp_(max=5)
        if self.fault == "missing":
            return {"place": place}
        if self.fault == "undeclared":
            return {"place": place, "kind": kind, "more": kind}
        if self.fault == "shape" and step_key == "b":
            place = place[:, :1]
        if self.fault == "dtype":
            kind = kind.float()
        if self.fault == "array":
            kind = np.zeros(N_ENVS, np.int64)
        return {"place": place, "kind": kind} if step_key == "a" else {"place": place}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Any:
        self.level.add_(1.0)
        if self.fault == "new":
            self.last = action["way"].clone()
        elif self.fault == "replaced":
            self.level = self.level + 1
        elif self.fault == "replaced part":
            self.parts["one"][0] = self.level.clone()
        elif self.fault == "removed":
            self.parts.clear()
        elif self.fault == "n_steps":
            self.n_steps.add_(1)
        elif self.fault == "number":
            self.day += 1
        elif self.fault == "number in a list":
            self.counts[0] += 1
        elif self.fault == "number in a dict":
            self.counts[1]["n"] += 1
        elif self.fault == "number in an object":
            self.table.inner.day = self.table.day = self.table.day + 1
        elif self.fault == "number made in begin":
            self.table.begun += 1
        elif self.fault == "number in place of None":
            self.table.latest = 1
        elif self.fault == "option":
            self.unit.mul_(2.0)
        elif self.fault == "helper":
            self.table.inner.constant.add_(1.0)
        elif self.fault == "replaced helper":
            self.table.inner.constant = torch.zeros(2, device=self.device)
        if self.fault == "no outcome":
            return self.level
        if self.fault == "reward":
            return Outcome(self.level[:, None])
        terminated = self.level >= 6
        if step_key == "a":
            return Outcome(self.level, (self.level > 2) & self._is_second() if self.fault == "early" else None)
        return Outcome(self.level, terminated.long() if self.fault == "flags" else terminated)

    def _is_second(self) -> Tensor:
        return torch.arange(N_ENVS, device=self.device) == 1

    def kpi_tensors(self) -> dict[str, Tensor]:
        if self.fault == "undeclared KPI":
            return {"level": self.level, "height": self.level}
        if self.fault == "no KPI":
            return {}
        return {"level": self.level[None]} if self.fault == "shape of KPI" else {"level": self.level}


def collector_of(fault: str, device: str = "cpu", records: bool | None = None) -> tuple[TensorCollector, Any]:
    """A collector with a policy for its environments."""
    spec = Spec.of(Faulty())
    torch.manual_seed(0)
    vector = TensorVector(Faulty(fault), N_ENVS, spec, torch.device(device), seed=3, first_env_index=FIRST)
    return TensorCollector(vector, 4, torch.Generator(device).manual_seed(1), records), PPO(spec=spec).policy.to(device)


FAULTS = {
    "missing": r"the observations of sub-step 'a' of Faulty are \['place'\]; expected \['kind', 'place'\] by name",
    "undeclared": r"sub-step 'a' of Faulty are \['kind', 'more', 'place'\]; expected \['kind', 'place'\] by name",
    "n_steps": r"act of Faulty changes n_steps, in which its steps are counted already: count in another tensor",
    "n_steps in begin": r"begin or observe of Faulty changes n_steps, in which its steps are counted already: count in",
    "n_steps in observe": r"begin or observe of Faulty changes n_steps",
    "number": r"Faulty changes its number 'day' in begin, observe or act, which checkpoints do not hold and graphs do",
    "number in a list": r"Faulty changes a number or text in 'counts' in begin, observe or act, which checkpoints do",
    "number in a dict": r"Faulty changes a number or text in 'counts.1' in",
    "number in an object": r"Faulty changes a number or text in 'table.day' in",
    "number made in begin": r"Faulty changes a number or text in 'table.begun' in",
    "number in place of None": r"Faulty changes a number or text in 'table.latest' in",
    "shape": r"observation 'place' of sub-step 'b' of Faulty is a tensor of shape \(3, 1\) and type torch.float32 on "
    r"\w+; expected a tensor of shape \(3, 2\) on \w+, with",
    "dtype": "observation 'kind' of sub-step 'a' of Faulty is .*torch.float32 on .*expected .*torch.int64",
    "array": r"observation 'kind' of sub-step 'a' of Faulty is an array of shape \(3,\) and type int64; expected",
    "no outcome": "act in sub-step 'a' of Faulty returned .* of type Tensor; expected an Outcome",
    "reward": r"the reward of sub-step 'a' of Faulty is a tensor of shape \(3, 1\) .*expected a tensor of shape \(3,\)",
    "flags": "terminated of sub-step 'b' of Faulty is .*torch.int64 on .*expected .*torch.bool",
    "shape of KPI": r"KPI 'level' of Faulty is a tensor of shape \(1, 3\)",
    "new": r"Faulty made its tensor 'last' in begin, observe or act: make it in make_tensors, and change it in place",
    "replaced": "Faulty replaced its tensor 'level' in begin, observe or act: change it in place, by copy_",
    "replaced in begin": "Faulty replaced its tensor 'level' before the first step: change it in place",
    "replaced part": r"Faulty replaced its tensor 'parts.one.0' in begin, observe or act",
    "removed": r"Faulty removed its tensor 'parts.one.0' in begin, observe or act: keep it",
    "helper": r"Faulty changes the tensor 'table.inner.constant', which is not saved in checkpoints: make it an attr",
    "replaced helper": r"Faulty changes the tensor 'table.inner.constant'",
    "option": r"Faulty changes its tensor 'unit', which its constructor made, so that checkpoints do not hold it: make",
    "early": r"sub-step 'a' of Faulty ended the episode of environment 11; only the last sub-step of an environment "
    "step may end episodes: keep the flag",
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused_with_their_names(fault: str, device: str) -> None:
    for records in (False, True):
        collector, policy = collector_of(fault, device, records)
        with pytest.raises(EnvContractError, match=FAULTS[fault]):
            len(collector.collect(policy).summaries)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("undeclared KPI", r"Faulty computes the KPI 'height': add it to kpi_names, which has \('level',\)"),
        ("no KPI", r"Faulty declares the KPIs \['level'\] in kpi_names, but kpi_tensors does not compute them"),
    ],
)
def test_kpis_other_than_those_declared_are_refused(fault: str, message: str) -> None:
    collector, policy = collector_of(fault)
    with pytest.raises(StatisticsError, match=message):
        collector.collect(policy)


@pytest.mark.parametrize("device", DEVICES)
def test_the_trial_step_leaves_no_trace(device: str) -> None:
    collector, policy = collector_of("", device)
    rollout = collector.collect(policy)
    level = [0.0, 2.0, 4.0, 0.0]  # two acts in each step, and an end at 6
    assert rollout.segments["a"].observation["place"][:, 0, 0].tolist() == level
    assert rollout.segments["a"].is_first[:, 0].tolist() == [True, False, False, True]
    assert [(one.episode_index, one.env_steps, one.reward) for one in rollout.summaries] == [(0, 3, 21.0)] * N_ENVS


def test_a_number_that_stays_nan_has_not_changed() -> None:
    collector, policy = collector_of("")
    assert math.isnan(collector.env.missing)
    collector.collect(policy)


def test_objects_that_refer_to_each_other_are_searched_for_tensors_once() -> None:
    collector, policy = collector_of("helper")
    collector.env.table.itself = collector.env.table
    collector.env.table.env = collector.env
    with pytest.raises(EnvContractError, match=r"changes the tensor 'table.inner.constant'"):
        collector.collect(policy)

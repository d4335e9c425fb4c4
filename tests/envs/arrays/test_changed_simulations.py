"""Wrappers that change the simulation, around episodes of array environments."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import pytest
import torch

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import CartPoleArrayEnv, PendulumArrayEnv, Wrapper
from maze_pl.envs.arrays import ArrayMazeEnv, ArrayStep, GymVectorArrayEnv
from maze_pl.envs.arrays.closed_attributes import NewAttributeWarning
from maze_pl.envs.contract import EnvContractError
from maze_pl.runs.rollout import rollout
from tests.envs.arrays.walks import PriceOfSimulationWrapper, PriceWrapper, WalkArrayEnv, make_walk

FORMS = {"single": make_walk, "arrays": WalkArrayEnv}
LEVEL = {"merged": 45, "added": 0}  # at which the price is 3
RETURN = 3.0 * (5 * 2 + 5 * 1)
KNOWN, UNKNOWN = (f"{kind.__module__}.{kind.__qualname__}" for kind in (PriceWrapper, PriceOfSimulationWrapper))


class Alternating:
    """Moves up at odd places, and thus in every other step."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        places = torch.as_tensor(batch.observation["observation"])[:, 0]
        return PolicyStep({"action": (places % 2).long()})


def _rewards(make: Any, wrappers: list[Any], name: str) -> list[float]:
    options: Any = {"wrappers": wrappers, "wrapper_statistics": {name: LEVEL}, "record": ()}
    return [one.summary.reward for one in rollout(make, Alternating(), 6, seed=2, **options)]


@pytest.mark.parametrize("form", FORMS)
def test_rollouts_and_evaluations_play_at_the_level_of_training(form: str) -> None:
    assert _rewards(FORMS[form], [PriceWrapper], KNOWN) == [RETURN] * 6
    evaluators = {"eval": RolloutEvaluator(n_episodes=6, n_envs=3)}
    data = RolloutDataModule(FORMS[form], wrappers=[PriceWrapper], n_envs=2, evaluators=evaluators, seed=1)
    summaries = data.evaluate("eval", Alternating(), {KNOWN: LEVEL}).summaries
    assert [one.reward for one in summaries] == [RETURN] * 6


@pytest.mark.parametrize(("owner", "kind"), [("core_env", "ArrayCoreEnv"), ("environment", "ArrayMazeEnv")])
def test_attributes_of_the_adapter_that_nothing_reads_are_refused(owner: str, kind: str) -> None:
    wrapper = partial(PriceOfSimulationWrapper, owner=owner)
    message = f"{kind} has no attribute 'price'.* change nothing; .* attributes of `core_env.env.unwrapped`"
    with pytest.raises(EnvContractError, match=message):
        _rewards(WalkArrayEnv, [wrapper], UNKNOWN)
    assert _rewards(make_walk, [wrapper], UNKNOWN) == [RETURN] * 6


def test_attributes_that_the_array_environment_lacks_are_warned_of() -> None:
    wrapper = partial(PriceOfSimulationWrapper, owner="inside")
    message = "a wrapper has given 'price' to WalkArrayEnv, which had no such attribute: this changes nothing unless"
    with pytest.warns(NewAttributeWarning, match=message):
        _rewards(WalkArrayEnv, [wrapper], UNKNOWN)


class SelfMade(WalkArrayEnv):
    """Makes attributes when they are needed, inside and outside of its steps."""

    @cached_property
    def action_spaces_dict(self) -> Any:
        return super().action_spaces_dict

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.latest = actions[0]["action"].copy()
        return super().step(actions, which)


def test_attributes_that_the_array_environment_makes_itself_are_not_warned_of() -> None:
    env = ArrayMazeEnv(SelfMade())
    vars(env.array_env).pop("action_spaces_dict", None)
    env.reset(seed=1)
    for _ in range(2):
        env.step({"action": env.array_env.action_spaces_dict[0]["action"].start})


class HeavierPole(Wrapper):
    """Changes gymnasium's CartPole as the page on wrappers says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.env.core_env.env.unwrapped.masspole = 2.0
        return self.env.reset(seed=seed, options=options)


@pytest.mark.parametrize("make", [CartPoleArrayEnv, PendulumArrayEnv, partial(GymVectorArrayEnv, "CartPole-v1")])
def test_array_forms_of_gymnasium_environments_refuse_attributes_of_the_latter(make: Any) -> None:
    env = HeavierPole.wrap(ArrayMazeEnv(make()))
    with pytest.raises(EnvContractError, match="has no attribute 'masspole', and setting it would change nothing; "):
        env.reset(seed=0)
    env.close()


def test_present_attributes_and_those_of_subclasses_can_be_set() -> None:
    class Described(PendulumArrayEnv):
        """Has a further attribute, which it makes after the others."""

        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.place = "Paris"

    for kind in (PendulumArrayEnv, Described):
        plain, heavy = ArrayMazeEnv(kind()), ArrayMazeEnv(kind())
        heavy.array_env.gravity = 20.0  # type: ignore[attr-defined]
        for env in (plain, heavy):
            env.reset(seed=3)
        first, second = (env.step({"action": [0.0]})[0]["observation"] for env in (plain, heavy))
        assert first.tolist() != second.tolist()

"""Episodes that do not end are named once, instead of being waited for in silence."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from maze_pl.collect.episodes import play_episodes
from maze_pl.collect.population_worker import PopulationWorker
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.population import NoiseTable
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.runs.rollout import rollout
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift

N_ACTS = 20
REMEDY = "TimeLimitWrapper (--data.wrappers+ TimeLimitWrapper --data.wrappers.max_episode_steps 1000)"


class Longer(Drift):
    """Episodes of one act more than are waited for in silence."""

    length = N_ACTS + 1

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == self.length, False, info


class AsLong(Longer):
    length = N_ACTS


@pytest.fixture(autouse=True)
def few_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("endless_episodes", "episodes", "population_worker"):
        monkeypatch.setattr(f"maze_pl.collect.{module}.MANY_ACTS", N_ACTS)


def vector_of(kind: Any, n_envs: int = 3) -> SequentialVectorEnv:
    make = partial(make_wrapped, lambda: GymMazeEnv(kind()), [])
    return SequentialVectorEnv([make] * n_envs, seed=4, autoreset=False, seed_by_env=False)


@pytest.mark.parametrize(("kind", "told"), [(Longer, [3]), (AsLong, [])])
def test_only_episodes_that_have_not_ended_are_counted(kind: Any, told: list[int]) -> None:
    vector = vector_of(kind)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    numbers: list[int] = []
    play_episodes(vector, policy, range(3), deterministic=True, on_many_acts=numbers.append)
    assert numbers == told


def test_an_evaluation_names_itself_and_the_remedy_once(capsys: pytest.CaptureFixture[str]) -> None:
    vector = vector_of(Longer)
    policy: Any = RandomPolicy({0: vector.spec.steps[0].action_space})
    worker = RolloutWorker(3, {"held_out": (lambda: vector, False)}, policy, 0, 0)
    for _ in range(2):
        worker.play("held_out", range(3), {})
    worker.close()
    fact = "maze-pl: evaluation 'held_out': 3 episodes have not ended after 20 acts"
    limit = "'{class_path: TimeLimitWrapper, init_args: {max_episode_steps: 1000}}'"
    other = f"if this evaluator has other wrappers, by --data.evaluators.held_out.wrappers+ {limit}"
    assert capsys.readouterr().err == f"{fact}; if episodes may never end, limit them by {REMEDY}; {other}\n"


def test_episodes_of_a_population_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    training = [partial(vector_of, Longer, 1)]
    worker = PopulationWorker(7, {}, Counter(), 0, 0, training=training, noise=NoiseTable(1, 1000), deterministic=True)
    while worker.play_perturbed(0, 0, 0.5, {}) is None:
        pass
    worker.close()
    assert capsys.readouterr().err.startswith("maze-pl: training: 1 episode has not ended after 20 acts; ")


@pytest.mark.parametrize("max_steps", [0, 100])
def test_a_rollout_tells_of_episodes_without_a_limit(max_steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    rollout(lambda: GymMazeEnv(Longer()), "random", episodes=2, max_steps=max_steps)
    fact = "maze-pl: 2 episodes have not ended after 20 acts"
    expected = f"{fact}; if episodes may never end, limit them by max_steps (--max_steps 1000)\n"
    assert capsys.readouterr().err == ("" if max_steps else expected)

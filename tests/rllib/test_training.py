"""Training with RLlib: what continues in a new run, and in the place of a worker that has died."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper
from maze_pl.rllib.environment_source import EnvironmentSource
from maze_pl.rllib.training_env import TrainingEnv

# RLlib takes seconds to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

N_ENVS, N_STEPS = 2, 40


@pytest.mark.parametrize("n_steps", [0, 500])
def test_a_learner_that_continues_has_the_learning_rate_and_entropy_coefficient_of_the_options(n_steps: int) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig

    from maze_pl.rllib.training import _continue_schedules

    def learner_of(lr: Any, entropy_coeff: Any) -> Any:
        config = PPOConfig().training(lr=lr, entropy_coeff=entropy_coeff)
        pair = (spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2))
        modules = config.get_multi_rl_module_spec(spaces={"__env_single__": pair, "default_policy": pair})
        learner = config.get_default_learner_class()(config=config, module_spec=modules)
        learner.build()
        return learner

    earlier, learner = learner_of(0.5, 0.0), learner_of(0.125, [[0, 0.2], [1000, 0.0]])
    learner.set_state({"optimizer": earlier.get_state()["optimizer"]})
    optimizer = learner.get_optimizer("default_policy")
    assert learner._get_optimizer_lr(optimizer) == 0.5  # of the earlier run
    _continue_schedules(n_steps, learner)
    assert learner._get_optimizer_lr(optimizer) == 0.125
    coefficient = learner.entropy_coeff_schedulers_per_module["default_policy"].get_current_value()
    assert float(coefficient) == pytest.approx(0.2 * (1 - n_steps / 1000))


def make_env() -> Any:
    return make_wrapped(partial(GymMazeEnv, "CartPole-v1"), [ReturnNormalizationRewardWrapper])


def stepped(env: TrainingEnv) -> list[float]:
    """Play some steps with the same actions in each episode; return the first numbers of the episodes."""
    first = [float(env.reset()["observation"][0])]
    for step in range(N_STEPS):
        if env.step({"action": step % 2}).is_over:
            first.append(float(env.reset()["observation"][0]))
    return first


def training_with(envs: list[TrainingEnv], source: EnvironmentSource) -> Any:
    """A training whose algorithm only steps environments in this process."""
    from maze_pl.rllib import training

    class StepsOnly(training.RLlibTraining):
        def __init__(self) -> None:
            self._source = source
            self._next_episode = self._n_env_steps = self._n_merges = 0
            self._wrapper_statistics = source.wrapper_statistics
            self._has_workers, self._n_envs_of_worker = True, N_ENVS
            self._algorithm = SimpleNamespace(train=self.train)
            self._register_environments()

        def train(self) -> dict[str, Any]:
            for env in envs:
                stepped(env)
            return {}

        def _of_each_env(self, function: Callable[[Any], Any]) -> list[Any]:
            return [function(env) for env in envs]

        def _weights(self) -> dict[Any, dict[str, Any]]:
            return {}

        def _learner_statistics(self, result: Any) -> dict[Any, dict[str, float]]:
            return {}

        def _epsilon(self) -> None:
            return None

    return StepsOnly()


def made_by_rllib(env_index: int) -> TrainingEnv:
    """An environment as RLlib makes it for a worker that it starts."""
    from ray.tune.registry import ENV_CREATOR, _global_registry

    make = _global_registry.get(ENV_CREATOR, "maze_pl")
    made = [make(SimpleNamespace(worker_index=1)).training_env for _ in range(N_ENVS)]
    assert [env.env_index for env in made] == list(range(N_ENVS))
    found: TrainingEnv = made[env_index]
    return found


def test_an_environment_in_the_place_of_a_lost_one_continues_with_new_episodes_and_all_statistics() -> None:
    source = EnvironmentSource(make_env, Spec.of(make_env()), 3, {})
    envs = [TrainingEnv(make_env, source.spec, 3, index) for index in range(N_ENVS)]
    training = training_with(envs, source)
    merges: list[list[dict[str, Any]]] = []

    def merge(states: list[dict[str, Any]]) -> dict[str, Any]:
        merges.append(states)
        (name,) = states[0]
        return {name: ReturnNormalizationRewardWrapper.merge_shared_states([state[name] for state in states])}

    def n_returns(env: TrainingEnv) -> int:
        (state,) = env.report().wrapper_statistics.values()
        return int(state["base"][0] + state["delta"][0]) - 1  # without the first one of 0

    training.iterate(merge)
    assert [n_returns(env) for env in envs] == [N_ENVS * N_STEPS] * 2
    lost = made_by_rllib(1)  # restarted at once, but given nothing after the next iteration
    assert n_returns(lost) == N_ENVS * N_STEPS
    twin = TrainingEnv(make_env, source.spec, 3, 1)
    played = stepped(twin)
    assert not set(played) & set(stepped(lost))  # no episode is played again
    del envs[1]
    training.iterate(merge)
    envs.append(lost)
    training.iterate(merge)  # the lost one has added to statistics of an earlier iteration
    assert [len(states) for states in merges] == [2, 1, 1]
    assert [n_returns(env) for env in envs] == [(N_ENVS + 2) * N_STEPS] * 2
    training.iterate(merge)
    assert [n_returns(env) for env in envs] == [(N_ENVS + 4) * N_STEPS] * 2

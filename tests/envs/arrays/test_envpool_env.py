"""EnvPool's environments step as their pools do, without the transitions that only restart them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.__main__ import main
from maze_pl.envs import ArrayVectorEnv, GymVectorArrayEnv, make_envpool_env
from maze_pl.envs.arrays import EnvPoolVectorEnv
from maze_pl.envs.contract import EnvContractError

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")  # in pools made here
needs_envpool = pytest.mark.envpool
N = 3
SEEDS = np.array([11, 12, 13])


def cartpole(n_envs: int = N, **options: Any) -> GymVectorArrayEnv:
    env = make_envpool_env("CartPole-v1", num_threads=1, **options)
    env.allocate(n_envs)
    return env


@needs_envpool
def test_each_environment_starts_with_its_seed() -> None:
    import envpool

    together = cartpole().reset(np.arange(N), SEEDS).observation[0]["observation"]
    for seed, observation in zip(SEEDS, together, strict=True):
        alone = envpool.make_gymnasium("CartPole-v1", num_envs=1, seed=int(seed)).reset()[0][0]
        assert np.array_equal(observation, alone)
    env = cartpole()
    env.reset(np.arange(N), SEEDS + 5)
    assert np.array_equal(env.reset(np.arange(N), SEEDS).observation[0]["observation"], together)


@needs_envpool
def test_transitions_are_those_of_the_pool_but_for_restarts() -> None:
    import envpool

    env, pool = cartpole(), envpool.make_gymnasium("CartPole-v1", num_envs=N, seed=SEEDS.tolist())
    first = env.reset(np.arange(N), SEEDS).observation[0]["observation"]
    assert np.array_equal(first, pool.reset()[0])
    generator = np.random.default_rng(3)
    running, n_ends, n_restarts = np.ones(N, np.bool_), 0, 0
    for _ in range(200):
        actions = generator.integers(2, size=N)
        step = env.step({0: {"action": actions}}, np.flatnonzero(running))
        observation, reward, terminated, truncated, info = pool.step(np.where(running, actions, 0))
        for name, expected in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            assert np.array_equal(getattr(step, name)[running], expected[running]), name
        assert np.array_equal(step.observation[0]["observation"][running], observation[running])
        assert not info["elapsed_step"][~running].any()
        restarted = np.flatnonzero(~running)
        if len(restarted):
            start = env.reset(restarted, SEEDS[restarted]).observation[0]["observation"]
            assert np.array_equal(start[restarted], observation[restarted])
        ends = (terminated | truncated) & running
        n_ends, n_restarts = n_ends + int(ends.sum()), n_restarts + len(restarted)
        running = ~ends
        if not running.any():
            break  # all of them would be reset with new seeds
    assert n_ends >= n_restarts > 10


@needs_envpool
@pytest.mark.parametrize("name", ["LunarLander-v3", "CheetahRun-v1"])
def test_bounds_that_stand_for_none_are_infinite(name: str) -> None:
    env = make_envpool_env(name)
    for part in env.observation_spaces_dict[0].spaces.values():
        assert isinstance(part, spaces.Box)
        assert not part.bounded_below.any()
        assert not part.bounded_above.any()
    vector = ArrayVectorEnv(lambda: env, N, seed=2)
    vector.reset()
    for _ in range(3):
        vector.step()


@needs_envpool
def test_time_limits_truncate() -> None:
    env = make_envpool_env("Pendulum-v1", max_episode_steps=7)
    env.allocate(N)
    env.reset(np.arange(N), SEEDS)
    for number in range(1, 8):
        step = env.step({0: {"action": np.zeros((N, 1), np.float32)}}, np.arange(N))
        assert (np.asarray(step.truncated) == (number == 7)).all()
        assert not np.any(step.terminated)


@needs_envpool
def test_ppo_trains_and_what_it_saved_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data.env", "env/envpool", "--data.env.name", "Acrobot-v1", "--data.n_envs", "8"]
    data += ["--data.epoch_length", "1", "--data.evaluators.eval.n_episodes", "3"]
    assert main(["fit", "--config", "ppo_cartpole", *data, "--trainer.max_epochs", "1", "--run_dir", "run"]) == 0
    assert main(["rollout", "run", "--n_episodes", "2", "--runner", "sequential"]) == 0


@needs_envpool
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Cartpole-v1", {}, "EnvPool has no environment 'Cartpole-v1'; do you mean CartPole-v1 or"),
        ("qqqqqqqqqqqq", {}, "EnvPool has no environment 'qqqqqqqqqqqq'; .*list_all_envs"),
        ("CartPole-v1", {"gravity": 9.8}, r"EnvPool's CartPole-v1 has no options \['gravity'\]; it has \['base_path'"),
        ("CartPole-v1", {"batch_size": 4}, "batch_size=4 cannot be given .*all environments step together"),
        ("CartPole-v1", {"seed": 4}, "seed=4 cannot be given .*; set seed_everything"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_envpool_env(name, **options)


@needs_envpool
def test_results_in_another_order_are_refused() -> None:
    class Asynchronous:
        def step(self, actions: Any) -> Any:
            return np.zeros((N, 4)), *np.zeros((3, N)), {"env_id": np.array([2, 0, 1])}

        def close(self) -> None: ...

    env = EnvPoolVectorEnv("CartPole-v1", {}, N)
    env._pool = Asynchronous()
    with pytest.raises(
        EnvContractError, match=r"EnvPool's CartPole-v1 returned environments \[2 0 1\]; expected those"
    ):
        env.step(np.zeros(N, np.int32))


def test_the_error_without_envpool_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ImportError, match=r'CartPole-v1 needs EnvPool.*: pip install "maze-pl\[envpool\]"'):
        make_envpool_env("CartPole-v1")

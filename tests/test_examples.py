"""Every example runs."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, StructuredEnv
from maze_pl.envs.wrappers import ObservationStackWrapper
from maze_pl.perception import CustomModelComposer, ProbabilisticPolicyComposer, StateCriticComposer

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES: dict[str, Any] = {"non_lin": "torch.nn.ReLU", "hidden_units": [16, 32]}
LAYERS: dict[str, Any] = {"hidden_layer_0": 16, "hidden_layer_1": 32, "use_bias": True}


def test_the_low_level_example_is_short() -> None:
    assert len((EXAMPLES / "low_level_cartpole.py").read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.slow
def test_the_low_level_example_trains_and_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "low_level_cartpole.py"))
    assert 1.0 <= example["train"](max_epochs=1) <= 500.0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_low_level_example_learns() -> None:
    import pytorch_lightning as pl

    pl.seed_everything(0)
    assert runpy.run_path(str(EXAMPLES / "low_level_cartpole.py"))["train"]() >= 300.0


def test_stable_baselines3_trains_on_observations_that_are_normalised_here() -> None:
    example = runpy.run_path(str(EXAMPLES / "stable_baselines3_cartpole.py"))
    seen = [example["make_env"]().reset(seed=seed)[0] for seed in range(3)]
    assert all(abs(observation).max() > 0.05 for observation in seen)  # which the bare environment's never exceed
    assert 1.0 <= example["train"](total_timesteps=300) <= 500.0


NETWORKS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "custom_cartpole_net": ("CustomCartpolePolicyNet", "CustomCartpoleCriticNet", "CartPole-v1", SIZES),
    "custom_plain_cartpole_net": (
        "CustomPlainCartpolePolicyNet",
        "CustomPlainCartpoleCriticNet",
        "CartPole-v1",
        LAYERS,
    ),
    "custom_complex_net": ("CustomComplexPolicyNet", "CustomComplexCriticNet", "dungeon", SIZES),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_examples_fit_their_environments(name: str) -> None:
    module = runpy.run_path(str(EXAMPLES / "networks" / f"{name}.py"))
    policy, critic, env_name, options = NETWORKS[name]
    env: StructuredEnv = GymMazeEnv("CartPole-v1")
    if env_name == "dungeon":
        env = GymMazeEnv(runpy.run_path(str(EXAMPLES / "networks" / "dungeon_env.py"))["DungeonEnv"]())
        stacks = [{"observation": key, "stack_steps": 3} for key in env.observation_space.spaces]
        env = ObservationStackWrapper(env, stack_config=stacks)
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer([partial(module[policy], **options)]),
        StateCriticComposer([partial(module[critic], **options)]),
    ).compose(Spec.of(env))
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        observation, *_ = env.step(networks.policy.act_on(observation))
    many = {key: torch.from_numpy(value).expand(4, 2, *value.shape) for key, value in observation.items()}
    network = networks.policy.networks[0][0]
    for head, logits in network(many).items():
        assert logits.shape == (
            4,
            2,
            *networks.policy.action_logits(0, {k: v[0] for k, v in many.items()})[head].shape[1:],
        )
    assert networks.critic is not None
    assert networks.critic.value(0, {key: value[0] for key, value in many.items()}).shape == (2,)


def test_the_dungeon_of_the_examples_follows_the_interface_of_gymnasium() -> None:
    env = runpy.run_path(str(EXAMPLES / "networks" / "dungeon_env.py"))["DungeonEnv"]()
    observation, _ = env.reset(seed=3)
    env.action_space.seed(0)
    ended, n_steps = False, 0
    while not ended:
        assert env.observation_space.contains(observation)
        assert (observation["observation_screen"][0] == 255).sum() == 64, "the player is one cell"
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        ended, n_steps = terminated or truncated, n_steps + 1
        assert abs(reward) <= 2.6
    assert terminated or n_steps == 20


def test_a_deployed_agent_controls_a_system_of_others() -> None:
    from maze_pl import AgentDeployment

    example = runpy.run_path(str(EXAMPLES / "external_cartpole.py"))
    deployment = AgentDeployment(policy="heuristic", env=GymMazeEnv("CartPole-v1"))
    assert example["control"](deployment, 1)["BaseEnvEvents/reward/mean"] > 100

"""Recorded episodes in place of an environment: exports of policies that were trained on recordings alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maze_pl
from maze_pl import rollout
from maze_pl.__main__ import main
from maze_pl.agents import TorchPolicy
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.bundle.recorded_episodes import RecordedEpisodes
from maze_pl.bundle.wrapper_roles import wrapper_roles
from maze_pl.core.spec import Spec
from maze_pl.datasets import InMemoryDataset
from maze_pl.distributions.distribution_mapper import distribution_mappers
from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import ActionMasksWrapper
from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl_runtime import Policy

CUTTING = partial(masked_struct_env_factory, 3, (3, 3), (1, 2))


def records(make_env: Any, policy: str, n_episodes: int, n_steps: int) -> list[SpacesTrajectoryRecord]:
    played = rollout(make_env, policy, episodes=n_episodes, max_steps=n_steps, seed=0)
    return [episode.spaces for episode in played if episode.spaces is not None]


def test_the_observations_of_each_episode_follow_one_another() -> None:
    recorded = records(lambda: GymMazeEnv("CartPole-v1"), "random", 3, 5)
    dataset = InMemoryDataset(recorded).load()
    assert dataset.spec is not None
    env = RecordedEpisodes(dataset, dataset.spec)
    assert env.n_episodes == 3
    for episode in (*recorded, recorded[0]):
        observation, _ = env.reset(seed=1)
        shown = [observation["observation"]]
        is_over = False
        while not is_over:
            observation, _, is_over, _, _ = env.step({})
            shown.append(observation["observation"])
        np.testing.assert_array_equal(shown[:-1], episode.observation[0]["observation"][: len(shown) - 1])
        assert len(shown) == len(episode.action[0]["action"]) + 1


def test_a_policy_decides_in_all_sub_steps_on_what_was_recorded() -> None:
    recorded = records(CUTTING, "random", 2, 4)
    dataset = InMemoryDataset(recorded).load()
    env = CUTTING()
    spec = Spec.of(env)
    env.close()
    mappers = distribution_mappers(spec)
    networks: dict[Any, torch.nn.Module] = {}
    for key, step in spec.steps.items():
        shapes = dict(mappers[key].logits_shapes)
        networks[key] = FlattenConcatPolicyNet(step.observation_shapes, shapes, torch.nn.Tanh, [4])
    policy = TorchPolicy(networks, spec).eval()
    replayed = ActionMasksWrapper(RecordedEpisodes(dataset, spec), {})
    assert replayed.action_masks_dict == {key: step.masks for key, step in spec.steps.items()}
    decisions = recorded_decisions(replayed, policy, wrapper_roles(replayed), 2, 100, 0)
    assert [decision.actor.step_key for decision in decisions[:4]] == [0, 1, 0, 1]
    for number, episode in enumerate(recorded):
        for key in spec.step_keys:
            found = [one for one in decisions if one.episode == number and one.actor.step_key == key]
            assert len(found) == 4
            for name, expected in episode.observation[key].items():
                np.testing.assert_array_equal([one.observation[name] for one in found], expected[:4])
                np.testing.assert_array_equal([one.seen[name] for one in found], expected[:4])


@pytest.mark.slow
def test_a_clone_of_recordings_alone_is_tested_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = TrajectoryFiles("recorded")
    for episode in records(lambda: GymMazeEnv("LunarLander-v3"), "heuristic", 3, 20):
        files.write(episode)
    files.close()
    options = ["--data.env", "null", "--data.evaluators", "null", "--data.dataset.input_data", "recorded"]
    options += ["--trainer.max_epochs", "1", "--trainer.check_val_every_n_epoch", "1", "--run_dir", "clone"]
    assert main(["fit", "--config", "bc_lunar_lander", *options]) == 0
    assert main(["export", "clone", "--to", "agent.bundle", "--max_steps", "10"]) == 0
    policy = Policy.load("agent.bundle")
    parity = policy.manifest["parity"]
    assert (parity["episodes"], parity["decisions"], parity["untested"]) == (3, 30, [])
    observation = np.ones(8, np.float32)
    module = maze_pl.load("clone")
    assert policy.act({"observation": observation}) == module.act_on({"observation": observation})
    Path("recorded").rename("moved")
    with pytest.raises(ExportError, match=r"cannot read the episodes .* there is no file or folder recorded"):
        maze_pl.export("clone", "agent.bundle")

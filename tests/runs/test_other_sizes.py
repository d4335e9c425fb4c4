"""Agents in environments with other numbers of items than in training."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from torch import nn

import maze_pl
from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError, find
from maze_pl.core.checkpoint_content import add_to_checkpoint
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.vehicle_routing import vehicle_routing_factory
from maze_pl.modules import PPO
from maze_pl.perception import (
    AutomaticModelComposer,
    CustomModelComposer,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.runs.compatibility import shapes
from maze_pl.runs.other_sizes import in_sizes_of
from maze_pl.runs.rollout import rollout
from maze_pl.runs.searching import make_search_policy
from maze_pl.viewer.decisions import decisions_of


def routing(max_customers: int, advised: bool = False) -> Any:
    """Make instances of six customers, in observations and actions for more."""
    return vehicle_routing_factory(["random(6, capacity=20)"], max_customers, advised=advised)


def networks() -> dict[str, Any]:
    """Return the configuration of pointer networks."""
    path = find("model/vehicle_routing")
    assert path is not None
    node: dict[str, Any] = yaml.safe_load(path.read_text())
    return node


def save(path: Path, max_customers: int) -> Path:
    """Write the checkpoint of an agent with random weights, and return its path."""
    spec = Spec.of(routing(max_customers))
    torch.manual_seed(1)
    module = PPO(networks=Factory.of(networks())(), spec=spec)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # so that options differ clearly
    checkpoint: dict[str, Any] = {"state_dict": module.state_dict()}
    model = {"class_path": "maze_pl.modules.PPO", "init_args": {"networks": networks()}}
    data = {"class_path": "maze_pl.datamodules.RolloutDataModule"}
    config: Any = {"model": model, "data": data}
    add_to_checkpoint(checkpoint, spec=spec.to_dict(), config=config, env_steps=512)
    torch.save(checkpoint, path)
    return path


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return an agent that was trained with room for ten customers."""
    return maze_pl.load(save(tmp_path_factory.mktemp("agent") / "last.ckpt", 10))


def test_the_same_weights_decide_equally_with_and_without_unused_options(agent: Any) -> None:
    """An instance that fills its observations has the routes of the same instance with four empty places."""
    played = {}
    for size in (10, 6):
        make: Any = partial(routing, size)
        played[size] = rollout(make, agent, 8, seed=3, deterministic=True)
    for padded, full in zip(played[10], played[6], strict=True):
        assert padded.summary.env_steps == full.summary.env_steps > 6
        assert padded.summary.reward == full.summary.reward
        assert padded.spaces is not None and full.spaces is not None
        np.testing.assert_array_equal(padded.spaces.action[0]["option"], full.spaces.action[0]["option"])


def test_the_policy_of_other_sizes_has_the_probabilities_of_the_trained_one(agent: Any) -> None:
    (played,) = rollout(lambda: routing(6), agent, 1, seed=5)
    (padded,) = rollout(lambda: routing(10), agent, 1, seed=5)
    assert played.spaces is not None and padded.spaces is not None
    there, here = decisions_of(agent, padded.spaces), decisions_of(agent, played.spaces)
    assert there is not None and here is not None and there.value is not None and here.value is not None
    # the same start; later acts are sampled by other numbers of options
    of_ten, of_six = there.heads[0]["option"].probabilities, here.heads[0]["option"].probabilities
    assert of_ten is not None and of_six is not None
    np.testing.assert_allclose(of_ten[0, :7], of_six[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(there.value[0], here.value[0], rtol=1e-4)


def test_an_agent_in_its_own_sizes_stays_the_same_object(agent: Any) -> None:
    assert in_sizes_of(agent, Spec.of(routing(10))) is agent
    assert in_sizes_of(agent.policy, Spec.of(routing(6))) is agent.policy


def test_further_training_counts(agent: Any, tmp_path: Path) -> None:
    """The returned agent has the weights that the agent has now, not those of its file."""
    changed = maze_pl.load(save(tmp_path / "last.ckpt", 10))
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.zero_()
    made = in_sizes_of(changed, Spec.of(routing(6)))
    assert made.env_steps == 512 and not made.training
    assert all(not parameter.any() for parameter in made.networks.parameters())


def test_a_search_plays_in_the_sizes_of_the_environment(agent: Any) -> None:
    (played,) = rollout(lambda: routing(6), agent, 1, seed=5, search="puct:4")
    assert played.summary.kpis["distance"] > 0


class ItemScores(nn.Module):
    """Scores each item by the same weights."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(obs_shapes["options"][-1], 1)

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"option": self.layer(observation["options"]).squeeze(-1)}


class FlatValue(nn.Module):
    """Has weights for each item."""

    def __init__(self, obs_shapes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(obs_shapes["exists"][0], 1)

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"value": self.layer(observation["exists"])}


def test_a_critic_whose_weights_depend_on_the_sizes_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    critic = SharedStateCriticComposer([FlatValue])
    networks = CustomModelComposer(ProbabilisticPolicyComposer([ItemScores]), critic)
    module = PPO(networks=networks, spec=Spec.of(routing(10)))
    module.make_again = partial(PPO, networks=networks)
    spec = Spec.of(routing(6))
    sized = in_sizes_of(module, spec)
    assert sized.networks.critic is None
    search = make_search_policy("puct:4", module, sized.policy, spec, None, lambda: routing(6), 0)
    assert search._critic is None
    with caplog.at_level("INFO"):
        rollout(lambda: routing(6), module, 1)
    assert "it has no critic there" in caplog.text


@pytest.mark.parametrize("size", [4, 8])
def test_networks_scale_by_the_bounds_of_training(size: int) -> None:
    """The same items, some of them twice, have the same probabilities whatever bounds the environment states."""

    def items(n: int, high: int) -> Spec:
        return Spec.of(GymMazeEnv(EqualSpaces(spaces.Box(0, high, (n, 3), np.int16), spaces.Discrete(3))))

    make = partial(PPO, networks=AutomaticModelComposer(kinds={"observation": "set"}))
    torch.manual_seed(3)
    module = make(spec=items(4, 10))
    module.make_again = make
    observed = torch.randint(0, 10, (1, 4, 3), dtype=torch.int16)
    sized = in_sizes_of(module, items(size, 100))
    probabilities = []
    for policy, observation in ((module.policy, observed), (sized.policy, observed.repeat(1, size // 4, 1))):
        output = policy.compute_policy_output(0, {"observation": observation})
        probabilities.append(output.action_logits["action"].softmax(-1))
    torch.testing.assert_close(*probabilities)


def test_a_message_tells_of_other_sizes(agent: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        rollout(lambda: routing(6), agent, 1)
    assert "is box [11, 18] there and box [7, 18] here" in caplog.text


def test_observations_that_the_networks_lack_are_refused(agent: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"with other spaces: .*box \[11, 18\] there and box \[7, 20\]"):
        rollout(lambda: routing(6, advised=True), agent, 1)


class SummaryNet(nn.Module):
    """Reads the summary only; has weights for each option."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(obs_shapes["summary"][0], action_logits_shapes["option"][0])

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"option": self.layer(observation["summary"])}


def dense_agent(spec: Spec) -> PPO:
    return PPO(networks=CustomModelComposer(ProbabilisticPolicyComposer([SummaryNet]), None), spec=spec)


def test_weights_that_depend_on_the_sizes_are_refused() -> None:
    module = dense_agent(Spec.of(routing(10)))
    module.make_again = dense_agent
    depend = r"box \[7, 18\] here, and the weights of its networks depend on these sizes; use its environment"
    with pytest.raises(ConfigurationError, match=depend):
        rollout(lambda: routing(6), module, 1)


def test_another_environment_is_refused_by_the_first_difference(agent: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is box \[11, 18\] there and missing here"):
        rollout(lambda: GymMazeEnv("CartPole-v1"), agent, 1)


def test_an_agent_that_was_not_loaded_is_refused() -> None:
    """Its networks cannot be made again, as their composer is not kept."""
    module = dense_agent(Spec.of(routing(10)))
    with pytest.raises(ConfigurationError, match="trained with other spaces"):
        rollout(lambda: routing(6), module, 1)


class EqualSpaces(gymnasium.Env[Any, Any]):
    """Has the same observation in each step."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


def flags(n: int = 7) -> spaces.Space[Any]:
    return spaces.MultiBinary(n)


def image(*shape: int) -> spaces.Space[Any]:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        pytest.param((flags(), spaces.MultiDiscrete([3, 4])), (flags(), spaces.MultiDiscrete([4, 3])), id="choices"),
        pytest.param((flags(), spaces.Box(-1, 1, (6,))), (flags(), spaces.Box(-1, 1, (2, 3))), id="shapes of actions"),
        pytest.param(
            (flags(), spaces.Discrete(3)), (spaces.Box(0, 1, (7,)), spaces.Discrete(3)), id="types of observations"
        ),
        pytest.param(
            (image(64, 64, 3), spaces.Discrete(3)), (image(65, 65, 3), spaces.Discrete(3)), id="sizes of images"
        ),
    ],
)
def test_other_spaces_are_refused_although_the_weights_fit(there: Any, here: Any) -> None:
    module = PPO(spec=Spec.of(GymMazeEnv(EqualSpaces(*there))))
    module.make_again = PPO
    other = PPO(spec=Spec.of(GymMazeEnv(EqualSpaces(*here))))
    assert shapes(module.policy.state_dict()) == shapes(other.policy.state_dict())
    with pytest.raises(ConfigurationError, match="trained with other spaces"):
        rollout(lambda: GymMazeEnv(EqualSpaces(*here)), module, 1)


def test_playing_in_other_sizes_leaves_the_global_generator_as_it_is(agent: Any) -> None:
    before = torch.random.get_rng_state()
    in_sizes_of(agent, Spec.of(routing(6)))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_copies_of_an_agent_hold_no_objects_of_its_run(agent: Any, tmp_path: Path) -> None:
    loaded = maze_pl.load(save(tmp_path / "last.ckpt", 10), objects={"data.env": lambda: None})
    copied = pickle.loads(pickle.dumps(loaded))
    assert copied.make_again is None
    assert copied.env_steps == loaded.env_steps


def test_an_agent_in_other_sizes_can_be_sized_again(agent: Any) -> None:
    made = in_sizes_of(in_sizes_of(agent, Spec.of(routing(6))), Spec.of(routing(8)))
    assert made.policy.spec.steps[0].action_space["option"].n == 9

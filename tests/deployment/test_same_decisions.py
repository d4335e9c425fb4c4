"""Every decision of a deployment is the one that a rollout took in the same state of the simulation."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.__main__ import main
from maze_pl.agents import RandomPolicy
from maze_pl.envs import GymMazeEnv, make_pettingzoo_env
from maze_pl.envs.cutting_2d import (
    GreedyCuttingPolicy,
    MixedPeriodicDemand,
    masked_struct_env_factory,
    maze_env_factory,
    struct_env_factory,
)
from maze_pl.envs.job_shop import structured_job_shop_factory
from maze_pl.envs.vehicle_routing import structured_vehicle_routing_factory
from maze_pl.envs.wrappers import (
    DictActionWrapper,
    DictObservationWrapper,
    DiscretizeActionsWrapper,
    MazeEnvMonitoringWrapper,
    NoDictActionWrapper,
    NoDictObservationWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    PreProcessingWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    SortedSpacesWrapper,
    SpacesRecordingWrapper,
    SplitActionsWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
)
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
)
from tests.deployment.replaying import require_same_decisions, untrained
from tests.deployment.state_rules import LastRowPolicy
from tests.envs.split_steps import BidFirstWrapper, make_auction_env
from tests.envs.structured_example import TwoHalvesWrapper, make_heap_env
from tests.structured.catalogue import every_environment

pytestmark = pytest.mark.slow
STACKED = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])
WATCHED = partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=False, reward_logging=True)
STACKS: dict[str, list[Any]] = {
    "nothing": [],
    "normalised and stacked": [ObservationNormalizationWrapper, STACKED, partial(RewardScalingWrapper, scale=0.1)],
    "stacked, then normalised": [STACKED, ObservationNormalizationWrapper, WATCHED, SpacesRecordingWrapper],
    "watched within": [WATCHED, partial(RewardClippingWrapper, min_val=-1, max_val=1), SortedSpacesWrapper],
    "limited": [partial(TimeLimitWrapper, max_episode_steps=7), ReturnNormalizationRewardWrapper],
    "plain and back": [NoDictActionWrapper, NoDictObservationWrapper, DictObservationWrapper, DictActionWrapper],
    "skipped": [partial(StepSkipWrapper, n_steps=3), STACKED],
    "skipped outside": [STACKED, WATCHED, partial(StepSkipWrapper, n_steps=4)],
    "skipped twice": [partial(StepSkipWrapper, n_steps=2), STACKED, partial(StepSkipWrapper, n_steps=3)],
    "limited within skipped": [partial(TimeLimitWrapper, max_episode_steps=6), partial(StepSkipWrapper, n_steps=4)],
}
"""Representative stacks of wrappers for CartPole."""
GAUSSIAN = "maze_pl.distributions.DiagonalGaussianProbabilityDistribution"
RECURRENT = TemplateModelComposer(
    ConcatModelBuilder(
        observation_modality_mapping={"observation": "feature"},
        modality_config={
            "feature": {"block_type": FlattenBlock, "block_params": {"num_flatten_dims": 2}},
            "hidden": {"block_type": DenseBlock, "block_params": {"hidden_units": [8], "non_lin": torch.nn.Tanh}},
            "recurrence": {
                "block_type": RecurrentBlock,
                "block_params": {"hidden_size": 8, "num_layers": 1, "cell": "gru"},
            },
        },
        shared_embedding_keys=["latent"],
    ),
    policy=ProbabilisticPolicyComposer(),
    critic=SharedStateCriticComposer(),
)


@pytest.mark.parametrize("name", STACKS)
def test_cart_pole_with_wrappers(name: str) -> None:
    require_same_decisions(partial(GymMazeEnv, "CartPole-v1"), STACKS[name])


GYM: dict[str, tuple[str, list[Any]]] = {
    "a continuous action": ("Pendulum-v1", [partial(StepSkipWrapper, n_steps=2)]),
    "no action in skipped steps": (
        "Pendulum-v1",
        [partial(StepSkipWrapper, n_steps=3, skip_mode="noop", noop_actions={0: {"action": [0.0]}})],
    ),
    "discretised": (
        "Pendulum-v1",
        [partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 5}})],
    ),
    "four actions": ("LunarLander-v3", [ObservationNormalizationWrapper]),
    "three actions": ("Acrobot-v1", [ObservationNormalizationWrapper]),
    "a car": ("MountainCarContinuous-v0", [STACKED]),
    "one-hot observations": (
        "FrozenLake-v1",
        [
            partial(
                PreProcessingWrapper,
                pre_processor_mapping=[
                    {
                        "observation": "observation",
                        "class_path": "maze_pl.envs.wrappers.OneHotPreProcessor",
                        "keep_original": False,
                        "config": {},
                    }
                ],
            )
        ],
    ),
}


@pytest.mark.parametrize("case", GYM)
def test_other_gymnasium_environments(case: str) -> None:
    name, wrappers = GYM[case]
    if name.startswith("LunarLander"):
        pytest.importorskip("Box2D")
    require_same_decisions(partial(GymMazeEnv, name), wrappers)


class Drawn(gymnasium.Env[Any, Any]):
    """Random observations, and any actions."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self._drawn(), {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return self._drawn(), 1.0, self.n_steps == 10, False, {}

    def _drawn(self) -> Any:
        return (200 * self.np_random.random(self.observation_space.shape)).astype(self.observation_space.dtype)


@pytest.mark.parametrize("shape", [(36, 36, 3), (3, 2, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images_of_fractions(shape: tuple[int, ...], dtype: Any) -> None:
    images, forces = spaces.Box(0, 200, shape, dtype), spaces.Box(-np.inf, np.inf, (3,), np.float32)
    require_same_decisions(lambda: GymMazeEnv(Drawn(images, forces)), n_episodes=2)


def test_a_number_as_action() -> None:
    places, force = spaces.Box(0, 200, (2,), np.float32), spaces.Box(-2, 2, (), np.float32)
    require_same_decisions(lambda: GymMazeEnv(Drawn(places, force)), n_episodes=2)


def test_split_actions() -> None:
    pytest.importorskip("Box2D")
    split = {"action": {"main": {"indices": [0]}, "side": {"indices": [1]}}}
    wrappers = [partial(SplitActionsWrapper, split_config=split)]
    require_same_decisions(partial(GymMazeEnv, "LunarLanderContinuous-v3"), wrappers)


CUTTING: dict[str, Callable[[], Any]] = {}
for _name, _factory in {
    "flat": maze_env_factory,
    "sub-steps": struct_env_factory,
    "masks": masked_struct_env_factory,
}.items():
    CUTTING[_name] = partial(_factory, 8, (4, 3), [(1, 2), (1, 1), (2, 2)])
    CUTTING[f"{_name}, mixed"] = lambda factory=_factory: factory(8, (10, 8), MixedPeriodicDemand(2, 6))


@pytest.mark.parametrize("skips", [False, True], ids=["", "skipping"])
@pytest.mark.parametrize("name", CUTTING)
def test_cutting_2d(name: str, skips: bool) -> None:
    stacked = partial(ObservationStackWrapper, stack_config=[{"observation": "ordered_piece", "stack_steps": 2}])
    wrappers = [stacked, partial(StepSkipWrapper, n_steps=2)] if skips else [ObservationNormalizationWrapper]
    deployment = require_same_decisions(CUTTING[name], wrappers, max_steps=15)
    assert not deployment.needs_actor, "both sub-steps are decided in one call"


def test_a_policy_that_reads_the_state() -> None:
    require_same_decisions(CUTTING["flat"], policy=GreedyCuttingPolicy(CUTTING["flat"]().action_spaces_dict))


CHOOSING: dict[str, tuple[Callable[[], Any], LastRowPolicy]] = {
    "an operation": (
        partial(structured_job_shop_factory, ["random(5x4, alternatives=3)"]),
        LastRowPolicy("job", "alternative"),
    ),
    "a customer": (
        partial(structured_vehicle_routing_factory, ["random(20)"], n_vehicles=3),
        LastRowPolicy("vehicle", "node"),
    ),
}


@pytest.mark.parametrize("case", CHOOSING)
def test_a_rule_that_gets_another_state_in_each_sub_step(case: str) -> None:
    make_env, rule = CHOOSING[case]
    deployment = require_same_decisions(make_env, policy=rule, max_steps=40)
    assert not deployment.needs_actor, "both sub-steps are decided in one call"


def test_sub_steps_of_wrappers() -> None:
    stacked = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 2}])
    halves = partial(GymMazeEnv, "CartPole-v1")
    require_same_decisions(halves, [TwoHalvesWrapper, stacked])
    require_same_decisions(make_auction_env, [BidFirstWrapper])


def test_agents_that_come_and_go() -> None:
    deployment = require_same_decisions(make_heap_env)
    assert deployment.needs_actor, "each call decides for one actor"


@every_environment
def test_structured_simulations(module: ModuleType) -> None:
    require_same_decisions(module.make_env)


@pytest.mark.parametrize("name", ["classic/tictactoe-v3", "classic/connect_four-v3", "classic/rps-v2"])
def test_petting_zoo(name: str) -> None:
    pytest.importorskip("pettingzoo")
    deployment = require_same_decisions(partial(make_pettingzoo_env, name))
    assert deployment.needs_actor


@pytest.mark.parametrize(("options", "problem"), [([], "stock"), (["--structured"], "repairs")])
def test_the_project_templates(
    options: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["new", str(tmp_path / "corner_shop"), *options]) == 0
    monkeypatch.syspath_prepend(str(tmp_path / "corner_shop"))
    make_env = importlib.import_module(f"corner_shop.{problem}").make_env
    require_same_decisions(make_env, [ObservationNormalizationWrapper])
    for name in [name for name in sys.modules if name.startswith("corner_shop")]:
        del sys.modules[name]


def test_policies_with_memory() -> None:
    make_env = partial(GymMazeEnv, "CartPole-v1")
    policy = untrained(make_env, [STACKED], networks=RECURRENT)
    require_same_decisions(make_env, [STACKED], policy)


def test_noise_that_is_kept_for_several_acts() -> None:
    make_env = partial(GymMazeEnv, "Pendulum-v1")
    exploration = {"type": "gsde", "sample_freq": 3, "log_std_init": -1.0}
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
        SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])]),
        [{"action_space": "gymnasium.spaces.Box", "distribution": GAUSSIAN, "exploration": exploration}],
    )
    require_same_decisions(make_env, policy=untrained(make_env, networks=networks))


def test_random_actions_are_those_of_the_same_seed() -> None:
    make_env = partial(GymMazeEnv, "Pendulum-v1")
    require_same_decisions(make_env, policy=RandomPolicy(make_env().action_spaces_dict))

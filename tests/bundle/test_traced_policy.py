"""Policies of all kinds as graphs: in their environments they decide as torch does, for batches of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from examples.structured import power_line
from maze_pl import distributions
from maze_pl.agents import TorchPolicy
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.parity import Parity, require_parity
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.bundle.traced_policy import TracedPolicy, traced
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.perception import ConcatModelBuilder, DenseBlock, FlattenConcatPolicyNet, PointerBlock, RecurrentBlock
from maze_pl_runtime import Policy

BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
HEADS = {
    "pick": spaces.Discrete(4, start=1),
    "greedy": spaces.Discrete(4),
    "dials": spaces.MultiDiscrete([2, 3]),
    "switches": spaces.MultiBinary([2, 2]),
    "free": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "clipped": spaces.Box(-0.1, 0.1, (2,), np.float64),
    "squashed": BOX,
    "beta": BOX,
    "certain": BOX,
    "parameter": BOX,
    "smooth": BOX,
}
MASKS = {"pick": "may_pick", "greedy": "may_pick", "dials": "may_turn", "switches": "may_switch"}
OBSERVATIONS = {
    "place": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "kind": spaces.Discrete(3),
    **{name: spaces.MultiBinary(n) for name, n in {"may_pick": 4, "may_turn": 5, "may_switch": 4}.items()},
}
OVERRIDES: list[dict[str, Any]] = [
    {"action_head": "greedy", "distribution": distributions.EpsilonGreedyProbabilityDistribution},
    {"action_head": "squashed", "distribution": distributions.SquashedGaussianProbabilityDistribution},
    {"action_head": "beta", "distribution": distributions.BetaProbabilityDistribution},
    {"action_head": "certain", "distribution": distributions.DeterministicProbabilityDistribution},
]
GAUSSIAN = distributions.DiagonalGaussianProbabilityDistribution
EXPLORATIONS: list[dict[str, Any]] = [
    {"action_head": "parameter", "distribution": GAUSSIAN, "exploration": {"type": "state_independent"}},
    {
        "action_head": "smooth",
        "distribution": distributions.SquashedGaussianProbabilityDistribution,
        "exploration": {"type": "gsde", "log_std_bounds": [-3.0, 0.0]},
    },
]


class Simulation(gymnasium.Env[Any, Any]):
    """Shows random observations for a few steps."""

    def __init__(self, heads: Mapping[str, spaces.Space[Any]]) -> None:
        self.observation_space = spaces.Dict(OBSERVATIONS)
        self.action_space = spaces.Dict(heads)

    def seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = self.observation_space.sample()
        for name in ("may_pick", "may_turn", "may_switch"):
            seen[name][-1] = seen[name][0] = 1
        return seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        return self.seen(), 0.0, self.time == 8, False, {}


def simulation(heads: Mapping[str, spaces.Space[Any]], masks: dict[str, str] | None = None, *wrappers: Any) -> Any:
    return make_wrapped(lambda: GymMazeEnv(Simulation(heads)), wrappers, masks)


def compared(policy: TorchPolicy, env: Any) -> tuple[Parity, Policy, TracedPolicy]:
    """Trace a policy, and compare it in its environment."""
    parts = traced(policy.eval(), env)
    bundle = Policy(parts.described(), parts.members)
    decisions = recorded_decisions(env, policy, parts.roles, 2, 12, 0)
    env.close()
    parity, _ = require_parity(bundle, policy, parts.graphs, decisions, 1)
    return parity, bundle, parts


def template(spec: Spec, heads: Mapping[str, int], recurrence: Any = None) -> nn.Module:
    modality = {"block_type": DenseBlock, "block_params": {"hidden_units": [8], "non_lin": nn.Tanh}}
    config: Any = {"feature": modality}
    if recurrence is not None:
        config["recurrence"] = recurrence
    builder = ConcatModelBuilder(config, {"place": "feature"})
    return builder.policy_network({"place": (3,)}, {head: (size,) for head, size in heads.items()})


@pytest.mark.slow
@pytest.mark.long
def test_all_distributions_with_masks_and_explorations_in_one_policy() -> None:
    env = simulation(HEADS, MASKS)
    spec = Spec.of(env)
    config = [*OVERRIDES, *EXPLORATIONS]
    sizes = {}
    for head in HEADS:
        sizes[head] = 2 if head in ("parameter", "smooth", "certain") else 4
    sizes["dials"] = 5
    torch.manual_seed(0)
    policy = TorchPolicy([template(spec, sizes)], spec, config)
    policy.set_exploration(0.25)
    parity, bundle, _ = compared(policy, env)
    assert parity.decisions == 16 and parity.largest_difference <= 1e-5
    head = bundle.spec[0]["heads"]["beta"]
    assert head["parameters"] == "alpha of all components, then beta" and head["size"] == 4
    batch = {name: np.stack([space.sample()] * 5) for name, space in OBSERVATIONS.items()}
    for mask in ("may_pick", "may_turn", "may_switch"):
        batch[mask][:] = 0
        batch[mask][:, [0, -1]] = 1
    action = bundle.act(batch, deterministic=False)
    assert set(action) == set(HEADS)
    for name, space in HEADS.items():
        for value in action[name]:
            assert space.contains(int(value) if isinstance(space, spaces.Discrete) else value)
    assert set(action["pick"].tolist()) <= {1, 4}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")
def test_a_memory_and_a_stack_of_observations_are_kept_together() -> None:
    from maze_pl.envs.wrappers import DiscretizeActionsWrapper, ObservationStackWrapper, SplitActionsWrapper

    stack = {"observation": "place", "stack_steps": 2, "tag": "both", "keep_original": True}
    split: Any = {
        "clipped": {"first": {"indices": [0]}, "second": {"indices": [1]}},
        "dials": {"left": {"indices": [1]}, "right": {"indices": [0]}},
    }
    env = simulation(
        {"clipped": HEADS["clipped"], "dials": HEADS["dials"]},
        {"dials": "may_turn"},
        lambda inner: SplitActionsWrapper(inner, split),
        lambda inner: DiscretizeActionsWrapper(inner, {"first": {"num_bins": 3}}),
        lambda inner: ObservationStackWrapper(inner, [stack]),
    )
    spec = Spec.of(env)
    recurrence = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4, "cell": "gru"}}
    torch.manual_seed(0)
    policy = TorchPolicy([template(spec, {"first": 3, "second": 2, "left": 3, "right": 2}, recurrence)], spec)
    parity, bundle, parts = compared(policy, env)
    assert parity.decisions == 16
    assert {"started", "history_2_place-both"} < bundle.spec[0]["state"].keys()
    assert bundle.spec[0]["masks"] == {"dials": "may_turn"}
    assert len(parts.roles.included) == 3


@pytest.mark.slow
def test_agents_with_separate_networks_use_their_own() -> None:
    env = make_wrapped(power_line.make_env)
    spec = Spec.of(env)
    step = spec.steps["machine"]
    torch.manual_seed(0)
    sizes = {head: (int(space.n),) for head, space in step.action_space.items()}
    networks = [FlattenConcatPolicyNet(step.observation_shapes, sizes, nn.Tanh, [8]) for _ in range(step.n_agents)]
    policy = TorchPolicy({"machine": networks}, spec, substeps_with_separate_agent_nets=["machine"])
    for parameter in policy.parameters():
        nn.init.normal_(parameter)
    _, bundle, _ = compared(policy, env)
    assert bundle.spec["machine"]["separate_networks"] == step.n_agents == 4
    same = {name: np.ones((4, *shape), np.float32) for name, shape in step.observation_shapes.items()}
    parameters = bundle.decide(same, agent_id=[0, 1, 2, 3]).parameters
    for array in parameters.values():
        assert len(np.unique(array, axis=0)) == 4
    with pytest.raises(ValueError, match="agent_id=4 must be from 0 to 3"):
        bundle.act(same, agent_id=4)


class Plain(nn.Module):
    """A network of a user, in plain PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 6), nn.Linear(6, 4)])
        self.embedding = nn.Embedding(3, 6)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden = nn.functional.gelu(self.layers[0](observation["place"])) + self.embedding(observation["kind"])
        return {"pick": self.layers[1](hidden / math.sqrt(hidden.shape[-1]))}


class Pointing(nn.Module):
    """Points at one of four items; the last one is 0."""

    def __init__(self) -> None:
        super().__init__()
        options: Any = {"hidden_units": [4], "score": "dot", "n_glimpses": 1}
        self.block = PointerBlock(["items", "exists"], "pick", [[4, 1], [4]], mask_key="exists", **options)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        items = nn.functional.pad(observation["place"], (0, 1)).unsqueeze(-1)
        logits: dict[str, Tensor] = self.block({"items": items, "exists": observation["may_pick"]})
        return logits


@pytest.mark.slow
def test_a_bundle_decides_on_empty_sets_as_the_policy_does() -> None:
    env = simulation({"pick": HEADS["pick"]})
    policy = TorchPolicy([Pointing()], Spec.of(env))
    _, bundle, _ = compared(policy, env)
    for n_empty, n_items in ((1, 0), (2, 0), (1, 2)):
        n = n_empty + n_items
        batch = {name: np.stack([space.sample() for _ in range(n)]) for name, space in OBSERVATIONS.items()}
        batch["may_pick"][:n_empty] = 0
        found = bundle.decide(batch)
        with torch.inference_mode():
            joint = policy.distribution(0, {name: torch.from_numpy(array) for name, array in batch.items()})
        expected: Any = joint.distributions["pick"]
        np.testing.assert_allclose(found.parameters["pick"][:n_empty], -math.log(4), rtol=1e-6)
        np.testing.assert_array_equal(found.action["pick"], policy.act_on(batch)["pick"])
        possible = np.isfinite(found.parameters["pick"])
        numbers = expected.log_probs_of_options().numpy()
        np.testing.assert_allclose(found.parameters["pick"][possible], numbers[possible], atol=1e-5)


class Unsupported(Plain):
    """Uses an operation that ONNX lacks."""

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = super().forward(observation)["pick"]
        return {"pick": torch.special.bessel_j0(logits)}


class Branching(Plain):
    """Decides in Python on the values of tensors."""

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = super().forward(observation)["pick"]
        return {"pick": logits if logits.sum() > 0 else -logits}


def policy_of(network: nn.Module) -> tuple[TorchPolicy, Any]:
    env = simulation({"pick": HEADS["pick"]}, {"pick": "may_pick"})
    return TorchPolicy([network], Spec.of(env)), env


@pytest.mark.slow
def test_a_plain_pytorch_network_is_exported_like_those_of_maze_pl() -> None:
    parity, _, _ = compared(*policy_of(Plain()))
    assert parity.decisions == 16


class Far(Simulation):
    """Shows places of any size, also infinite ones."""

    def __init__(self, heads: Mapping[str, spaces.Space[Any]]) -> None:
        super().__init__(heads)
        self.observation_space = spaces.Dict({**OBSERVATIONS, "place": spaces.Box(-np.inf, np.inf, (3,), np.float64)})

    def seen(self) -> dict[str, Any]:
        return {**super().seen(), "place": np.array([np.inf, -1e40, 0.3])}


@pytest.mark.slow
@pytest.mark.parametrize("is_clipped", [False, True])
def test_observations_of_any_size_are_decided_on_if_the_bundle_clips_them(is_clipped: bool) -> None:
    config: Any = {"axis": 0, "clip_range": [-5.0, 5.0] if is_clipped else [-5.0, None]}
    statistics = {"mean": [0.0] * 3, "std": [1.0] * 3}
    place = {"strategy_config": config, "statistics": statistics}
    excluded = [name for name in OBSERVATIONS if name != "place"]
    env = make_wrapped(
        lambda: GymMazeEnv(Far({"pick": HEADS["pick"]})),
        [lambda inner: ObservationNormalizationWrapper(inner, exclude=excluded, manual_config={"place": place})],
        {"pick": "may_pick"},
    )
    policy = TorchPolicy([Plain()], Spec.of(env))
    if is_clipped:
        parity, bundle, _ = compared(policy, env)
        assert parity.decisions == 16
        assert bundle.spec[0]["observations"]["place"]["clipped"] is True
        assert "clipped" not in bundle.spec[0]["observations"]["kind"]
    else:
        with pytest.raises(ExportError, match="the bundle refuses: observation 'place' has values that are not finite"):
            compared(policy, env)


@pytest.mark.slow
def test_an_operation_that_cannot_be_exported_is_named() -> None:
    policy, env = policy_of(Unsupported())
    with pytest.raises(
        ExportError, match=r"the policy of sub-step 0 cannot be translated to ONNX: the operation .*bessel_j0 is not"
    ):
        traced(policy.eval(), env)
    policy, env = policy_of(Branching())
    with pytest.raises(ExportError, match=r"the policy of sub-step 0 cannot be traced by torch\.export"):
        traced(policy.eval(), env)

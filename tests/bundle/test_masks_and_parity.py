"""Masks that wrappers in a bundle declare, and near ties in the test of an export; nothing is translated."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.parity import Parity, require_parity
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.bundle.wrapper_roles import wrapper_roles
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs import wrappers as ours
from maze_pl.envs.building import make_wrapped
from maze_pl_runtime import Decision

SHAPES = {"allowed": (2, 2), "place": (3,)}


class Simulation(gymnasium.Env[Any, Any]):
    """Shows the same observations for three steps."""

    def __init__(self, **heads: spaces.Space[Any]) -> None:
        self.observation_space = spaces.Dict(
            {n: spaces.Box(0.0, 1.0, shape, np.float32) for n, shape in SHAPES.items()}
        )
        self.action_space = spaces.Dict(heads)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}, 0.0, self.time == 3, False, {}


class Fixed(nn.Module):
    """The same logits for all observations."""

    def __init__(self, logits: dict[str, list[float]]) -> None:
        super().__init__()
        self.logits = {head: torch.tensor(values) for head, values in logits.items()}

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        n = len(observation["place"])
        return {head: values.expand(n, -1) for head, values in self.logits.items()}


def graph_of(env: Any, **logits: list[float]) -> tuple[StepGraph, TorchPolicy]:
    policy = TorchPolicy([Fixed(logits)], Spec.of(env)).eval()
    return StepGraph(policy, 0, wrapper_roles(env)), policy


FLATTEN = {"observation": "allowed", "class_path": ours.FlattenPreProcessor, "config": {"num_flatten_dims": 2}}


def test_a_mask_that_a_pre_processor_makes_is_the_observation_that_it_is_made_from() -> None:
    flat = partial(ours.PreProcessingWrapper, pre_processor_mapping=[FLATTEN])
    env = make_wrapped(lambda: GymMazeEnv(Simulation(pick=spaces.Discrete(4))), [flat], {"pick": "allowed-flatten"})
    graph, _ = graph_of(env, pick=[0.0] * 4)
    assert list(graph.observations) == ["allowed", "place"]
    assert graph.masks == {"pick": "allowed"}


def test_a_mask_of_a_discretized_head_is_described() -> None:
    bins = partial(ours.DiscretizeActionsWrapper, discretization_config={"force": {"num_bins": 3}})
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    env = make_wrapped(lambda: GymMazeEnv(Simulation(force=box)), [bins], {"force": "place"})
    graph, _ = graph_of(env, force=[0.0] * 3)
    assert graph.masks == {"force": "place"}


def test_a_mask_of_a_part_of_a_head_is_described() -> None:
    split = partial(
        ours.SplitActionsWrapper, split_config={"dials": {"left": {"indices": [1]}, "right": {"indices": [0]}}}
    )
    env = make_wrapped(lambda: GymMazeEnv(Simulation(dials=spaces.MultiDiscrete([2, 3]))), [split], {"left": "place"})
    graph, _ = graph_of(env, left=[0.0] * 3, right=[0.0] * 2)
    assert graph.masks == {"left": "place"}


def test_each_head_is_described_if_several_have_one_mask() -> None:
    flat = partial(ours.PreProcessingWrapper, pre_processor_mapping=[FLATTEN])
    heads = {"pick": spaces.Discrete(4), "grab": spaces.MultiDiscrete([2, 2])}
    masks = {"pick": "allowed-flatten", "grab": "allowed-flatten"}
    env = make_wrapped(lambda: GymMazeEnv(Simulation(**heads)), [flat], masks)
    graph, _ = graph_of(env, pick=[0.0] * 4, grab=[0.0] * 4)
    assert graph.masks == {"pick": "allowed", "grab": "allowed"}


def test_a_head_is_described_if_the_environment_declares_its_mask_for_another_head() -> None:
    bins = partial(ours.DiscretizeActionsWrapper, discretization_config={"force": {"num_bins": 3}})
    heads = {"pick": spaces.Discrete(3), "force": spaces.Box(-1.0, 1.0, (1,), np.float32)}
    env = make_wrapped(lambda: GymMazeEnv(Simulation(**heads)), [bins], {"pick": "place", "force": "place"})
    graph, _ = graph_of(env, pick=[0.0] * 3, force=[0.0] * 3)
    assert graph.masks == {"pick": "place", "force": "place"}


def test_a_mask_that_is_split_with_its_head_is_described_once() -> None:
    split = partial(
        ours.SplitActionsWrapper, split_config={"dials": {"left": {"indices": [1]}, "right": {"indices": [0]}}}
    )
    heads = {"dials": spaces.MultiDiscrete([1, 2])}
    env = make_wrapped(lambda: GymMazeEnv(Simulation(**heads)), [split], {"dials": "place"})
    graph, policy = graph_of(env, left=[0.0] * 2, right=[0.0])
    assert policy.spec.steps[0].masks.keys() == {"left", "right"}
    assert graph.masks == {"dials": "place"}


def test_masks_of_changed_values_are_not_those_of_the_caller() -> None:
    one_hot = {"observation": "kind", "class_path": ours.OneHotPreProcessor}
    simulation = Simulation(pick=spaces.Discrete(4))
    simulation.observation_space = spaces.Dict(
        {"kind": spaces.Discrete(4), "place": simulation.observation_space["place"]}
    )
    wrapper = partial(ours.PreProcessingWrapper, pre_processor_mapping=[one_hot])
    env = make_wrapped(lambda: GymMazeEnv(simulation), [wrapper], {"pick": "kind-one_hot"})
    graph, _ = graph_of(env, pick=[0.0] * 4)
    assert graph.masks == {}


# -------------------------------------------------------------------------------------------------------------- parity


class Bundle:
    """Decides as a graph does, but with other logits."""

    def __init__(self, graph: StepGraph, **logits: list[float]) -> None:
        self.graph = graph
        self.logits = {head: torch.tensor(values) for head, values in logits.items()}

    def decide(self, observation: Any, *, deterministic: bool = True, uniforms: Any = None, **_: Any) -> Decision:
        inputs = self.graph.example(1, torch.Generator())
        for name in self.graph.observations:
            inputs[f"observation/{name}"] = torch.from_numpy(np.array(observation[name]))[None]
        if uniforms is not None:
            inputs["uniforms"] = torch.from_numpy(uniforms)[None]
        network = self.graph.networks[0]
        before = network.logits
        network.logits = before | self.logits
        outputs = {name: value[0].numpy() for name, value in self.graph(inputs).items()}
        network.logits = before
        kinds = []
        for prefix in ("action" if deterministic else "sample", "next_state", "parameters"):
            kinds.append({n.partition("/")[2]: v for n, v in outputs.items() if n.startswith(prefix + "/")})
        return Decision(*kinds)


def compared(env: Any, logits: dict[str, list[float]], others: dict[str, list[float]]) -> Parity:
    graph, policy = graph_of(env, **logits)
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 3, 0)
    bundle: Any = Bundle(graph, **others)
    return require_parity(bundle, policy, {0: graph}, decisions, 0)[0]


def env_of(*wrappers: Any, **heads: spaces.Space[Any]) -> Any:
    return make_wrapped(lambda: GymMazeEnv(Simulation(**heads)), wrappers)


TIE, OTHER = [1.0, 1.0 - 1e-6, 0.0], [1.0 - 1e-6, 1.0, 0.0]


def test_a_near_tie_excuses_another_option_of_its_choice() -> None:
    env = env_of(first=spaces.Discrete(3), second=spaces.Discrete(3))
    found = compared(env, {"first": TIE, "second": TIE}, {"first": OTHER, "second": OTHER})
    assert (found.decisions, found.near_ties) == (3, 3)
    assert compared(env, {"first": TIE, "second": TIE}, {}).near_ties == 0


class Wrong(Bundle):
    """Takes the last option of a head, whatever its logits."""

    def decide(self, observation: Any, **options: Any) -> Decision:
        decision = super().decide(observation, **options)
        if options.get("deterministic", True):
            decision.action["second"] = np.full_like(decision.action["second"], 2)
        return decision


class Refusing(Bundle):
    """Refuses all observations."""

    def decide(self, observation: Any, **options: Any) -> Decision:
        raise ValueError("observation 'place' has values that are not finite in float32")


def test_a_bundle_that_refuses_what_the_policy_decides_on_is_not_exported() -> None:
    env = env_of(first=spaces.Discrete(3))
    graph, policy = graph_of(env, first=TIE)
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 3, 0)
    bundle: Any = Refusing(graph)
    message = r"^decision 0 of sub-step 0: the policy decides, but the bundle refuses: observation 'place' has values"
    with pytest.raises(ExportError, match=message):
        require_parity(bundle, policy, {0: graph}, decisions, 0)


def test_a_near_tie_does_not_excuse_another_head() -> None:
    env = env_of(first=spaces.Discrete(3), second=spaces.Discrete(3))
    graph, policy = graph_of(env, first=TIE, second=[5.0, 0.0, 0.0])
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 3, 0)
    bundle: Any = Wrong(graph)
    with pytest.raises(ExportError, match="decision 0 of sub-step 0: action 'second' is 2 instead of 0"):
        require_parity(bundle, policy, {0: graph}, decisions, 0)


def test_a_near_tie_does_not_excuse_another_choice_of_the_same_head() -> None:
    env = env_of(second=spaces.MultiDiscrete([3, 3]))
    graph, policy = graph_of(env, second=[*TIE, 5.0, 0.0, 0.0])
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 3, 0)
    bundle: Any = Wrong(graph)
    with pytest.raises(ExportError, match="action 'second' is"):
        require_parity(bundle, policy, {0: graph}, decisions, 0)
    other: Any = Bundle(graph, second=[*OTHER, 5.0, 0.0, 0.0])
    assert require_parity(other, policy, {0: graph}, decisions, 0)[0].near_ties == 3


def test_near_ties_are_known_behind_discretized_and_split_actions() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    split = partial(
        ours.SplitActionsWrapper, split_config={"force": {"side": {"indices": [1]}, "main": {"indices": [0]}}}
    )
    bins = partial(
        ours.DiscretizeActionsWrapper, discretization_config={"side": {"num_bins": 3}, "main": {"num_bins": 3}}
    )
    env = env_of(split, bins, force=box)
    logits = {"side": TIE, "main": [5.0, 0.0, 0.0]}
    graph, _ = graph_of(env, **logits)
    parameters = {head: np.array(values) for head, values in logits.items()}
    assert graph.near_ties(parameters, 1e-5)["force"].tolist() == [False, True]
    assert compared(env, logits, {"side": OTHER}).near_ties == 3


def sampled_at(limit: float, difference: float) -> Parity:
    """Compare one sampled decision of a bundle that moves the limit between two options from `limit`."""
    env = env_of(pick=spaces.Discrete(3))
    first, second = np.log([limit, 1.0 - limit])
    graph, policy = graph_of(env, pick=[first, second, -60.0])
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 1, 0)
    bundle: Any = Bundle(graph, pick=[first + difference, second, -60.0])
    return require_parity(bundle, policy, {0: graph}, decisions, 0)[0]


@pytest.mark.parametrize("difference", [-2e-6, 2e-6])
def test_a_uniform_number_at_the_limit_between_two_options_may_mean_either(difference: float) -> None:
    uniform = np.random.default_rng(0).random()  # the first number of the comparison
    assert sampled_at(uniform, difference).largest_difference > 1e-7
    assert sampled_at(uniform + 1e-7, difference).decisions == 1


class WrongSample(Bundle):
    """Samples the last option, whatever the uniform number."""

    def decide(self, observation: Any, **options: Any) -> Decision:
        decision = super().decide(observation, **options)
        if not options.get("deterministic", True):
            decision.action["pick"] = np.full_like(decision.action["pick"], 2)
        return decision


@pytest.mark.parametrize("last", [0.0, -60.0])
def test_another_sampled_option_is_refused_elsewhere(last: float) -> None:
    env = env_of(pick=spaces.Discrete(3))
    graph, policy = graph_of(env, pick=[5.0, 0.0, last])
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 1, 0)
    bundle: Any = WrongSample(graph)
    with pytest.raises(ExportError, match=r"sub-step 0, sampled: action 'pick' is 2 instead of 0"):
        require_parity(bundle, policy, {0: graph}, decisions, 0)


def test_choices_at_a_limit_are_those_that_a_slow_search_finds() -> None:
    env = env_of(pick=spaces.MultiDiscrete([2, 3]))
    graph, _ = graph_of(env, pick=[0.0] * 5)
    generator = np.random.default_rng(3)
    n_marked = 0
    for _ in range(200):
        probabilities = [generator.dirichlet([1.0, 1.0]), generator.dirichlet([1.0, 1.0, 1.0])]
        uniforms = generator.random(2)
        near = graph.near_ties({"pick": np.log(np.concatenate(probabilities))}, 0.05, uniforms)["pick"]
        for mark, of_choice, uniform in zip(near, probabilities, uniforms, strict=True):
            limits = [sum(of_choice[:number]) for number in range(1, len(of_choice))]
            assert mark == any(abs(limit - uniform) <= 0.05 for limit in limits)
            n_marked += int(mark)
    assert 20 < n_marked < 200


class Seeing(nn.Module):
    """Logits that are the observation."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: dict[str, Tensor] = {}

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"pick": observation["allowed-flatten"]}


def test_a_bundle_is_compared_with_the_policy_behind_the_wrappers_themselves() -> None:
    flat = partial(ours.PreProcessingWrapper, pre_processor_mapping=[FLATTEN])
    env = env_of(flat, pick=spaces.Discrete(4))
    policy = TorchPolicy([Seeing()], Spec.of(env)).eval()
    right, wrong = (StepGraph(policy, 0, wrapper_roles(env)) for _ in range(2))
    stage = wrong._stages[0]
    compute = stage.apply

    def deviating(observation: Any, state: Any) -> Any:
        processed, changed = compute(observation, state)
        processed["allowed-flatten"] = processed["allowed-flatten"] + torch.arange(4) * 1e-4
        return processed, changed

    stage.apply = deviating  # type: ignore[method-assign]
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 1, 3, 0)
    faithful: Any = Bundle(right)
    assert require_parity(faithful, policy, {0: wrong}, decisions, 0)[0].largest_difference == 0.0
    both: Any = Bundle(wrong)
    with pytest.raises(ExportError, match="parameters of 'pick' differs by"):
        require_parity(both, policy, {0: wrong}, decisions, 0)


class DeadEnd(Simulation):
    """Its mask allows nothing in the given steps of each episode."""

    def __init__(self, *closed: int) -> None:
        super().__init__(pick=spaces.Discrete(3))
        self.closed = closed

    def shown(self, observation: Any) -> Any:
        return {**observation, "place": np.full(3, self.time not in self.closed, np.float32)}

    def reset(self, **options: Any) -> Any:
        observation, info = super().reset(**options)
        return self.shown(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return self.shown(observation), *rest


@pytest.mark.parametrize(("closed", "n_decisions"), [((), 3), ((2,), 2), ((1,), 1)])
def test_an_export_is_tested_up_to_masks_that_allow_nothing(closed: tuple[int, ...], n_decisions: int) -> None:
    env = make_wrapped(lambda: GymMazeEnv(DeadEnd(*closed)), action_masks={"pick": "place"})
    _, policy = graph_of(env, pick=[0.0] * 3)
    decisions = recorded_decisions(env, policy, wrapper_roles(env), 2, 5, 0)
    assert [decision.episode for decision in decisions] == [0] * n_decisions + [1] * n_decisions


def test_an_export_without_any_allowed_decision_is_refused() -> None:
    env = make_wrapped(lambda: GymMazeEnv(DeadEnd(0)), action_masks={"pick": "place"})
    _, policy = graph_of(env, pick=[0.0] * 3)
    with pytest.raises(ExportError, match=r"no decision can be tested: .* masks allow no option"):
        recorded_decisions(env, policy, wrapper_roles(env), 2, 5, 0)


def test_actions_of_a_coarse_type_are_compared_in_that_type() -> None:
    logits = {"force": [0.1234567, -0.7654321, -1.0, -1.0]}
    parity = compared(env_of(force=spaces.Box(-1.0, 1.0, (2,), np.float16)), logits, logits)
    assert (parity.decisions, parity.largest_difference) == (3, 0.0)

"""Exploration of Gaussian policies: deviations that are parameters, limits, and coherent noise (gSDE)."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchPolicy
from maze_pl.agents.gaussian_exploration import GaussianExploration, limited
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import Exploration
from maze_pl.perception import (
    ConcatModelBuilder,
    DenseBlock,
    FlattenConcatPolicyNet,
    ProbabilisticPolicyComposer,
    TemplateModelComposer,
)

GAUSSIAN = "maze_pl.distributions.DiagonalGaussianProbabilityDistribution"
SQUASHED = "maze_pl.distributions.SquashedGaussianProbabilityDistribution"
OBSERVATION = spaces.Dict({"observation": spaces.Box(-1, 1, (3,))})


def make_spec(n_agents: int = 1, **heads: Any) -> Spec:
    chosen = heads or {"action": spaces.Box(-2.0, 2.0, (2,))}
    return Spec({0: StepSpec(OBSERVATION, spaces.Dict(chosen), n_agents, n_agents)})


def make_policy(
    options: dict[str, Any], distribution: str = GAUSSIAN, spec: Spec | None = None, separate: bool = False
) -> TorchPolicy:
    torch.manual_seed(0)
    config = [{"action_space": "gymnasium.spaces.Box", "distribution": distribution, "exploration": options}]
    network = partial(FlattenConcatPolicyNet, hidden_units=[5])
    composer = ProbabilisticPolicyComposer([network], [0] if separate else None)
    policy = composer.compose(spec or make_spec(), config)
    with torch.no_grad():
        for exploration in policy.modules():
            if isinstance(exploration, GaussianExploration) and exploration.options.type != "state_dependent":
                exploration.log_std += 0.3 * torch.randn_like(exploration.log_std)
    return policy.eval()


def observations(n: int = 4) -> dict[str, Tensor]:
    return {"observation": torch.randn(n, 3, generator=torch.Generator().manual_seed(7))}


def batch(n: int = 4, state: dict[str, Any] | None = None, agent: Any = 0) -> PolicyBatch:
    arrays = {name: tensor.numpy() for name, tensor in observations(n).items()}
    return PolicyBatch(0, arrays, np.full(n, agent), noise_state=state)


def exploration_of(policy: TorchPolicy) -> Any:
    return policy.explorations[0][0]  # type: ignore[index]


def latent_of(policy: TorchPolicy, agent: int = 0) -> Tensor:
    network = policy.networks[0][agent]
    features: Tensor = network.body(observations()["observation"])
    return features


# ------------------------------------------------------------------------------------------- parameters


def test_state_independent_deviations_are_the_same_everywhere() -> None:
    policy = make_policy({"type": "state_independent", "log_std_init": -0.5})
    logits = policy.action_logits(0, observations())["action"]
    mean, log_std = logits.chunk(2, dim=-1)
    assert policy.networks[0][0].heads[0].out_features == 2
    assert mean.std(dim=0).min() > 0
    torch.testing.assert_close(log_std, exploration_of(policy).log_std.expand(4, 2))


@pytest.mark.parametrize("distribution", [GAUSSIAN, SQUASHED])
def test_deviations_start_where_they_are_told_to(distribution: str) -> None:
    for kind, start in (("state_independent", -0.7), ("state_dependent", -1.1)):
        torch.manual_seed(0)
        config = [
            {
                "action_space": "gymnasium.spaces.Box",
                "distribution": distribution,
                "exploration": {"type": kind, "log_std_init": start},
            }
        ]
        composer = ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[5])])
        log_std = composer.compose(make_spec(), config).action_logits(0, observations())["action"][:, 2:]
        torch.testing.assert_close(log_std, torch.full((4, 2), start), rtol=0, atol=0.05)


def test_limits_hold_and_can_be_left_again() -> None:
    x = torch.tensor([-9.0, -9.0, 0.0, 9.0, 9.0], requires_grad=True)
    y = limited(x, (-5.0, 2.0))
    assert y.tolist() == [-5.0, -5.0, 0.0, 2.0, 2.0]
    y.backward(torch.tensor([1.0, -1.0, 3.0, 1.0, -1.0]))  # type: ignore[no-untyped-call]
    assert x.grad is not None
    # descent subtracts: -1 leads up from the lower limit, 1 down from the upper one
    assert x.grad.tolist() == [0.0, -1.0, 3.0, 1.0, 0.0]


def test_limits_bound_the_outputs_of_the_network_and_parameters() -> None:
    for kind in ("state_dependent", "state_independent"):
        policy = make_policy({"type": kind, "log_std_init": 0.0, "log_std_bounds": [-0.001, 0.001]})
        log_std = policy.action_logits(0, observations())["action"][:, 2:]
        assert log_std.abs().max() <= 0.001
        assert log_std.unique().numel() > 1 or kind == "state_independent"


# ------------------------------------------------------------------------------------------------- gSDE


def test_log_probability_by_hand() -> None:
    # phi = (1, -2), sigma = ((0.5, 1), (0.25, 2)): variances 0.25 + 4 * 0.0625 = 0.5 and 1 + 4 * 4 = 17
    module = GaussianExploration(Exploration.parse({"type": "gsde"}), 2, 1, 2)
    with torch.no_grad():
        module.log_std.copy_(torch.tensor([[[0.5, 1.0], [0.25, 2.0]]]).log())
    logits = module(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, -2.0]]), None)
    expected = [3.0, 4.0, 0.5 * math.log(0.5 + 1e-6), 0.5 * math.log(17.0 + 1e-6)]
    torch.testing.assert_close(logits, torch.tensor([expected]))
    xi = torch.tensor([[[2.0, -1.0], [1.0, 0.5]]])
    # E = sigma * xi = ((1, -1), (0.25, 1)); E^T phi = (1 - 0.5, -1 - 2)
    torch.testing.assert_close(module.noise(torch.tensor([[1.0, -2.0]]), xi, None), torch.tensor([[0.5, -3.0]]))


def slow_log_std(policy: TorchPolicy, agent: int = 0) -> list[list[float]]:
    """By loops in Python, from the features of one network."""
    sigma = exploration_of(policy).bounded_log_std()[agent].exp().tolist()
    rows = []
    for features in latent_of(policy, agent).tolist():
        variances = [sum((f * sigma[i][j]) ** 2 for i, f in enumerate(features)) for j in range(2)]
        rows.append([0.5 * math.log(variance + 1e-6) for variance in variances])
    return rows


@pytest.mark.parametrize("distribution", [GAUSSIAN, SQUASHED])
def test_it_is_a_diagonal_gaussian_of_a_slow_reference(distribution: str) -> None:
    policy = make_policy({"type": "gsde", "log_std_init": -1.0}, distribution)
    log_std = policy.action_logits(0, observations())["action"][:, 2:]
    torch.testing.assert_close(log_std, torch.tensor(slow_log_std(policy)), rtol=1e-4, atol=1e-5)


def test_the_noise_of_many_matrices_has_that_distribution() -> None:
    policy = make_policy({"type": "gsde", "log_std_init": -1.0})
    logits = policy.action_logits(0, observations(1))["action"]
    one = batch(1)
    one.observation = {name: np.repeat(array, 4000, 0) for name, array in one.observation.items()}
    one.agent_id, one.noise_state = np.zeros(4000, np.int64), {}
    action = policy.act(one, generator=torch.Generator().manual_seed(0)).action["action"]
    np.testing.assert_allclose(action.mean(0), logits[0, :2].detach(), atol=0.06)
    np.testing.assert_allclose(np.log(action.std(0)), logits[0, 2:].detach(), atol=0.06)


def play(policy: TorchPolicy, n_acts: int, state: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """Actions of one actor in the same state, act by act, and the states in between."""
    generator = torch.Generator().manual_seed(3)
    actions = []
    kept = {} if state is None else state
    for _ in range(n_acts):
        step = policy.act(batch(1, kept), generator=generator, **options)
        kept = step.noise_state or {}
        actions.append(step.action["action"][0].tolist())
    return actions


@pytest.mark.parametrize(("frequency", "n_different"), [(1, 6), (2, 3), (4, 2), (None, 1)])
def test_noise_is_kept_for_as_many_acts_as_asked(frequency: int | None, n_different: int) -> None:
    policy = make_policy({"type": "gsde", "sample_freq": frequency})
    actions = play(policy, 6)
    assert len({tuple(action) for action in actions}) == n_different
    if frequency == 2:
        assert actions[0] == actions[1] != actions[2] == actions[3] != actions[4]


def test_noise_is_a_function_of_the_state_while_it_is_kept() -> None:
    policy = make_policy({"type": "gsde", "sample_freq": None})
    state = policy.act(batch(4, {}), generator=torch.Generator().manual_seed(0)).noise_state
    assert state is not None
    state = {name: np.repeat(array[:1], 4, 0) for name, array in state.items()}  # one matrix for all
    step = policy.act(batch(4, state))
    mean = policy.action_logits(0, observations())["action"][:, :2].detach()
    sigma = exploration_of(policy).bounded_log_std()[0].exp().detach()
    expected = mean + latent_of(policy).detach() @ (sigma * torch.from_numpy(state["action"][0]))
    np.testing.assert_allclose(step.action["action"], expected, rtol=1e-5, atol=1e-6)


def test_an_episode_begins_with_new_noise_for_its_actor_only() -> None:
    policy = make_policy({"type": "gsde", "sample_freq": None})
    state = policy.act(batch(4, {}), generator=torch.Generator().manual_seed(0)).noise_state
    assert state is not None
    for array in state.values():
        array[2] = 0  # as ActorSlots does for an actor whose episode begins
    after = policy.act(batch(4, state), generator=torch.Generator().manual_seed(1)).noise_state
    assert after is not None
    assert after["action/n_acts"].tolist() == [2, 2, 1, 2]
    assert [bool((after["action"][i] == state["action"][i]).all()) for i in range(4)] == [True, True, False, True]


def test_deterministic_acts_and_acts_without_kept_noise_leave_none() -> None:
    policy = make_policy({"type": "gsde"})
    step = policy.act(batch(4, {}), deterministic=True)
    assert step.noise_state is None
    mean = policy.action_logits(0, observations())["action"][:, :2].detach()
    np.testing.assert_allclose(step.action["action"], mean, rtol=1e-5, atol=1e-7)
    alone = policy.act(batch(4, None), generator=torch.Generator().manual_seed(0))
    assert alone.noise_state is None
    assert np.abs(alone.action["action"] - step.action["action"]).min() > 0


def test_temperature_multiplies_the_variance() -> None:
    policy = make_policy({"type": "gsde", "sample_freq": None})
    mean = np.array(play(policy, 1, deterministic=True)[0])
    warm, cool = (np.array(play(policy, 1, temperature=temperature)[0]) - mean for temperature in (4.0, 1.0))
    np.testing.assert_allclose(warm, 2.0 * cool, rtol=1e-4)


def test_squashed_actions_keep_to_their_bounds_and_have_the_log_probability_of_the_distribution() -> None:
    policy = make_policy({"type": "gsde", "log_std_init": 1.0}, SQUASHED)
    step = policy.act(batch(4, {}), generator=torch.Generator().manual_seed(0), with_log_prob=True)
    action = torch.from_numpy(step.action["action"])
    assert action.abs().max() <= 2.0
    expected = policy.distribution(0, observations()).log_prob({"action": action})
    np.testing.assert_allclose(step.log_prob, expected.detach(), rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]


def test_features_learn_from_variances_only_if_asked_to() -> None:
    for learns in (False, True):
        policy = make_policy({"type": "gsde", "learn_features": learns})
        policy.train()
        policy.action_logits(0, observations())["action"][:, 2:].sum().backward()
        gradient = policy.networks[0][0].body[0].weight.grad
        assert (gradient is not None and bool(gradient.abs().max() > 0)) == learns
        assert exploration_of(policy).log_std.grad.abs().min() > 0


def test_agents_with_separate_networks_have_separate_deviations() -> None:
    spec = make_spec(n_agents=2)
    for kind in ("state_independent", "gsde"):
        policy = make_policy({"type": kind}, spec=spec, separate=True)
        assert exploration_of(policy).log_std.shape[0] == 2
        for agent in (0, 1):
            agents = torch.full((4,), agent)
            log_std = policy.action_logits(0, observations(), agents)["action"][:, 2:]
            if kind == "gsde":
                expected = torch.tensor(slow_log_std(policy, agent))
            else:
                expected = exploration_of(policy).log_std[agent].expand(4, 2)
            torch.testing.assert_close(log_std, expected, rtol=1e-4, atol=1e-5)
            step = policy.act(batch(4, {}, agent), generator=torch.Generator().manual_seed(0))
            assert step.action["action"].shape == (4, 2)


def test_other_heads_are_sampled_as_ever() -> None:
    heads = {"gear": spaces.Discrete(3), "steer": spaces.Box(-1.0, 1.0, (2, 2))}
    policy = make_policy({"type": "gsde"}, spec=make_spec(**heads))
    step = policy.act(batch(4, {}), generator=torch.Generator().manual_seed(0))
    assert step.action["steer"].shape == (4, 2, 2)
    assert set(step.action["gear"].tolist()) <= {0, 1, 2}
    assert step.noise_state is not None
    assert set(step.noise_state) == {"steer", "steer/n_acts"}


def test_templates_use_their_latent_and_custom_networks_need_a_method() -> None:
    feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [6]}}
    builder = ConcatModelBuilder({"feature": feature}, {"observation": "feature"})
    config = [{"action_head": "action", "distribution": GAUSSIAN, "exploration": {"type": "gsde"}}]
    composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), distribution_mapper_config=config)
    policy = composer.compose(make_spec()).policy
    assert exploration_of(policy).log_std.shape == (1, 6, 2)
    assert policy.action_logits(0, observations())["action"].shape == (4, 4)

    class Custom(nn.Module):
        def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
            super().__init__()
            self.layer = nn.Linear(3, action_logits_shapes["action"][0])

        def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"action": self.layer(observation["observation"])}

    independent = [{**config[0], "exploration": {"type": "state_independent"}}]
    composed = ProbabilisticPolicyComposer([Custom]).compose(make_spec(), independent)
    assert composed.action_logits(0, observations())["action"].shape == (4, 4)
    with pytest.raises(ValueError, match=r"Custom: exploration with gsde needs the features .* method return_latent"):
        ProbabilisticPolicyComposer([Custom]).compose(make_spec(), config)


def test_copies_share_no_parameters_and_states_are_saved() -> None:
    policy = make_policy({"type": "gsde"})
    other = copy.deepcopy(policy)
    with torch.no_grad():
        exploration_of(other).log_std.fill_(-9.0)
    assert exploration_of(policy).log_std.max() > -9.0
    assert other.action_logits(0, observations())["action"][:, 2:].max() < -5.0
    policy.load_state_dict(other.state_dict())
    assert exploration_of(policy).log_std.max() == -9.0


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a type, one of"),
        ("gsde", "needs a type, one of"),
        ({"type": "sde"}, "needs a type, one of"),
        ({"type": "state_independent", "sample_freq": 4}, "has no option 'sample_freq'"),
        ({"type": "gsde", "std": 4}, "has no option 'std'"),
        ({"type": "gsde", "sample_freq": 0}, "sample_freq=0 must be a number of acts, at least 1"),
        ({"type": "gsde", "learn_features": 1}, "learn_features=1 must be true or false"),
        ({"type": "gsde", "log_std_init": "low"}, "log_std_init='low' must be a finite number"),
        ({"type": "gsde", "log_std_bounds": [2, -2]}, "must be in ascending order"),
        ({"type": "gsde", "log_std_bounds": 3}, "must be two numbers"),
        ({"type": "gsde", "log_std_init": 3.0, "log_std_bounds": [-2, 2]}, "log_std_init=3 must be within"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(options)


def test_other_distributions_have_no_exploration() -> None:
    with pytest.raises(ValueError, match="a BetaProbabilityDistribution has no exploration; only a Diagonal"):
        make_policy({"type": "gsde"}, "maze_pl.distributions.BetaProbabilityDistribution")

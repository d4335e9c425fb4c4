"""RLlib's modules compute what the policy and the critic of maze_pl compute, for the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    AutomaticModelComposer,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    StepStateCriticComposer,
)
from maze_pl.rllib import RLlibDQN, RLlibPPO
from maze_pl.rllib.agent_names import AGENT_ID
from maze_pl.rllib.step_networks import load_weights, to_bytes

# RLlib takes seconds to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

N = 7
VECTOR = spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (4,))})
MIXED = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (3,)), "kind": spaces.Discrete(3), "allowed": spaces.MultiBinary(4)})
CHOICE = spaces.Dict({"choice": spaces.Discrete(4)})
SPECS = {
    "flat": Spec({0: StepSpec(VECTOR, spaces.Dict({"action": spaces.Discrete(3)}))}),
    "continuous": Spec({0: StepSpec(VECTOR, spaces.Dict({"action": spaces.Box(-2.0, 2.0, (2,))}))}),
    "dict and masked": Spec(
        {0: StepSpec(MIXED, spaces.Dict({"choice": spaces.Discrete(4)}), masks={"choice": "allowed"})}
    ),
    "several heads": Spec(
        {
            0: StepSpec(
                MIXED,
                spaces.Dict(
                    {
                        "choice": spaces.Discrete(4),
                        "pair": spaces.MultiDiscrete([2, 3]),
                        "bits": spaces.MultiBinary(2),
                        "push": spaces.Box(-1.0, 1.0, (2,)),
                    }
                ),
                masks={"choice": "allowed"},
            )
        }
    ),
    "several sub-steps": Spec(
        {
            "first": StepSpec(VECTOR, spaces.Dict({"action": spaces.Discrete(3)})),
            "second": StepSpec(MIXED, CHOICE, masks={"choice": "allowed"}),
        }
    ),
}
EPSILON_GREEDY = RLlibDQN.head_distributions


def seen(space: spaces.Dict) -> dict[str, torch.Tensor]:
    """Observations in the types that RLlib gives them."""
    space.seed(3)
    rows = [space.sample() for _ in range(N)]
    observation = {name: torch.as_tensor([row[name].tolist() for row in rows]) for name in space.spaces}
    if "allowed" in observation:
        observation["allowed"][:, 2] = 1
    return observation


def module_of(kind: str, networks: TorchActorCritic, key: Any, **options: Any) -> Any:
    """RLlib's module of a sub-step."""
    from maze_pl.rllib.policy_module import PolicyModule
    from maze_pl.rllib.q_module import QModule
    from maze_pl.rllib.training_env import rllib_action_space

    step = networks.policy.spec.steps[key]
    return {"policy": PolicyModule, "values": QModule}[kind](
        observation_space=step.observation_space,
        action_space=rllib_action_space(step.action_space),
        model_config={"networks": to_bytes(networks), "step_key": key, **options},
    )


@pytest.mark.parametrize("name", SPECS)
def test_log_probabilities_entropies_and_values_are_those_of_policy_and_critic(name: str) -> None:
    networks = RLlibPPO(spec=SPECS[name]).networks
    for key, step in SPECS[name].steps.items():
        module, observation = module_of("policy", networks, key), seen(step.observation_space)
        outputs = module.forward_train({"obs": observation})
        distribution = module.get_train_action_dist_cls().from_logits(outputs["action_dist_inputs"])
        action = distribution.sample()
        ours = module.layout.from_rllib(action)
        log_prob, entropy = networks.policy.evaluate(key, observation, ours)
        assert torch.equal(distribution.logp(action), log_prob)
        assert torch.equal(distribution.entropy(), entropy)
        assert isinstance(networks.critic, StateCritic)
        assert torch.equal(module.compute_values({"obs": observation}), networks.critic.value(key, observation))
        assert torch.allclose(distribution.kl(distribution), torch.zeros(N), atol=1e-6)
        if "allowed" in observation:
            chosen = action["choice"] if isinstance(action, dict) else action
            assert bool(observation["allowed"].gather(1, chosen[:, None]).all())


@pytest.mark.parametrize("name", SPECS)
def test_gradients_of_a_ppo_loss_are_those_of_maze_pl(name: str) -> None:
    networks = RLlibPPO(spec=SPECS[name]).networks
    for key, step in SPECS[name].steps.items():
        module, observation = module_of("policy", networks, key), seen(step.observation_space)
        outputs = module.forward_train({"obs": observation})
        distribution = module.get_train_action_dist_cls().from_logits(outputs["action_dist_inputs"])
        action = distribution.sample()
        values = module.compute_values({"obs": observation})
        (distribution.logp(action).mean() + distribution.entropy().mean() + values.square().mean()).backward()
        log_prob, entropy = networks.policy.evaluate(key, observation, module.layout.from_rllib(action))
        networks.zero_grad()
        assert isinstance(networks.critic, StateCritic)
        (log_prob.mean() + entropy.mean() + networks.critic.value(key, observation).square().mean()).backward()
        from maze_pl.rllib.step_networks import trained_part

        expected = dict(trained_part(networks, key).named_parameters())
        found = dict(module.trained.named_parameters())
        assert found.keys() == expected.keys()
        for parameter, value in found.items():
            assert torch.allclose(value.grad, expected[parameter].grad, atol=1e-7), parameter


@pytest.mark.parametrize("name", SPECS)
def test_the_module_decides_as_the_checkpoint_that_its_weights_are_written_to(name: str) -> None:
    networks = RLlibPPO(spec=SPECS[name]).networks
    exported = RLlibPPO(spec=SPECS[name]).networks
    modules = {key: module_of("policy", networks, key) for key in SPECS[name].step_keys}
    states = {}
    for key, module in modules.items():
        state = module.get_state()
        states[key] = {entry.removeprefix("trained."): torch.as_tensor(value) for entry, value in state.items()}
    load_weights(exported, states)
    for key, step in SPECS[name].steps.items():
        observation = seen(step.observation_space)
        module = modules[key]
        outputs = module.forward_inference({"obs": observation})
        chosen = module.get_inference_action_dist_cls().from_logits(outputs["action_dist_inputs"]).to_deterministic()
        ids = torch.zeros(N, dtype=torch.int64).numpy()
        arrays = {part: value.numpy() for part, value in observation.items()}
        batch = PolicyBatch(step_key=key, agent_id=ids, observation=arrays)
        decided = exported.policy.act(batch, deterministic=True).action
        for head, value in module.layout.from_rllib(chosen.sample()).items():
            assert torch.allclose(value.float(), torch.as_tensor(decided[head]).float(), atol=1e-6)


def test_a_module_has_the_parameters_of_its_sub_step_alone() -> None:
    networks = RLlibPPO(spec=SPECS["several sub-steps"]).networks
    sizes = [sum(one.numel() for one in module_of("policy", networks, key).parameters()) for key in ("first", "second")]
    assert sum(sizes) == sum(one.numel() for one in networks.parameters())


def test_networks_of_each_agent_are_chosen_by_the_agents_id() -> None:
    spec = Spec({"member": StepSpec(VECTOR, spaces.Dict({"action": spaces.Discrete(3)}), n_agents=2, n_slots=2)})
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer(
            networks=[FlattenConcatPolicyNet], substeps_with_separate_agent_nets=["member"]
        ),
        critic=StepStateCriticComposer(networks=[FlattenConcatStateValueNet]),
    ).compose(spec)
    observation, ids = seen(VECTOR), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    module = module_of("policy", networks, "member")
    outputs = module.forward_train({"obs": {**observation, AGENT_ID: ids}})
    assert torch.equal(
        outputs["action_dist_inputs"], networks.policy.action_logits("member", observation, ids)["action"]
    )


def test_target_networks_are_a_copy_that_changes_by_itself() -> None:
    networks = RLlibPPO(spec=SPECS["flat"]).networks
    module, observation = module_of("policy", networks, 0), seen(VECTOR)
    module.make_target_networks()
    before = module.forward_train({"obs": observation})["action_dist_inputs"]
    with torch.no_grad():
        for parameter in module.trained.parameters():
            parameter.add_(1.0)
    target = module.forward_target({"obs": observation})["target_network_action_dist_inputs"]
    assert torch.equal(target, before)
    assert not torch.equal(module.forward_train({"obs": observation})["action_dist_inputs"], before)
    assert not any(parameter.requires_grad for parameter in module.target.parameters())


# ------------------------------------------------------------------------------------------------------------ values


def test_values_of_actions_are_the_outputs_of_the_policy_and_minus_infinity_where_masked() -> None:
    networks = RLlibDQN(spec=SPECS["dict and masked"]).networks
    module = module_of("values", networks, 0, double_q=True, epsilon=0.1)
    observation = seen(MIXED)
    values = module.compute_q_values({"obs": observation})["qf_preds"]
    allowed = observation["allowed"].bool()
    expected = networks.policy.action_logits(0, observation)["choice"]
    assert torch.equal(values[allowed], expected[allowed])
    assert bool((values[~allowed] == -torch.inf).all())
    best = module.forward_inference({"obs": observation})["actions"]
    assert torch.equal(best, networks.policy.distribution(0, observation).deterministic_sample()["choice"])


def test_dueling_values_are_those_of_the_algorithm_of_maze_pl() -> None:
    from maze_pl.modules import DQN

    spec = SPECS["dict and masked"]
    composer = AutomaticModelComposer(critic="step")
    dqn = DQN(actor_critic=composer.compose(spec, StateCritic, EPSILON_GREEDY), dueling=True)
    module = module_of("values", dqn.networks, 0, double_q=True, epsilon=0.0)
    observation = seen(MIXED)
    values = module.compute_q_values({"obs": observation})["qf_preds"]
    for option in range(4):
        rows = observation["allowed"][:, option].bool()
        action = {"choice": torch.full((N,), option)}
        expected = dqn.action_value(0, observation, action, torch.zeros(N))
        assert torch.allclose(values[rows, option], expected[rows], atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
def test_exploration_takes_random_allowed_actions_with_the_probability_epsilon(epsilon: float) -> None:
    networks = RLlibDQN(spec=SPECS["dict and masked"]).networks
    module = module_of("values", networks, 0, double_q=True, epsilon=epsilon)
    observation = {name: value[:1].expand(4000, *value.shape[1:]) for name, value in seen(MIXED).items()}
    torch.manual_seed(0)
    actions = module.forward_exploration({"obs": observation}, t=0)["actions"]
    allowed = observation["allowed"][0].bool()
    best = int(module.forward_inference({"obs": observation})["actions"][0])
    assert bool(allowed[actions].all())
    expected = 1.0 - epsilon + epsilon / float(allowed.sum())
    assert float((actions == best).float().mean()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("double_q", [True, False])
def test_the_loss_gets_values_of_both_observations_from_both_networks(double_q: bool) -> None:
    networks = RLlibDQN(spec=SPECS["flat"]).networks
    module = module_of("values", networks, 0, double_q=double_q, epsilon=0.0)
    module.make_target_networks()
    with torch.no_grad():
        for parameter in module.trained.parameters():
            parameter.mul_(0.5)
    now, then = seen(VECTOR), {"observation": -seen(VECTOR)["observation"]}
    outputs = module.forward_train({"obs": now, "new_obs": then})
    assert torch.equal(outputs["qf_preds"], module.compute_q_values({"obs": now})["qf_preds"])
    assert torch.equal(outputs["qf_target_next_preds"], networks.policy.action_logits(0, then)["action"])
    assert ("qf_next_preds" in outputs) == double_q
    if double_q:
        assert torch.equal(outputs["qf_next_preds"], module.compute_q_values({"obs": then})["qf_preds"])
    assert outputs["qf_preds"].requires_grad
    assert not outputs["qf_target_next_preds"].requires_grad


@pytest.mark.parametrize("given", [None, "None"])
def test_an_option_may_be_null_also_where_the_command_line_makes_it_text(given: str | None) -> None:
    from maze_pl.rllib.algorithm_options import AlgorithmOptions, configuration_of

    path = "ray.rllib.algorithms.ppo.PPOConfig"
    config = configuration_of(AlgorithmOptions(path, False, {"grad_clip": given, "lambda": 0.5}, None))
    assert config.grad_clip is None
    assert config.lambda_ == 0.5
    assert (config.num_env_runners, config.clip_actions, config.normalize_actions) == (0, False, False)

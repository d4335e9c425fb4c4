"""TD3: losses and gradients against separate networks in float64, and what happens in an update."""

from __future__ import annotations

import copy
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.policy import PolicyBatch, evaluation_mode
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import DeterministicProbabilityDistribution
from maze_pl.modules import TD3
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
)
from maze_pl.schedules import Linear
from tests.modules.reported_errors import reported_errors

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

CONFIG = [{"action_space": spaces.Space, "distribution": DeterministicProbabilityDistribution}]
B = 6
HEADS = {
    "one": {"move": spaces.Box(-2.0, 4.0, (2,))},
    "two": {"move": spaces.Box(-1.0, 3.0, (2,)), "force": spaces.Box(0.0, 1.0, (1,))},
}


def step_spec(kind: str) -> StepSpec:
    return StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict(HEADS[kind]))


def composer(critic: Any = None, config: Any = CONFIG) -> CustomModelComposer:
    policy = partial(FlattenConcatPolicyNet, hidden_units=[4])
    critic = critic or SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, hidden_units=[4])])
    return CustomModelComposer(ProbabilisticPolicyComposer([policy]), critic, config)


def make(kind: str, capture: Any = "off", spec: Spec | None = None, **options: Any) -> TD3:
    torch.manual_seed(0)
    module = TD3(networks=composer(), spec=spec or Spec({0: step_spec(kind)}), capture=capture, **options)
    with torch.no_grad():
        for parameter in [*module.policy.parameters(), *module.target_policy.parameters()]:
            parameter.mul_(3.0).add_(0.3 * torch.randn_like(parameter))
        for twin in module.critic.twins:
            for buffer in twin.target.buffers():  # type: ignore[union-attr, operator]
                buffer.add_(0.2 * torch.randn_like(buffer))
    return module


def make_acts(kind: str, shape: tuple[int, ...] = (B,), seed: int = 0, dtype: Any = torch.float32) -> TransitionBatch:
    generator = torch.Generator().manual_seed(seed)
    action = {}
    for head, space in HEADS[kind].items():
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        drawn = torch.rand(*shape, *space.shape, generator=generator)
        action[head] = (low + (high - low) * drawn).to(dtype)
    observation = {"view": torch.randn(*shape, 3, generator=generator, dtype=dtype)}
    after = {"view": torch.randn(*shape, 3, generator=generator, dtype=dtype)}
    reward = torch.randn(shape, generator=generator, dtype=dtype)
    discount = torch.where(torch.rand(shape, generator=generator) < 0.3, 0.0, 0.9).to(dtype)
    return TransitionBatch(observation, action, torch.zeros(shape, dtype=torch.int64), after, reward, discount)


def replay_batch(kind: str, n_updates: int = 2, seed: int = 0, reprioritise: Any = None) -> ReplayBatch:
    return ReplayBatch({0: make_acts(kind, (n_updates, B), seed)}, n_updates, reprioritise)


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor)}


# --------------------------------------------------------------------------------------------- the slow reference


class Reference:
    """The same for each act by itself, from separate networks."""

    def __init__(self, module: TD3, kind: str) -> None:
        self.heads = HEADS[kind]
        self.policy = copy.deepcopy(module.policy.networks[0][0])
        self.target_policy = copy.deepcopy(module.target_policy.networks[0][0])
        twin: Any = module.critic.twins[0]
        self.critics, self.targets = ([copy.deepcopy(twin.network) for _ in range(2)] for _ in range(2))
        for index in range(2):
            for name, stacked in twin.network.named_parameters():
                self._set(self.critics[index], name, stacked[index])
                self._set(self.targets[index], name, twin.target.get_buffer(name)[index])

    @staticmethod
    def _set(network: Any, path: str, value: torch.Tensor) -> None:
        *owner, name = path.split(".")
        network.get_submodule(".".join(owner))._parameters[name] = nn.Parameter(value.detach().clone())

    def action(self, network: Any, seen: Any, noise: dict[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        found = {}
        for head, logits in network(seen).items():
            low, high = (torch.as_tensor(bound).double() for bound in (self.heads[head].low, self.heads[head].high))
            half = (high - low) / 2
            mean = (low + high) / 2 + half * torch.tanh(logits)
            found[head] = mean if noise is None else torch.clamp(mean + half * noise[head], low, high)
        return found

    def read(self, action: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What critics read: actions from their bounds to [-1, 1]."""
        read = {}
        for head, values in action.items():
            low, high = (torch.as_tensor(bound).double() for bound in (self.heads[head].low, self.heads[head].high))
            read[head] = 2 * (values - low) / (high - low) - 1
        return read

    def critic_loss(self, acts: Any, noise: dict[str, torch.Tensor], weight: torch.Tensor) -> tuple[Any, list[float]]:
        total, errors = torch.zeros(()).double(), []
        for b in range(B):
            taken = self.read(acts.action)
            now = {name: tensor[b : b + 1] for name, tensor in {**acts.observation, **taken}.items()}
            after = {name: tensor[b : b + 1] for name, tensor in acts.next_observation.items()}
            own_noise = {head: part[b] for head, part in noise.items()}
            after |= self.read(self.action(self.target_policy, after, own_noise))
            following = min(float(network(after)["q_value"].detach()) for network in self.targets)
            target = acts.reward[b] + acts.discount[b] * following
            both = [network(now)["q_value"][0, 0] - target for network in self.critics]
            total = total + weight[b] * (both[0] ** 2 + both[1] ** 2) / B
            errors.append(float(sum(error.detach().abs() for error in both)) / 2)
        return total, errors

    def policy_loss(self, acts: Any, weight: torch.Tensor) -> Any:
        inputs = {**acts.observation, **self.read(self.action(self.policy, acts.observation))}
        return -(weight * self.critics[0](inputs)["q_value"][:, 0]).mean()


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_gradients_are_those_of_separate_networks(kind: str, weighted: bool) -> None:
    module = make(kind, target_noise=0.4, target_noise_clip=0.3).double()
    reference, acts = Reference(module, kind), make_acts(kind, dtype=torch.float64)
    weight = torch.linspace(0.2, 1.0, B).double() if weighted else torch.ones(B).double()
    acts.weight = weight if weighted else None
    torch.manual_seed(7)
    drawn = {
        head: torch.randn(B, *space.shape, dtype=torch.float64) for head, space in step_spec(kind).action_space.items()
    }
    noise = {head: torch.clamp(0.4 * part, -0.3, 0.3) for head, part in drawn.items()}
    assert any((part.abs() == 0.3).any() for part in noise.values())
    wanted, errors = reference.critic_loss(acts, noise, weight)
    torch.testing.assert_close(reported_errors(module, acts, seed=7), torch.tensor(errors).double())
    torch.manual_seed(7)
    loss = module.critic_loss({0: acts})
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    twin: Any = module.critic.twins[0]
    for name, parameter in twin.network.named_parameters():
        apart = torch.stack([network.get_parameter(name).grad for network in reference.critics])
        torch.testing.assert_close(parameter.grad, apart)

    loss, wanted = module.policy_loss({0: acts}), reference.policy_loss(acts, weight)
    torch.testing.assert_close(loss, wanted)
    gradients = torch.autograd.grad(loss, list(module.policy.parameters()))
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, list(reference.policy.parameters())))


def test_losses_of_one_act_computed_by_hand() -> None:
    """Q_i(s, a) = a times 1 and 2, their targets a times 3 and 4; both policies choose 2.5 in [-2, 4], or a = 0.5.

    The target is 1 + 0.9 * 0.5 * min(3, 4) = 2.35. The action was 4, or a = 1: the loss is
    (1 - 2.35)^2 + (2 - 2.35)^2 = 1.945. The policy's action has the value 0.5 for the first critic.
    """
    space = StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (1,))}), spaces.Dict({"move": spaces.Box(-2.0, 4.0, (1,))}))
    critic = SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, hidden_units=[])])
    module = TD3(networks=composer(critic), spec=Spec({0: space}), target_noise=0.0)
    twin: Any = module.critic.twins[0]
    with torch.no_grad():
        parameters = [*module.policy.parameters(), *module.target_policy.parameters()]
        for tensor in [*parameters, *twin.parameters(), *twin.target.buffers()]:
            tensor.zero_()
        for policy in (module.policy, module.target_policy):
            policy.networks[0][0].get_parameter("heads.0.bias").fill_(math.atanh(0.5))
        twin.network.get_parameter("heads.0.weight")[:, 0, 1] = torch.tensor([1.0, 2.0])
        twin.target.get_buffer("heads.0.weight")[:, 0, 1] = torch.tensor([3.0, 4.0])
    view = {"view": torch.zeros(1, 1)}
    action = {"move": torch.tensor([[4.0]])}
    acts = TransitionBatch(view, action, torch.zeros(1), view, torch.ones(1), torch.full((1,), 0.9))
    assert module.critic_loss({0: acts}).item() == pytest.approx(1.945, abs=1e-5)
    assert module.policy_loss({0: acts}).item() == pytest.approx(-0.5)


# ---------------------------------------------------------------------------------------------------- an update


@pytest.mark.parametrize("kind", ["one", pytest.param("two", marks=pytest.mark.slow)])
def test_traced_updates_are_those_of_autograd(kit: SimpleNamespace, kind: str) -> None:
    states = []
    for capture in ("auto", "off"):
        module = make(kind, capture, policy_delay=2)
        torch.manual_seed(1)
        kit.fit(module, lambda seed: replay_batch(kind, 3, seed), length=2)
        assert module.capture_refusal is None
        assert module.n_traces == (2 if capture == "auto" else 0)
        states.append(state(module))
    torch.testing.assert_close(*states, rtol=0, atol=0)


def changes(kit: SimpleNamespace, module: TD3, n_updates: int, epochs: int = 1, **options: Any) -> tuple[Any, set[str]]:
    before = state(module)
    trainer = kit.fit(module, lambda seed: replay_batch("one", n_updates, seed), epochs, length=1, **options)
    return trainer, {name for name, now in state(module).items() if not torch.equal(before[name], now)}


def test_policy_and_targets_wait_for_the_third_update_also_across_a_resume(kit: SimpleNamespace, tmp_path: Any) -> None:
    module = make("one", policy_delay=3, tau=0.5)
    trainer, changed = changes(kit, module, 2)
    assert changed and all("twins.0.network" in name or name in ("n_updates", "_extra_state") for name in changed)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    old = state(module)
    resumed = make("one", policy_delay=3, tau=0.5)
    changes(kit, resumed, 1, 2, ckpt_path=tmp_path / "two.ckpt")
    new = state(resumed)
    names = {
        "actor_critic.critic.twins.0.target.heads.0.weight": "actor_critic.critic.twins.0.network.heads.0.weight",
        "target_policy.networks.0.0.heads.0.weight": "actor_critic.policy.networks.0.0.heads.0.weight",
    }
    for target, network in names.items():
        assert not torch.equal(new[network], old[network])
        torch.testing.assert_close(new[target], old[target] + 0.5 * (new[network] - old[target]))


@pytest.mark.parametrize("n_updates", [3, 4])
def test_gradient_norms_are_those_of_the_first_updates_of_a_batch(kit: SimpleNamespace, n_updates: int) -> None:
    module = make("one", policy_delay=2)
    recorded: list[str] = []
    module.record = lambda name, *values, **options: recorded.append(name)  # type: ignore[method-assign]
    kit.fit(module, lambda seed: replay_batch("one", n_updates, seed), length=2)
    assert recorded.count("critic_grad_norm") == recorded.count("policy_grad_norm") == 2


def test_only_the_critics_learn_in_their_burn_in(kit: SimpleNamespace) -> None:
    _, changed = changes(kit, make("one", critic_burn_in_epochs=1, policy_delay=1), 2)
    assert any("twins.0.network" in name for name in changed)
    assert not any("actor_critic.policy" in name for name in changed)


def test_td_errors_are_handed_over_where_they_are_asked_for(kit: SimpleNamespace) -> None:
    given: list[Any] = []
    module = make("one", "auto", critic_burn_in_epochs=1, target_noise=0.0)
    reference = Reference(module.double(), "one")
    module.float()
    kit.fit(module, lambda seed: replay_batch("one", 3, seed, given.append), length=1)
    ((key, errors),) = given[0].items()
    assert key == 0 and errors.shape == (3, B)
    acts = next(iter(replay_batch("one", 3).updates()))[0]
    exact = TransitionBatch(
        {"view": acts.observation["view"].double()},
        {"move": acts.action["move"].double()},
        acts.agent_id,
        {"view": acts.next_observation["view"].double()},  # type: ignore[index]
        acts.reward,
        acts.discount,
    )
    _, wanted = reference.critic_loss(exact, {"move": torch.zeros(B, 2).double()}, torch.ones(B))
    torch.testing.assert_close(errors[0], torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_sub_steps_in_which_nobody_has_acted_are_left_out(kit: SimpleNamespace) -> None:
    spec = Spec({"first": step_spec("one"), "second": step_spec("one")})
    module = make("", spec=spec, policy_delay=1)
    before = state(module)
    none = make_acts("one", (2, 0))
    kit.fit(module, lambda seed: ReplayBatch({"first": make_acts("one", (2, B), seed), "second": none}, 2), length=1)
    changed = {name for name, now in state(module).items() if not torch.equal(before[name], now)}
    assert any("actor_critic.policy.networks.0" in name for name in changed)
    assert not any("actor_critic.policy.networks.1" in name for name in changed)


def test_statistics_have_their_names(kit: SimpleNamespace) -> None:
    module = make("two", exploration_noise=Linear(0.4, 0.0))
    kit.fit(module, lambda seed: replay_batch("two", 2, seed), length=2)
    found = module.epoch_statistics["train"]
    names = ["policy_loss", "policy_grad_norm", "critic_value", "critic_value_loss", "critic_grad_norm"]
    assert {f"TD3Events/{name}/substep_0" for name in names} <= set(found)
    assert found["TD3Events/exploration_noise"] == pytest.approx(0.3)


def test_exploration_follows_the_schedule(kit: SimpleNamespace) -> None:
    module = make("one", exploration_noise=Linear(0.4, 0.1, until=0.5))
    view = torch.zeros(4000, 3).numpy()
    batch = PolicyBatch(0, {"view": view}, torch.zeros(4000, dtype=torch.int64).numpy())

    def spread(deterministic: bool = False) -> float:
        with torch.no_grad():  # in the middle of the box
            for parameter in module.policy.parameters():
                parameter.zero_()
        generator = torch.Generator().manual_seed(0)
        with evaluation_mode(module.policy):
            step = module.policy.act(batch, deterministic=deterministic, generator=generator)
        return float(step.action["move"].std())

    assert spread() == pytest.approx(1.2, rel=0.05)  # of half a width of 3
    kit.fit(module, lambda seed: replay_batch("one", 1, seed), 4, length=1)
    assert spread() == pytest.approx(0.3, rel=0.05)
    assert spread(deterministic=True) == 0.0


def test_the_limit_of_target_noise_follows_its_schedule_traced_or_not(kit: SimpleNamespace) -> None:
    states = []
    for capture, limit in (("auto", Linear(0.5, 0.01)), ("off", Linear(0.5, 0.01)), ("off", 0.5)):
        module = make("one", capture, target_noise=2.0, target_noise_clip=limit, optimizer="sgd", lr=0.02)
        torch.manual_seed(1)
        kit.fit(module, lambda seed: replay_batch("one", 3, seed), length=3)
        states.append(state(module))
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    name = "actor_critic.critic.twins.0.network.heads.0.weight"
    assert not torch.allclose(states[1][name], states[2][name], rtol=1e-3)


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exploration_noise": -0.1}, "exploration_noise=-0.1"),
        ({"tau": 1.5}, "tau=1.5"),
        ({"gamma": -0.1}, "gamma=-0.1"),
        ({"policy_delay": 0}, "policy_delay=0"),
        ({"target_noise": -1.0}, "target_noise=-1.0"),
        ({"target_noise_clip": -1.0}, "target_noise_clip=-1.0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TD3(networks=composer(), **options)


def test_networks_that_do_not_fit_are_refused() -> None:
    spec = Spec({0: step_spec("one")})
    with pytest.raises(ValueError, match=r"'move' of sub-step 0 has a DiagonalGaussian.*name Deterministic"):
        TD3(networks=composer(config=None), spec=spec)
    states = SharedStateCriticComposer([FlattenConcatStateValueNet])
    with pytest.raises(ValueError, match="TD3 needs a TorchStateActionCritic, not a TorchSharedStateCritic"):
        TD3(networks=composer(states), spec=spec)
    discrete = Spec({0: StepSpec(spec.steps[0].observation_space, spaces.Dict({"choice": spaces.Discrete(2)}))})
    expected = r"'choice' of sub-step 0 has the space Discrete\(2\), but TD3 needs boxes .*: use .* DQN, SAC or PPO$"
    for networks in (composer(config=None), composer(), "auto"):
        with pytest.raises(ValueError, match=expected):
            TD3(networks=networks, spec=discrete)
    actions = spaces.Dict({"move": spaces.Box(-math.inf, math.inf, (2,))})
    unbounded = Spec({0: StepSpec(spec.steps[0].observation_space, actions)})
    with pytest.raises(
        ValueError, match=r"'move' of sub-step 0 has .* TD3 needs boxes with finite bounds: give .* PPO"
    ):
        TD3(networks=composer(), spec=unbounded)


def test_batches_of_other_data_modules_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="TD3 learns from ReplayBatch batches, not from a Rollout: use "):
        kit.fit(make("one"))

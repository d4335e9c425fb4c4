"""Deep Q-network: losses and gradients against loops over options, and what happens in an update."""

from __future__ import annotations

import copy
import itertools
import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import StateCritic
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.policy import PolicyBatch, evaluation_mode
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import EpsilonGreedyProbabilityDistribution
from maze_pl.modules import DQN
from maze_pl.perception import (
    CustomModelComposer,
    DeltaStateCriticComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
)
from maze_pl.schedules import Constant, Linear
from tests.modules.reported_errors import reported_errors

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

CONFIG = [{"action_space": spaces.Space, "distribution": EpsilonGreedyProbabilityDistribution}]
B = 6
HEADS: dict[str, dict[str, spaces.Space[Any]]] = {
    "choice": {"choice": spaces.Discrete(3, start=2)},
    "masked_choice": {"choice": spaces.Discrete(3)},
    "multi_discrete": {"pick": spaces.MultiDiscrete([2, 3])},
    "several": {"bits": spaces.MultiBinary(3), "choice": spaces.Discrete(2), "pick": spaces.MultiDiscrete([2, 2])},
}
MASKED = {"masked_choice": "choice", "several": "bits"}
"""Heads that have a mask, of three entries."""


def step_spec(kind: str) -> StepSpec:
    seen: dict[str, spaces.Space[Any]] = {"view": spaces.Box(-1, 1, (3,))}
    masks = {}
    if kind in MASKED:
        seen["mask"] = spaces.MultiBinary(3)
        masks[MASKED[kind]] = "mask"
    return StepSpec(spaces.Dict(seen), spaces.Dict(HEADS[kind]), masks=masks)


def composer(dueling: bool = False, critic: Any = None, config: Any = CONFIG) -> CustomModelComposer:
    policy = partial(FlattenConcatPolicyNet, hidden_units=[4])
    if critic is None and dueling:
        critic = SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[4])])
    return CustomModelComposer(ProbabilisticPolicyComposer([policy]), critic, config)


def make(kind: str, capture: Any = "off", dueling: bool = False, spec: Spec | None = None, **options: Any) -> DQN:
    torch.manual_seed(0)
    spec = spec or Spec({0: step_spec(kind)})
    module = DQN(networks=composer(dueling), spec=spec, capture=capture, dueling=dueling, **options)
    with torch.no_grad():
        for parameter in module.networks.parameters():
            parameter.mul_(3.0).add_(0.5 * torch.randn_like(parameter))
        for parameter in module.target.parameters():
            parameter.mul_(2.0).add_(0.5 * torch.randn_like(parameter))
    return module


def make_acts(kind: str, shape: tuple[int, ...] = (B,), seed: int = 0, dtype: Any = torch.float32) -> TransitionBatch:
    generator = torch.Generator().manual_seed(seed)
    step = step_spec(kind)

    def seen() -> dict[str, torch.Tensor]:
        found = {"view": torch.randn(*shape, 3, generator=generator, dtype=dtype)}
        if step.masks:
            found["mask"] = torch.randint(2, (*shape, 3), generator=generator, dtype=torch.int8)
            found["mask"][..., 1] = 1
        return found

    observation, after = seen(), seen()
    action = {}
    for head, space in step.action_space.items():
        if isinstance(space, spaces.Discrete):
            action[head] = torch.randint(int(space.n), shape, generator=generator) + int(space.start)
            if kind == "masked_choice":
                action[head] = torch.ones_like(action[head])
        elif isinstance(space, spaces.MultiDiscrete):
            columns = [torch.randint(int(n), shape, generator=generator) for n in space.nvec]
            action[head] = torch.stack(columns, dim=-1)
        else:
            bits = torch.randint(2, (*shape, *space.shape), generator=generator, dtype=torch.int8)
            action[head] = bits * observation["mask"]
    reward = 2 * torch.randn(shape, generator=generator, dtype=dtype)
    discount = torch.where(torch.rand(shape, generator=generator) < 0.3, 0.0, 0.9).to(dtype)
    return TransitionBatch(observation, action, torch.zeros(shape, dtype=torch.int64), after, reward, discount)


def replay_batch(kind: str, n_updates: int = 2, seed: int = 0, reprioritise: Any = None) -> ReplayBatch:
    return ReplayBatch({0: make_acts(kind, (n_updates, B), seed)}, n_updates, reprioritise)


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor)}


# --------------------------------------------------------------------------------------------- the slow reference


class Reference:
    """The same in loops over acts, heads and choices, from copies of the networks."""

    def __init__(self, module: DQN, kind: str) -> None:
        self.kind, self.step, self.module = kind, step_spec(kind), module
        self.online = self.networks(module.networks)
        self.target = self.networks(module.target)

    def networks(self, pair: Any) -> tuple[nn.Module, nn.Module | None]:
        value = copy.deepcopy(pair.critic.network) if self.module.dueling else None
        return copy.deepcopy(pair.policy.networks[0][0]), value

    def choices(self, head: str) -> list[list[int]]:
        """The options of each choice of a head, as places in the output."""
        space = self.step.action_space[head]
        if isinstance(space, spaces.MultiBinary):
            return [[2 * bit, 2 * bit + 1] for bit in range(int(space.n))]
        sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec]
        starts = [0, *itertools.accumulate(sizes)]
        return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]

    def allowed(self, head: str, options: list[int], observation: dict[str, torch.Tensor]) -> list[int]:
        if MASKED.get(self.kind) != head:
            return options
        mask = observation["mask"][0]
        if head == "bits":
            return options if mask[options[0] // 2] else options[:1]
        return [option for option in options if mask[option]]

    def taken(self, head: str, action: torch.Tensor) -> list[int]:
        space = self.step.action_space[head]
        if isinstance(space, spaces.Discrete):
            return [int(action) - int(space.start)]
        numbers = [int(number) for number in action]
        return [options[number] for options, number in zip(self.choices(head), numbers, strict=True)]

    def best(self, networks: Any, observation: dict[str, torch.Tensor]) -> dict[str, list[int]]:
        outputs = {head: output.detach() for head, output in networks[0](observation).items()}
        return {
            head: [
                max(self.allowed(head, options, observation), key=lambda option, q=outputs[head][0]: float(q[option]))
                for options in self.choices(head)
            ]
            for head in HEADS[self.kind]
        }

    def value(self, networks: Any, observation: dict[str, torch.Tensor], options: dict[str, list[int]]) -> Any:
        outputs = networks[0](observation)
        total = networks[1](observation)["value"][0, 0] if self.module.dueling else 0.0
        for head, places in options.items():
            for place, choice in zip(places, self.choices(head), strict=True):
                total = total + outputs[head][0, place]
                if self.module.dueling:
                    allowed = self.allowed(head, choice, observation)
                    total = total - sum(outputs[head][0, option] for option in allowed) / len(allowed)
        return total

    def loss(self, acts: TransitionBatch, weight: torch.Tensor) -> tuple[Any, list[float]]:
        assert acts.next_observation is not None and acts.reward is not None and acts.discount is not None
        total, errors = torch.zeros(()).double(), []
        for b in range(B):
            now = {name: tensor[b : b + 1] for name, tensor in acts.observation.items()}
            after = {name: tensor[b : b + 1] for name, tensor in acts.next_observation.items()}
            best = self.best(self.online if self.module.double_q else self.target, after)
            target = acts.reward[b] + acts.discount[b] * self.value(self.target, after, best).detach()
            options = {head: self.taken(head, acts.action[head][b]) for head in HEADS[self.kind]}
            error = self.value(self.online, now, options) - target
            size, delta = error.abs(), self.module.huber_delta
            if delta == 0.0:
                penalty = error**2
            else:
                penalty = 0.5 * error**2 if size <= delta else delta * (size - 0.5 * delta)
            total = total + weight[b] * penalty / B
            errors.append(float(size.detach()))
        return total, errors


VARIANTS = [
    {},
    {"double_q": False},
    {"dueling": True},
    {"dueling": True, "double_q": False, "huber_delta": 0.5},
    {"huber_delta": 0.0},
    {"huber_delta": Constant(0.5)},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("kind", HEADS)
def test_losses_and_gradients_are_those_of_loops_over_all_options(kind: str, options: dict[str, Any]) -> None:
    module = make(kind, **options).double()
    reference, acts = Reference(module, kind), make_acts(kind, dtype=torch.float64)
    for weight in (None, torch.linspace(0.2, 1.0, B).double()):
        acts.weight = weight
        wanted, errors = reference.loss(acts, torch.ones(B).double() if weight is None else weight)
        loss = module.loss({0: acts})
        torch.testing.assert_close(loss, wanted)
        own = [*module.policy.parameters()]
        copies = [*reference.online[0].parameters()]
        if module.dueling:
            own += module.networks.critic.parameters()  # type: ignore[union-attr]
            copies += reference.online[1].parameters()  # type: ignore[union-attr]
        torch.testing.assert_close(torch.autograd.grad(loss, own), torch.autograd.grad(wanted, copies))
    torch.testing.assert_close(reported_errors(module, acts), torch.tensor(errors).double())  # not weighted


def test_losses_of_one_act_computed_by_hand() -> None:
    """Q(s) = (1, 2), Q' = (5, 3): the networks choose option 1 and the target networks option 0.

    Double: 1 + 0.9 * 3 = 3.7; option 0 was taken, and the error is 1 - 3.7 = -2.7, the loss 2.7 - 0.5 = 2.2.
    Otherwise: 1 + 0.9 * 5 = 5.5, an error of -4.5 and a loss of 4.
    """
    space = StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict({"choice": spaces.Discrete(2)}))
    view = {"view": torch.zeros(1, 3)}
    acts = TransitionBatch(
        view, {"choice": torch.tensor([0])}, torch.zeros(1), view, torch.ones(1), torch.full((1,), 0.9)
    )
    for double, expected in ((True, 2.2), (False, 4.0)):
        module = DQN(networks=composer(), spec=Spec({0: space}), double_q=double)
        with torch.no_grad():
            for parameter in [*module.policy.parameters(), *module.target.parameters()]:
                parameter.zero_()
            for policy, values in ((module.policy, [1.0, 2.0]), (module.target.policy, [5.0, 3.0])):
                policy.networks[0][0].heads[0].bias.copy_(torch.tensor(values))
        assert module.loss({0: acts}).item() == pytest.approx(expected)


# ---------------------------------------------------------------------------------------------------- an update


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("kind", ["masked_choice", pytest.param("several", marks=pytest.mark.slow)])
def test_traced_updates_are_those_of_autograd(kit: SimpleNamespace, kind: str, dueling: bool) -> None:
    states = []
    for capture in ("auto", "off"):
        module = make(kind, capture, dueling, target_update_interval=2)
        kit.fit(module, lambda seed: replay_batch(kind, 3, seed), length=2)
        assert module.capture_refusal is None
        assert module.n_traces == (capture == "auto")
        states.append(state(module))
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_the_linear_part_of_the_loss_follows_its_schedule_traced_or_not(kit: SimpleNamespace) -> None:
    states = []
    for capture, delta in (("auto", Linear(1.0, 0.01)), ("off", Linear(1.0, 0.01)), ("off", 1.0)):
        module = make("choice", capture, huber_delta=delta, optimizer="sgd")
        kit.fit(module, lambda seed: replay_batch("choice", 3, seed), length=3)
        states.append(state(module))
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    assert any(not torch.allclose(states[1][name], states[2][name], rtol=1e-3) for name in states[1])


def test_targets_are_copied_after_every_third_update_also_across_a_resume(kit: SimpleNamespace, tmp_path: Any) -> None:
    def fit(module: DQN, n_updates: int, epochs: int, **options: Any) -> tuple[Any, bool]:
        before = [parameter.clone() for parameter in module.target.parameters()]
        trainer = kit.fit(module, lambda seed: replay_batch("choice", n_updates, seed), epochs, length=1, **options)
        moved = [not torch.equal(*pair) for pair in zip(before, module.target.parameters(), strict=True)]
        return trainer, all(moved)

    module = make("choice", target_update_interval=3)
    trainer, moved = fit(module, 2, 1)
    assert not moved
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    resumed = make("choice", target_update_interval=3)
    assert fit(resumed, 1, 2, ckpt_path=tmp_path / "two.ckpt")[1]
    for own, copied in zip(resumed.networks.parameters(), resumed.target.parameters(), strict=True):
        assert torch.equal(own, copied)


def test_targets_can_move_by_a_fraction(kit: SimpleNamespace) -> None:
    module = make("choice", target_update_interval=1, tau=0.25)
    before = [parameter.clone() for parameter in module.target.parameters()]
    kit.fit(module, lambda seed: replay_batch("choice", 1, seed), length=1)
    for old, own, target in zip(before, module.networks.parameters(), module.target.parameters(), strict=True):
        torch.testing.assert_close(target, old + 0.25 * (own - old))


def test_only_the_critic_learns_in_its_burn_in(kit: SimpleNamespace) -> None:
    module = make("choice", dueling=True, critic_burn_in_epochs=1)
    before = state(module)
    kit.fit(module, lambda seed: replay_batch("choice", 2, seed), length=1)
    changed = {name for name, now in state(module).items() if not torch.equal(before[name], now)}
    assert changed and all(".critic." in name or name in ("n_updates", "_extra_state") for name in changed - NOT_LEARNT)


NOT_LEARNT = {"actor_critic.policy.exploration", "target.policy.exploration"}


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_td_errors_are_handed_over_where_they_are_asked_for(
    kit: SimpleNamespace, capture: str, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Any] = []
    module = make("multi_discrete", capture, lr=1e-9)
    reference = Reference(module, "multi_discrete")
    with caplog.at_level(logging.INFO):
        kit.fit(module, lambda seed: replay_batch("multi_discrete", 3, seed, given.append), length=1)
    told = [message for message in caplog.messages if "by autograd" in message]
    assert [message.split(":")[0] for message in told] == {
        "auto": ["updates by DQN.loss are computed by autograd"],
        "off": [],
    }[capture]
    ((key, errors),) = given[0].items()
    assert key == 0 and errors.shape == (3, B)
    for update, acts in enumerate(replay_batch("multi_discrete", 3).updates()):
        _, wanted = reference.loss(acts[0], torch.ones(B))
        torch.testing.assert_close(errors[update], torch.tensor(wanted), rtol=1e-4, atol=1e-4)


class Variant(DQN):
    """A target and a loss of a user's, written with public names."""

    def next_value(self, key: Any, observation: Any, agent_id: torch.Tensor) -> torch.Tensor:
        return super().next_value(key, observation, agent_id) + 1.0

    def loss(self, minibatch: dict[Any, TransitionBatch]) -> torch.Tensor:
        total = torch.zeros(())
        for key, acts in minibatch.items():
            observation, reward, discount = acts.outcome
            with torch.no_grad():
                target = reward + discount * self.next_value(key, observation, acts.agent_id)
            error = self.action_value(key, acts.observation, acts.action, acts.agent_id) - target
            self.td_errors.keep(key, error)
            total = total + acts.weighted_mean(self.penalty(error))
        return total


def test_a_variant_of_the_target_needs_public_names_only(kit: SimpleNamespace) -> None:
    given: list[Any] = []
    plain = make("choice")
    variant = Variant(actor_critic=copy.deepcopy(plain.networks), lr=1e-9)
    variant.target.load_state_dict(plain.target.state_dict())
    kit.fit(variant, lambda seed: replay_batch("choice", 2, seed, given.append), length=1)
    errors = given[0][0]
    assert not errors.requires_grad
    for update, acts in enumerate(replay_batch("choice", 2).updates()):
        following, reward, discount = acts[0].outcome
        target = reward + discount * (1.0 + plain.next_value(0, following, acts[0].agent_id))
        value = plain.action_value(0, acts[0].observation, acts[0].action, acts[0].agent_id)
        torch.testing.assert_close(errors[update], (value - target).abs().detach(), rtol=1e-4, atol=1e-4)
    kit.fit(variant, lambda seed: replay_batch("choice", 2, seed), length=1)
    assert (variant.capture_refusal, variant.n_traces) == (None, 1)  # traced without priorities


@pytest.mark.parametrize("dueling", [False, True])
def test_sub_steps_in_which_nobody_has_acted_are_left_out(kit: SimpleNamespace, dueling: bool) -> None:
    spec = Spec({"one": step_spec("choice"), "two": step_spec("multi_discrete")})
    module = make("", dueling=dueling, spec=spec)
    none = make_acts("multi_discrete", (2, 0))
    before = state(module)
    kit.fit(module, lambda seed: ReplayBatch({"one": make_acts("choice", (2, B), seed), "two": none}, 2), length=1)
    changed = {name for name, now in state(module).items() if not torch.equal(before[name], now)}
    assert any("policy.networks.0" in name for name in changed)
    assert not any("policy.networks.1" in name for name in changed)
    assert any(".critic." in name for name in changed) == dueling
    both = ReplayBatch({"one": make_acts("choice", (2, B)), "two": make_acts("multi_discrete", (2, B))}, 2)
    kit.fit(module, lambda seed: both, length=1)
    assert "DQNEvents/value_loss/substep_two" in module.epoch_statistics["train"]


def test_statistics_have_their_names(kit: SimpleNamespace) -> None:
    module = make("several", epsilon=Linear(0.8, 0.0))
    kit.fit(module, lambda seed: replay_batch("several", 2, seed), length=2)
    found = module.epoch_statistics["train"]
    names = ["q_value", "td_error", "value_loss", "policy_grad_norm"]
    assert {f"DQNEvents/{name}/substep_0" for name in names} <= set(found)
    assert found["DQNEvents/epsilon"] == pytest.approx(0.6)  # of two batches, 0.8 and 0.4


# -------------------------------------------------------------------------------------------------- exploration


def random_share(module: DQN, kind: str, deterministic: bool = False) -> float:
    """Share of the actions of 4,000 equal actors that are not the most frequent one."""
    acts = make_acts(kind, (1,))
    observation = {name: tensor.numpy().repeat(4000, axis=0) for name, tensor in acts.observation.items()}
    batch = PolicyBatch(0, observation, torch.zeros(4000, dtype=torch.int64).numpy())
    generator = torch.Generator().manual_seed(0)
    with evaluation_mode(module.policy):
        action = module.policy.act(batch, deterministic=deterministic, generator=generator).action["choice"]
    counts = torch.bincount(torch.from_numpy(action), minlength=5).float() / 4000
    if "mask" in observation:
        assert counts[:3][acts.observation["mask"][0] == 0].sum() == 0
    return 1.0 - float(counts.max())


def test_exploration_follows_the_schedule_and_respects_masks(kit: SimpleNamespace, tmp_path: Any) -> None:
    module = make("masked_choice", epsilon=Linear(1.0, 0.2, until=0.5))
    n_allowed = int(make_acts("masked_choice", (1,)).observation["mask"].sum())
    at_random = 1.0 - 1.0 / n_allowed
    assert random_share(module, "masked_choice") == pytest.approx(at_random, abs=0.03)
    make_batch = partial(replay_batch, "masked_choice", 1)
    trainer = kit.fit(module, lambda seed: make_batch(seed), 4, length=1)
    assert float(module.policy.exploration) == pytest.approx(0.2)  # type: ignore[arg-type]
    assert random_share(module, "masked_choice") == pytest.approx(0.2 * at_random, abs=0.03)
    assert random_share(module, "masked_choice", deterministic=True) == 0.0
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    loaded = make("masked_choice", epsilon=Linear(1.0, 0.2, until=0.5))
    loaded.load_state_dict(torch.load(tmp_path / "end.ckpt", weights_only=True)["state_dict"])
    assert float(loaded.policy.exploration) == pytest.approx(0.2)  # type: ignore[arg-type]


def test_a_number_is_a_constant_epsilon() -> None:
    module = make("masked_choice", epsilon=0.5)
    assert float(module.policy.exploration) == 0.5  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.5}, "epsilon=1.5"),
        ({"epsilon": Linear(1.0, -0.5)}, "epsilon"),
        ({"tau": 1.5}, "tau=1.5"),
        ({"gamma": -0.1}, "gamma=-0.1"),
        ({"target_update_interval": 0}, "target_update_interval=0"),
        ({"huber_delta": -1.0}, "huber_delta=-1.0"),
        ({"huber_delta": Linear(1.0, 0.0)}, "huber_delta=0.0 must be greater than 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DQN(networks=composer(), **options)


def test_networks_that_do_not_fit_are_refused() -> None:
    spec = Spec({0: step_spec("multi_discrete")})
    with pytest.raises(ValueError, match=r"'pick' of sub-step 0 has a MultiCategorical.*name EpsilonGreedy"):
        DQN(networks=composer(config=None), spec=spec)
    twins = SharedStateActionCriticComposer([FlattenConcatStateActionValueNet])
    with pytest.raises(ValueError, match="DQN needs a StateCritic, not a TorchSharedStateActionCritic"):
        DQN(networks=composer(critic=twins), spec=spec, dueling=True)
    delta = DeltaStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[4])])
    with pytest.raises(ValueError, match="which a delta critic does not have: use a SharedStateCriticComposer"):
        DQN(networks=composer(critic=delta), spec=Spec({"a": spec.steps[0], "b": spec.steps[0]}), dueling=True)
    with pytest.raises(ValueError, match="without a critic: leave the critic out of networks"):
        DQN(networks=composer(dueling=True), spec=spec)
    box = Spec({0: StepSpec(step_spec("choice").observation_space, spaces.Dict({"move": spaces.Box(-1, 1, (2,))}))})
    for networks in (composer(), "auto"):
        with pytest.raises(
            ValueError, match=r"'move' of sub-step 0 .*, but DQN needs discrete options: use .* SAC, TD3"
        ):
            DQN(networks=networks, spec=box)


class RememberingValueNet(nn.Module):
    """Critic with memory."""

    def __init__(self, obs_shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.state_shapes = {"memory": (2,)}
        self.linear = nn.Linear(2, 1)

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"value": self.linear(inputs["memory"]), "memory": inputs["memory"] + 1}


def test_recurrent_critics_are_refused() -> None:
    critic = SharedStateCriticComposer([RememberingValueNet])
    with pytest.raises(ValueError, match=r"the critic is recurrent \(policy state \['memory'\]\)"):
        DQN(networks=composer(critic=critic), spec=Spec({0: step_spec("choice")}), dueling=True)


def test_a_critic_for_each_sub_step_serves_dueling_too() -> None:
    spec = Spec({"one": step_spec("choice"), "two": step_spec("multi_discrete")})
    critic = StepStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[4])])
    module = DQN(networks=composer(critic=critic), spec=spec, dueling=True)
    acts = {"one": make_acts("choice"), "two": make_acts("multi_discrete")}
    loss = module.loss(acts)
    assert all(part.abs().sum() > 0 for part in torch.autograd.grad(loss, list(module.networks.parameters())))


def test_automatic_networks_have_a_critic_if_dueling() -> None:
    spec = Spec({0: step_spec("several")})
    assert DQN(spec=spec).critic is None
    assert isinstance(DQN(spec=spec, dueling=True).critic, StateCritic)
    assert DQN(spec=spec).critic is None


def test_batches_of_other_data_modules_are_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="DQN learns from ReplayBatch batches, not from a Rollout: use "):
        kit.fit(make("multi_discrete"))

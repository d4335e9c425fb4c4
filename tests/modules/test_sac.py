"""Soft actor-critic: losses and gradients against loops over enumerated actions, and what happens in an update."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchStepStateActionCritic
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    BetaProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    ProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.modules import SAC
from maze_pl.modules.usable_heads import has_gradient_of_samples, refuse_open_bounds
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    StepStateActionCriticComposer,
    TemplateModelComposer,
)
from maze_pl.schedules import Linear
from tests.modules.reported_errors import reported_errors
from tests.modules.sac_reference import (
    HEADS,
    SQUASHED,
    B,
    Reference,
    actions,
    composer,
    every_kind,
    make,
    make_acts,
    replay_batch,
    step_spec,
)


@every_kind
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_their_gradients_are_those_of_loops_over_all_options(kind, weighted):
    module = make(kind).double()
    reference, acts = Reference(module, kind), make_acts(kind, dtype=torch.float64)
    weight = torch.linspace(0.2, 1.0, B).double() if weighted else torch.ones(B).double()
    acts.weight = weight if weighted else None

    wanted, errors = reference.critic_loss(acts, reference.noise(7), weight)
    torch.testing.assert_close(reported_errors(module, acts, seed=7), torch.tensor(errors).double())
    torch.manual_seed(7)
    loss = module.critic_loss({0: acts})
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    for name, parameter in module.critic.twins[0].network.named_parameters():
        apart = torch.stack([network.get_parameter(name).grad for network in reference.critics])
        torch.testing.assert_close(parameter.grad, apart)

    values, entropies, aims = reference.value(acts.observation, reference.noise(8), reference.critics)
    wanted = -sum(w * value for w, value in zip(weight, values, strict=True)) / B
    torch.manual_seed(8)
    loss, records = module._gradient_steps.evaluate(module.policy_loss, {0: acts})
    torch.testing.assert_close(loss, wanted)
    gradients = torch.autograd.grad(loss, list(module.policy.parameters()))
    wanted_gradients = torch.autograd.grad(wanted, list(reference.policy.parameters()))
    torch.testing.assert_close(gradients, wanted_gradients)
    recorded = {(name, key): float(value.detach()) for name, value, key, _ in records}
    for head in HEADS[kind]:
        surplus = float(torch.stack(entropies[head]).mean().detach()) - sum(aims[head]) / B
        assert recorded["entropy_surplus", f"0/{head}"] == pytest.approx(surplus, rel=1e-5)
        assert recorded["entropy_coef_loss", f"0/{head}"] == pytest.approx(math.log(0.2) * surplus, rel=1e-5)
        assert recorded["target_entropy", f"0/{head}"] == pytest.approx(sum(aims[head]) / B, rel=1e-5)


def test_losses_of_one_act_computed_by_hand():
    """Q_1 = (1, 2), Q_2 = (1.5, 0.5), their copies likewise, both options equally likely, alpha 0.2.

    V = 0.5 * 1 + 0.5 * 0.5 + 0.2 * log 2 = 0.888629, and the target is 1 + 0.9 * V = 1.799766. Option 1 was taken:
    the loss is (2 - 1.799766)^2 + (0.5 - 1.799766)^2 = 1.729486.
    """
    module = SAC(networks=composer(), spec=Spec({0: StepSpec(step_spec("mixed").observation_space, ONE_CHOICE)}))
    twin = module.critic.twins[0]
    with torch.no_grad():
        for tensor in [*module.policy.parameters(), *twin.parameters(), *twin.target.buffers()]:
            tensor.zero_()
        for bias in (twin.network.get_parameter("heads.0.bias"), twin.target.get_buffer("heads.0.bias")):
            bias.copy_(torch.tensor([[1.0, 2.0], [1.5, 0.5]]))
    view = {"view": torch.zeros(1, 3)}
    acts = TransitionBatch(
        view, {"choice": torch.tensor([1])}, torch.zeros(1), view, torch.ones(1), torch.full((1,), 0.9)
    )
    assert module.critic_loss({0: acts}).item() == pytest.approx(1.729486, abs=1e-5)
    assert module.policy_loss({0: acts}).item() == pytest.approx(-0.888629, abs=1e-5)


def test_minima_over_several_choices_are_those_of_whole_values():
    """Q_1 = (1, 2) + (5, 5), Q_2 = (3, 3) + (2, 4): means are 6.5 and 6, while minima choice by choice give 4.5."""
    space = spaces.Dict({"choice": spaces.Discrete(2), "other": spaces.Discrete(2)})
    module = SAC(networks=composer(), spec=Spec({0: StepSpec(step_spec("mixed").observation_space, space)}))
    twin = module.critic.twins[0]
    with torch.no_grad():
        for tensor in [*module.policy.parameters(), *twin.parameters()]:
            tensor.zero_()
        twin.network.get_parameter("heads.0.bias").copy_(torch.tensor([[1.0, 2.0], [3.0, 3.0]]))
        twin.network.get_parameter("heads.1.bias").copy_(torch.tensor([[5.0, 5.0], [2.0, 4.0]]))
    view = {"view": torch.zeros(1, 3)}
    acts = TransitionBatch(view, {}, torch.zeros(1, dtype=torch.int64), view, torch.ones(1), torch.full((1,), 0.9))
    assert module.policy_loss({0: acts}).item() == pytest.approx(-(6.0 + 0.4 * math.log(2.0)), abs=1e-5)


@pytest.mark.parametrize("kind", ["multi_discrete", "masked_bits", "mixed"])
def test_constants_that_move_between_choices_change_nothing(kind):
    """Only the sum over choices is learned: nothing else keeps the terms of the first choices from moving apart."""
    n_options = {"multi_discrete": [2, 3], "masked_bits": [2, 2, 2], "mixed": [2, 2]}[kind]
    found = []
    for constant in (0.0, 20.0):
        module = make(kind).double()
        twin = module.critic.twins[0]
        with torch.no_grad():
            for biases in (twin.network.get_parameter("heads.0.bias"), twin.target.get_buffer("heads.0.bias")):
                first, second, *_ = biases[0].split(n_options)  # of the first critic
                first += constant
                second -= constant
        acts = make_acts(kind, dtype=torch.float64)
        torch.manual_seed(3)
        losses = [module.critic_loss({0: acts}), module.policy_loss({0: acts})]
        found.append([*losses, *torch.autograd.grad(losses[1], list(module.policy.parameters()))])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "space", [spaces.Discrete(4), spaces.MultiDiscrete([2, 2]), spaces.MultiDiscrete([2] * 6), spaces.MultiBinary(3)]
)
def test_values_of_any_number_of_choices_are_learned(space):
    """A reward of 1 in each step, discounted by 0.9, is worth 10 whatever is chosen."""
    torch.manual_seed(0)
    spec = Spec({0: StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict({"act": space}))})
    module = SAC(networks=composer(8), spec=spec, capture="off", entropy_tuning=False, entropy_coef=0.0)
    module.on_coefficients_set()
    optimizer = torch.optim.Adam(module.critic.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    view = {"view": torch.zeros(32, 3)}
    for _ in range(500):
        action = {"act": actions(space, (32,), generator)}
        agents = torch.zeros(32, dtype=torch.int64)
        acts = TransitionBatch(view, action, agents, view, torch.ones(32), torch.full((32,), 0.9))
        optimizer.zero_grad()
        module.critic_loss({0: acts}).backward()
        optimizer.step()
        module.critic.update_targets(0.1)
    values = module.critic.action_value(0, view, action).detach()
    torch.testing.assert_close(values, torch.full_like(values, 10.0), rtol=0.0, atol=0.3)


def test_units_of_a_box_make_no_difference_to_what_is_aimed_at():
    """A box of width 0.1 has no density of larger entropy than log 0.1 = -2.3: it could never have one of -1."""
    found = []
    for width in (2.0, 0.1):
        space = spaces.Box(0.0, width, (1,))
        even = SquashedGaussianProbabilityDistribution(torch.zeros(1, 2), space)
        spec = Spec({0: StepSpec(step_spec("mixed").observation_space, spaces.Dict({"move": space}))})
        target = SAC(networks=composer(), spec=spec)._target_entropy(even)
        found.append((even.entropy() - target).item())
        assert target == pytest.approx(-1.0 + math.log(width / 2))
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[0] > 0.0


ONE_CHOICE = spaces.Dict({"choice": spaces.Discrete(2)})

# ---------------------------------------------------------------------------------------------------- an update


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor)}


@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("continuous", "masked_choice") else pytest.param(kind, marks=pytest.mark.slow) for kind in HEADS],
)
def test_recorded_updates_are_those_of_autograd(kit, kind):
    states = []
    for capture in ("auto", "off"):
        module = make(kind, capture, max_grad_norm=0.5 if kind == "mixed" else 0.0)
        torch.manual_seed(1)
        kit.fit(module, lambda seed: replay_batch(kind, 3, seed), length=2)
        assert module.capture_refusal is None
        assert module.n_traces == (3 if capture == "auto" else 0)
        states.append(state(module))
    assert not torch.equal(states[0]["log_entropy_coef"], torch.full_like(states[0]["log_entropy_coef"], math.log(0.2)))
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"normalization": "layer", "dropout": 0.3}, {"normalization": "batch"}], ids=str)
def test_dropout_and_normalisation_of_policy_and_critics_are_those_of_autograd(kit, options):
    states = []
    for capture in ("auto", "off"):
        feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [8], **options}}
        builder = ConcatModelBuilder({"feature": feature}, {"view": "feature"})
        policy, critic = ProbabilisticPolicyComposer(), SharedStateActionCriticComposer()
        networks = TemplateModelComposer(builder, policy, critic, distribution_mapper_config=SQUASHED)
        torch.manual_seed(0)
        module = SAC(networks=networks, spec=Spec({0: step_spec("continuous")}), capture=capture, tau=0.5)
        torch.manual_seed(1)
        kit.fit(module, lambda seed: replay_batch("continuous", 3, seed), length=2)
        is_traced = capture == "auto" and "dropout" in options
        assert (module.n_traces > 0) == is_traced
        states.append(state(module))
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)
    for name, tensor in states[0].items():
        if "critic" in name and name.endswith("running_mean"):
            assert bool(tensor.any()), name  # also that of the target network


def test_statistics_have_their_names(kit):
    module = make("mixed")
    kit.fit(module, lambda seed: replay_batch("mixed", 2, seed))
    names = set(module.epoch_statistics["train"])
    of_step = ["policy_loss", "policy_entropy", "policy_grad_norm"]
    of_step += ["critic_value", "critic_value_loss", "critic_grad_norm"]
    of_head = ["entropy_coef", "entropy_coef_loss", "target_entropy", "entropy_surplus"]
    assert {f"SACEvents/{name}/substep_0" for name in of_step} <= names
    assert {f"SACEvents/{name}/substep_0/{head}" for name in of_head for head in HEADS["mixed"]} <= names
    assert module.env_steps == 4


def test_coefficients_of_entropies_grow_where_these_are_too_small(kit):
    for multiplier, grows in ((10.0, True), (0.0, False)):
        module = make("multi_discrete", target_entropy_multiplier=multiplier, entropy_coef_lr=0.01)
        kit.fit(module, lambda seed: replay_batch("multi_discrete", 1, seed), length=1)
        moved = float(module.log_entropy_coef.detach()) - math.log(0.2)
        assert moved == pytest.approx(0.01 if grows else -0.01, rel=1e-3)  # Adam's first step
    module = make("multi_discrete", entropy_tuning=False, entropy_coef=0.0)
    kit.fit(module, lambda seed: replay_batch("multi_discrete", 1, seed), length=1)
    assert module.log_entropy_coef.tolist() == [-math.inf]
    assert module.epoch_statistics["train"]["SACEvents/entropy_coef/substep_0/pick"] == 0.0


@pytest.mark.parametrize("tuned_before", [True, False])
def test_a_coefficient_that_is_not_tuned_is_that_of_the_options_also_after_a_resume(kit, tmp_path, tuned_before):
    module = make("continuous", entropy_tuning=tuned_before)
    trainer = kit.fit(module, lambda seed: replay_batch("continuous", 2, seed), length=1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    resumed = make("continuous", entropy_tuning=False, entropy_coef=0.05)
    make_batch = partial(replay_batch, "continuous", 2)
    kit.fit(resumed, lambda seed: make_batch(seed), 2, length=1, ckpt_path=tmp_path / "one.ckpt")
    assert resumed.log_entropy_coef.exp().tolist() == pytest.approx([0.05])


@pytest.mark.slow
def test_traced_updates_follow_schedules_of_entropy_and_targets(kit):
    decreasing = {"target_entropy_multiplier": Linear(2.0, 0.1), "tau": Linear(0.5, 0.0)}
    tuned = {**decreasing, "entropy_coef_lr": Linear(0.1, 0.01)}
    fixed = {"entropy_tuning": False, "entropy_coef": Linear(0.5, 0.1)}
    for options in (tuned, fixed):
        states = []
        for capture, given in (("auto", options), ("off", options), ("off", {"entropy_tuning": "tau" in options})):
            module = make("continuous", capture, **given)
            torch.manual_seed(1)
            kit.fit(module, lambda seed: replay_batch("continuous", 2, seed), 2, length=2)
            n_losses = 3 if "tau" in options else 2  # coefficients that are not tuned have no loss
            assert module.n_traces == (n_losses if capture == "auto" else 0)
            states.append(state(module))
            table = module.epoch_statistics["train"]
            assert all(f"SACEvents/{name}" in table for name, value in given.items() if callable(value))
        torch.testing.assert_close(states[0], states[1], rtol=1e-4, atol=1e-6)
        name = "log_entropy_coef"
        assert not torch.allclose(states[0][name], states[2][name], rtol=1e-3)
    assert states[0][name].exp().tolist() == pytest.approx([0.1])  # the end of the schedule
    with pytest.raises(ValueError, match=r"entropy_coef follows a schedule, but entropy_tuning=True learns it"):
        make("continuous", entropy_coef=Linear(0.5, 0.1))


@pytest.mark.parametrize("frozen", ["policy", "critic"])
def test_a_frozen_policy_or_critic_is_refused(kit, frozen):
    module = make("continuous")
    getattr(module, frozen).requires_grad_(False)
    with pytest.raises(ValueError, match="SAC trains policy and critic: each must have parameters"):
        kit.fit(module, lambda seed: replay_batch("continuous", 1, seed), length=1)


def test_copies_move_after_every_third_update_also_across_a_resume(kit, tmp_path):
    def fit(module, n_updates, epochs, **options):
        before = state(module)
        trainer = kit.fit(module, lambda seed: replay_batch("continuous", n_updates, seed), epochs, length=1, **options)
        return trainer, any(
            not torch.equal(before[name], now) for name, now in state(module).items() if "target" in name
        )

    module = make("continuous", target_update_interval=3, tau=0.5)
    trainer, moved = fit(module, 2, 1)
    assert not moved
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    old = state(module)
    resumed = make("continuous", target_update_interval=3, tau=0.5)
    fit(resumed, 1, 2, ckpt_path=tmp_path / "two.ckpt")
    new, path = state(resumed), "actor_critic.critic.twins.0.{}.heads.0.weight"
    target, network = path.format("target"), path.format("network")
    torch.testing.assert_close(new[target], old[target] + 0.5 * (new[network] - old[target]))


def test_only_the_critic_learns_in_its_burn_in(kit):
    module = make("mixed", critic_burn_in_epochs=1)
    before = state(module)
    kit.fit(module, lambda seed: replay_batch("mixed", 2, seed), length=1)
    changed = {name for name, now in state(module).items() if not torch.equal(before[name], now)}
    assert changed and all("critic" in name or name in ("_n_updates", "_extra_state") for name in changed)


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_td_errors_are_handed_over_where_they_are_asked_for(kit, capture):
    given = []
    module = make("masked_choice", capture, critic_burn_in_epochs=1)
    reference = Reference(module, "masked_choice")
    kit.fit(module, lambda seed: replay_batch("masked_choice", 3, seed, given.append), length=1)
    ((key, errors),) = given[0].items()
    assert key == 0 and errors.shape == (3, B)
    acts = next(replay_batch("masked_choice", 3).updates())[0]
    _, wanted = reference.critic_loss(acts, {}, torch.ones(B))
    torch.testing.assert_close(errors[0], torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_sub_steps_in_which_nobody_has_acted_are_left_out(kit):
    spec = Spec({"one": step_spec("mixed"), "two": step_spec("multi_discrete")})
    torch.manual_seed(0)
    module = SAC(networks=composer(), spec=spec, capture="off")
    none = make_acts("multi_discrete", (2, 0))
    before = state(module)
    kit.fit(module, lambda seed: ReplayBatch({"one": make_acts("mixed", (2, B), seed), "two": none}, 2), length=1)
    changed = {name for name, now in state(module).items() if not torch.equal(before[name], now)}
    assert not any("policy.networks.1" in name for name in changed) and "log_entropy_coef" in changed
    assert torch.equal(module.log_entropy_coef[4:], before["log_entropy_coef"][4:])
    both = ReplayBatch({"one": make_acts("mixed", (2, B)), "two": make_acts("multi_discrete", (2, B))}, 2)
    kit.fit(module, lambda seed: both, length=1)
    assert "SACEvents/critic_value_loss/substep_two" in module.epoch_statistics["train"]


# ------------------------------------------------------------------------------------------------- what is refused


class NoGradient(DiagonalGaussianProbabilityDistribution):
    def sample(self, generator=None):
        return super().sample(generator).detach()


class ZeroGradient(DiagonalGaussianProbabilityDistribution):
    def sample(self, generator=None):
        mean, log_std = self.logits.chunk(2, dim=-1)
        return torch.normal(mean, log_std.exp(), generator=generator)


class Shares(DiagonalGaussianProbabilityDistribution):
    """Shares of a whole, whose sum does not change with the logits."""

    def sample(self, generator=None):
        return super().sample(generator).softmax(dim=-1)


class NoProbabilities(ProbabilityDistribution):
    required_logits_shape = CategoricalProbabilityDistribution.required_logits_shape

    def sample(self, generator=None):
        return self.logits.argmax(dim=-1)

    deterministic_sample = entropy = sample

    def log_prob(self, action):
        return self.logits.sum(dim=-1)


def networks(policy=None, critic=None, config=()):
    policy = policy or partial(FlattenConcatPolicyNet, hidden_units=[4])
    critic = critic or composer().critic
    return CustomModelComposer(ProbabilisticPolicyComposer([policy]), critic, list(config))


FREE = {"move": spaces.Box(-math.inf, math.inf, (2,))}


@pytest.mark.parametrize(
    ("heads", "config", "message"),
    [
        ({"move": spaces.Box(-1, 1, (2,))}, [], r"'move'.*does not keep to the bounds.*SquashedGaussian"),
        (FREE, [{"action_head": "move", "distribution": NoGradient}], "'move'.*NoGradient.*samples without a gradient"),
        (FREE, [{"action_head": "move", "distribution": ZeroGradient}], "ZeroGradient, which gives samples without a"),
        (
            {"choice": spaces.Discrete(2)},
            [{"action_head": "choice", "distribution": NoProbabilities}],
            "'choice'.*no `probabilities`",
        ),
    ],
)
def test_distributions_that_cannot_serve_are_refused(heads, config, message):
    spec = Spec({0: StepSpec(step_spec("mixed").observation_space, spaces.Dict(heads))})
    with pytest.raises(ValueError, match=message):
        SAC(networks=networks(config=config), spec=spec)


@pytest.mark.parametrize(
    "box",
    [
        spaces.Box(0, math.inf, (1,)),
        spaces.Box(np.float32([0, -math.inf]), math.inf),
        spaces.Box(-math.inf, np.float32([math.inf, 1])),
    ],
)
def test_training_in_a_partly_bounded_box_begins_with_no_gaussian(box, kit):
    step = StepSpec(step_spec("mixed").observation_space, spaces.Dict({"pump": box}))
    module = SAC(networks=networks(), spec=Spec({0: step}))  # as agents that have learned can be loaded
    message = r"head 'pump'.*does not keep to the bounds.*give all components both bounds, or none, in separate heads"
    with pytest.raises(ValueError, match=message):
        kit.fit(module, lambda seed: replay_batch("mixed", 1, seed), length=1)
    with pytest.warns(UserWarning, match=message):
        refuse_open_bounds("SAC", module.policy, has_learned=True)


def test_a_box_without_bounds_is_served_by_a_normal_distribution():
    spec = Spec({0: StepSpec(step_spec("mixed").observation_space, spaces.Dict(FREE))})
    assert SAC(networks=networks(), spec=spec).critic.q_values


def test_samples_that_always_have_the_same_sum_are_learned():
    spec = Spec({0: StepSpec(step_spec("mixed").observation_space, spaces.Dict(FREE))})
    config = [{"action_head": "move", "distribution": Shares}]
    assert SAC(networks=networks(config=config), spec=spec).critic.q_values


@pytest.mark.parametrize("distribution", [SquashedGaussianProbabilityDistribution, BetaProbabilityDistribution])
def test_samples_on_a_bound_by_trained_networks_have_a_gradient(distribution):
    logits = torch.tensor([[200.0, -200.0, 1.0, 1.0]])
    assert has_gradient_of_samples(distribution(logits, spaces.Box(-1, 1, (2,))))


def test_critics_of_states_and_networks_that_remember_are_refused():
    spec = Spec({0: step_spec("multi_discrete")})
    with pytest.raises(
        ValueError, match="SAC needs a TorchStateActionCritic, not a TorchSharedStateCritic: name a composer"
    ):
        SAC(networks=networks(critic=SharedStateCriticComposer([FlattenConcatStateValueNet])), spec=spec)

    class Remembering(FlattenConcatPolicyNet):
        @property
        def state_shapes(self):
            return {"memory": (2,)}

        def forward(self, in_dict):
            return {**super().forward(in_dict), "memory": in_dict["memory"]}

    with pytest.raises(ValueError, match=r"sub-step 0 is recurrent \(policy state \['memory'\]\)"):
        SAC(networks=networks(policy=partial(Remembering, hidden_units=[4])), spec=spec)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 1.5}, "tau=1.5"),
        ({"gamma": -0.1}, "gamma=-0.1"),
        ({"target_update_interval": 0}, "target_update_interval=0"),
        ({"entropy_coef": 0.0}, "entropy_coef=0.0"),
        ({"entropy_coef": -1.0, "entropy_tuning": False}, "entropy_coef=-1.0"),
        ({"entropy_coef_lr": 0.0}, "entropy_coef_lr=0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SAC(networks=composer(), **options)


def test_batches_of_other_data_modules_are_refused(kit):
    with pytest.raises(ValueError, match="SAC learns from ReplayBatch batches, not from a Rollout: use "):
        kit.fit(make("multi_discrete"))


def test_a_critic_made_by_hand_serves_too(kit):
    spec = Spec({0: step_spec("multi_discrete")})
    policy = TorchPolicy([FlattenConcatPolicyNet({"view": (3,)}, {"pick": (5,)}, hidden_units=[4])], spec)
    pair = [FlattenConcatStateActionValueNet({"view": (3,)}, {}, {"pick": (5,)}, hidden_units=[4]) for _ in range(2)]
    module = SAC(actor_critic=TorchActorCritic(policy, TorchStepStateActionCritic([pair], spec)), capture="off")
    before = [parameter.detach().clone() for parameter in module.critic.parameters()]
    kit.fit(module, lambda seed: replay_batch("multi_discrete", 1, seed), length=1)
    changed = [not torch.equal(old, new) for old, new in zip(before, module.critic.parameters(), strict=True)]
    assert changed and all(changed)


@pytest.mark.parametrize("kind", [SharedStateActionCriticComposer, StepStateActionCriticComposer])
def test_agents_with_separate_policies_learn_to_differ(kind):
    """Both observe the same; agent 0 is paid for option 0, agent 1 for option 1."""
    torch.manual_seed(0)
    step = StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (1,))}), spaces.Dict({"act": spaces.Discrete(2)}), 2, 2)
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer(
            [partial(FlattenConcatPolicyNet, non_lin=torch.nn.Tanh, hidden_units=[8])],
            substeps_with_separate_agent_nets=[0],
        ),
        kind([partial(FlattenConcatStateActionValueNet, non_lin=torch.nn.Tanh, hidden_units=[8])]),
    )
    module = SAC(networks=networks, spec=Spec({0: step}), capture="off", entropy_tuning=False, entropy_coef=0.05)
    module.on_coefficients_set()
    optimizer = torch.optim.Adam(module.networks.parameters(), lr=0.02)
    agents, action = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    view = {"view": torch.zeros(4, 1)}
    acts = TransitionBatch(view, {"act": action}, agents, view, (agents == action).float(), torch.zeros(4))
    for _ in range(150):
        for loss in (module.critic_loss, module.policy_loss):
            optimizer.zero_grad()
            loss({0: acts}).backward()
            if loss == module.policy_loss:
                module.critic.zero_grad()
            optimizer.step()
    (probability,) = module.policy.distribution(0, view, agents).distributions.values()
    chosen = probability.probabilities()[0].gather(1, agents.unsqueeze(1))
    assert bool((chosen > 0.9).all())

"""Learning from sequences of acts gives the numbers of stepping through them one by one with torch's own cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.agents.torch_state_critic import TorchDeltaStateCritic
from maze_pl.collect.collector import Collector
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import MazeEnv, make_gym_maze_env
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.modules import A2C, PPO, LearningBatch, learning_batch
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.perception import (
    ConcatModelBuilder,
    DeltaStateCriticComposer,
    DenseBlock,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
)
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, ScriptedCoreEnv
from tests.modules.conftest import make_trainer
from tests.structured import agreement

N_HIDDEN = 5
N_FEATURES = 4


class ObserveNumberAndMask(Observe):
    """The number of the act, which no other act has, and what is allowed in it."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({**super().space().spaces, "allowed": spaces.MultiBinary(3)})

    def maze_to_space(self, maze_state: float) -> dict[str, np.ndarray]:
        allowed = [1, maze_state % 2, (maze_state + 1) % 2]
        return {**super().maze_to_space(maze_state), "allowed": np.array(allowed, np.int8)}


class ChooseTwo(Choose):
    """Two heads, of which one is masked."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({**super().space().spaces, "level": spaces.Discrete(2)})

    @property
    def action_masks(self) -> Mapping[str, str]:
        return {"choice": "allowed"}


class ComingAndGoing(ScriptedCoreEnv):
    """The agents of the last sub-step come and go."""

    @property
    def agent_counts_dict(self) -> dict[StepKey, int]:
        counts = super().agent_counts_dict
        return {**counts, max(counts): -1}


class Memory(nn.Module):
    """Plain PyTorch that remembers: features of the number, an LSTM or GRU, and heads. Shared by policy and critic."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.encoder = nn.Linear(N_FEATURES, 3)
        self.recurrent = (nn.LSTM if cell == "lstm" else nn.GRU)(3, N_HIDDEN)
        self.state_shapes = {"h": (1, N_HIDDEN)} | ({"c": (1, N_HIDDEN)} if cell == "lstm" else {})

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        inputs = self.encoder(features(tensors["id"])).tanh()
        is_act = inputs.dim() == 2
        state = [tensors[name].transpose(0, 1).contiguous() for name in self.state_shapes]
        given = inputs[None] if is_act else inputs
        output, after = self.recurrent(given, tuple(state) if len(state) == 2 else state[0])
        states = after if isinstance(after, tuple) else (after,)
        carried = {name: value.transpose(0, 1) for name, value in zip(self.state_shapes, states, strict=True)}
        return {"latent": output[0] if is_act else output, **carried}


def features(number: Tensor) -> Tensor:
    """[..., 1] -> [..., N_FEATURES]"""
    return torch.sin(number * torch.tensor([0.37, 0.71, 1.3, 2.9], dtype=number.dtype))


class Heads(nn.Module):
    def __init__(self, memory: Memory, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.memory, self.heads = memory, nn.ModuleDict({name: nn.Linear(N_HIDDEN, n) for name, n in sizes.items()})

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = self.memory(tensors)
        latent = outputs.pop("latent")
        return {name: head(latent) for name, head in self.heads.items()} | outputs


class Plain(nn.Module):
    """Remembers nothing."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(N_FEATURES, n) for name, n in sizes.items()})

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: head(features(tensors["id"])) for name, head in self.heads.items()}


# ------------------------------------------------------------------------------------------------------ what is played


def random_episode(generator: np.random.Generator, n_agents: tuple[int, ...], dynamic: bool) -> Episode:
    actors = [(key, agent) for key, count in enumerate(n_agents) for agent in range(count)]
    acts, alive, following = [], list(actors), 10
    for _ in range(int(generator.integers(3, 25))):
        actor = alive[generator.integers(len(alive))]
        done = len(alive) > 1 and generator.random() < 0.15
        if done:
            alive.remove(actor)
            if dynamic and actor[0] == len(n_agents) - 1:
                alive.append((actor[0], following))  # somebody else takes the place
                following += 1
        advance = 1 if len(actors) == 1 else int(generator.integers(2))
        acts.append(Act(*actor, float(generator.normal()), 0.0, advance, done))
    return Episode(tuple(acts), bool(generator.integers(2)), alive[generator.integers(len(alive))])


@dataclass
class Play:
    """What a test learns from."""

    n_agents: tuple[int, ...] = (1,)
    dynamic: bool = False
    cell: str = "lstm"
    critic: str = "plain"
    plain_keys: tuple[int, ...] = ()
    separate: tuple[int, ...] = ()
    seed: int = 0
    factories: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        generator, keys = np.random.default_rng(self.seed), range(len(self.n_agents))
        episodes = [tuple(random_episode(generator, self.n_agents, self.dynamic) for _ in range(3)) for _ in range(3)]
        script = Script(self.n_agents, False, tuple(episodes))
        core = ComingAndGoing if self.dynamic else ScriptedCoreEnv

        def make(index: int) -> MazeEnv:
            conversions = {k: ChooseTwo() for k in keys}, {k: ObserveNumberAndMask() for k in keys}
            return MazeEnv(core(script, index), *conversions)

        self.factories = [partial(make, index) for index in range(len(episodes))]
        self.spec = Spec.of(make(0), max_agents={max(keys): self.n_agents[-1]} if self.dynamic else None)
        self.actor_critic = self.make_networks()

    def make_networks(self) -> TorchActorCritic:
        torch.manual_seed(self.seed)
        sizes, networks = {"choice": 3, "level": 2}, []
        for key, count in enumerate(self.n_agents):
            n_networks = count if key in self.separate else 1
            made = [
                Plain(sizes) if key in self.plain_keys else Heads(Memory(self.cell), sizes) for _ in range(n_networks)
            ]
            networks.append(made if n_networks > 1 else made[0])
        policy = TorchPolicy(networks, self.spec, substeps_with_separate_agent_nets=self.separate)
        values: list[nn.Module] = [
            Heads(network.memory, {"value": 1})
            if self.critic == "sharing" and isinstance(network, Heads)
            else Plain({"value": 1})
            for network in networks
        ]
        shared = len(networks) == 1 or self.critic == "one"
        critic = TorchSharedStateCritic(values[:1], self.spec) if shared else TorchStepStateCritic(values, self.spec)
        return TorchActorCritic(policy, critic).double()

    def rollouts(self, n_rollout_steps: int) -> Iterator[Rollout]:
        collector = Collector(
            SequentialVectorEnv(self.factories, spec=self.spec), n_rollout_steps, torch.Generator().manual_seed(1)
        )
        while True:
            yield collector.collect(self.actor_critic.policy)


PLAYS = {
    "flat": Play(),
    "flat, gru, critic shares": Play(cell="gru", critic="sharing"),
    "several step keys and agents": Play((1, 3), critic="sharing"),
    "one critic for all sub-steps": Play((1, 2), critic="one"),
    "one sub-step has no memory": Play((2, 2), critic="sharing", plain_keys=(0,)),
    "agents come and go": Play((1, 2), dynamic=True, cell="gru"),
    "separate networks": Play((3,), separate=(0,)),
}
every_play = pytest.mark.parametrize("name", PLAYS)


# -------------------------------------------------------------------------------------------------- the slow reference


@dataclass
class Stepped:
    """What the reference found for one act."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


def cell_of(memory: Memory) -> nn.Module:
    """Torch's own cell for single steps with the same weights."""
    cell = (nn.LSTMCell if isinstance(memory.recurrent, nn.LSTM) else nn.GRUCell)(3, N_HIDDEN)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(cell, name, getattr(memory.recurrent, f"{name}_l0"))
    return cell


def step_by_step(play: Play, rollouts: list[Rollout], length: int) -> list[dict[StepKey, dict[float, Stepped]]]:
    """For each rollout and step key: number of the act -> what comes out when each actor steps by itself.

    Gradients stop where a rollout or an episode begins, and after every `length` acts.
    """
    zero = torch.zeros(1, N_HIDDEN, dtype=torch.float64)
    found, carried = [], dict[Any, tuple[Tensor, Tensor]]()
    critic = play.actor_critic.critic
    critics = list(critic.networks) if critic.kind == "step" else [critic.network] * len(play.n_agents)
    cells = {memory: cell_of(memory) for memory in play.actor_critic.modules() if isinstance(memory, Memory)}
    for rollout in rollouts:
        found.append({key: {} for key in rollout.segments})
        for index, (key, segment) in enumerate(rollout.segments.items()):
            n_acts: dict[int, int] = {}  # by column, in this episode and rollout
            for t, b in segment.active.nonzero().tolist():
                networks = play.actor_critic.policy.networks[index]
                network = networks[int(segment.agent_id[t, b]) if len(networks) > 1 else 0]
                number, allowed = (segment.observation[name][t, b][None] for name in ("id", "allowed"))
                latent = features(number)
                if isinstance(network, Heads):
                    begins = bool(segment.is_first[t, b])
                    n_acts[b] = 0 if begins or b not in n_acts else n_acts[b] + 1
                    state = (zero, zero) if begins else carried[key, b]
                    if n_acts[b] % length == 0:
                        state = state[0].detach(), state[1].detach()
                    inputs, cell = network.memory.encoder(latent).tanh(), cells[network.memory]
                    is_lstm = isinstance(cell, nn.LSTMCell)
                    state = cell(inputs, state) if is_lstm else (cell(inputs, state[0]), zero)
                    carried[key, b], latent = state, state[0]
                heads = {name: head(latent) for name, head in network.heads.items()}
                choice = Categorical(logits=heads["choice"].masked_fill(allowed == 0, -1e30))
                level = Categorical(logits=heads["level"])
                action = {name: segment.action[name][t, b] for name in heads}
                judged = latent if isinstance(critics[index], Heads) else features(number)
                found[-1][key][float(number)] = Stepped(
                    (choice.log_prob(action["choice"]) + level.log_prob(action["level"])).squeeze(),
                    (choice.entropy() + level.entropy()).squeeze(),
                    critics[index].heads["value"](judged).squeeze(),
                )
    return found


def prepare(play: Play, rollout: Rollout, length: int) -> LearningBatch:
    return learning_batch(
        play.actor_critic, rollout, 0.9, 0.8, normalize_advantage=True, with_log_prob=True, sequence_length=length
    )


@every_play
@pytest.mark.parametrize("length", [1, 4])
def test_sequences_give_the_numbers_of_stepping_one_by_one(name: str, length: int) -> None:
    play = PLAYS[name]
    source = play.rollouts(12)
    rollouts = [next(source).clone() for _ in range(2)]
    reference = step_by_step(play, rollouts, length)
    learner = A2C(actor_critic=play.actor_critic, entropy_coef=0.1)
    parameters = list(play.actor_critic.parameters())
    for rollout, expected in zip(rollouts, reference, strict=True):
        batch = prepare(play, rollout, length)
        for minibatches in (batch.minibatches(1), batch.minibatches(4, torch.Generator().manual_seed(0))):
            loss = sum(learner.loss(minibatch) for minibatch in minibatches)
            by_hand = sum(
                loss_by_hand(play, key, acts, expected[key]) for part in minibatches for key, acts in part.items()
            )
            torch.testing.assert_close(loss, by_hand, rtol=1e-5, atol=1e-5)
            found, wanted = (
                torch.autograd.grad(total, parameters, retain_graph=True, materialize_grads=True)
                for total in (loss, by_hand)
            )
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            assert all(gradient.abs().max() > 1e-6 for gradient in found)


def loss_by_hand(play: Play, key: StepKey, acts: PolicySamples, expected: Mapping[float, Stepped]) -> Tensor:
    """Loss of a minibatch from single steps; compares all that it is made of on the way."""
    log_prob, entropies = play.actor_critic.policy.evaluate(key, acts.observation, acts.action, acts.agent_id)
    value = play.actor_critic.critic.value(key, acts.critic_inputs, acts.agent_id)
    total = torch.zeros((), dtype=torch.float64)
    numbers, counts, judged = acts.observation["id"].flatten(), acts.weight > 0, acts.value_weight > 0
    for found, name, part in (
        (log_prob, "log_prob", counts),
        (acts.old_log_prob, "log_prob", counts),
        (entropies, "entropy", counts),
        (value, "value", judged),
        (acts.old_value, "value", judged),
    ):
        wanted = [getattr(expected[number], name) for number in numbers[part].tolist()]
        torch.testing.assert_close(found[part], torch.stack(wanted or [total])[: len(wanted)], rtol=1e-5, atol=1e-5)
    for number, advantage in zip(numbers[counts].tolist(), acts.advantage[counts], strict=True):
        total = total - (expected[number].log_prob * advantage + 0.1 * expected[number].entropy) / counts.sum()
    for number, return_ in zip(numbers[judged].tolist(), acts.return_[judged], strict=True):
        total = total + 0.5 * acts.value_weight[judged][0] * (expected[number].value - return_) ** 2
    return total


# ------------------------------------------------------------------------------------------------------- sequences


def test_sequences_are_cut_where_rollouts_and_episodes_begin_and_by_length() -> None:
    play = PLAYS["flat"]
    rollout = next(play.rollouts(12)).clone()
    segment = rollout.segments[0]
    segment.is_first.zero_()
    segment.is_first[5, 0] = segment.is_first[11, 1] = True
    numbers = torch.arange(36.0, dtype=torch.float64).view(12, 3)
    segment.observation["id"] = numbers[..., None]
    segment.state = {name: numbers[..., None, None].expand(12, 3, 1, N_HIDDEN).clone() for name in ("h", "c")}
    (minibatch,) = prepare(play, rollout, 4).minibatches(1)
    acts = minibatch[0]
    expected = [[0, 1, 2, 3], [4, 4, 4, 4], [5, 6, 7, 8], [9, 10, 11, 11]]  # rows of the first environment
    expected += [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10], [11, 11, 11, 11]]
    expected += [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    environment = [0] * 4 + [1] * 4 + [2] * 3
    wanted = torch.tensor(expected).T * 3 + torch.tensor(environment)  # [L, S]
    found = acts.observation["id"].view(4, 11)
    assert torch.equal(found, wanted.double())
    repeated = torch.cat([torch.zeros(1, 11, dtype=torch.bool), wanted[1:] == wanted[:-1]])
    torch.testing.assert_close(acts.weight.view(4, 11), (~repeated).double() / 36)
    assert torch.equal(acts.weight, acts.value_weight)
    for name in ("h", "c"):
        assert torch.equal(acts.observation[name][:, 0, 0], wanted[0].double())


@every_play
def test_every_act_is_in_one_minibatch_whose_weights_count_what_is_in_it(name: str) -> None:
    play = PLAYS[name]
    rollout = next(play.rollouts(30)).clone()
    batch = prepare(play, rollout, 3)
    assert not batch.even
    for generator in (None, torch.Generator().manual_seed(0)):
        minibatches = batch.minibatches(4, generator)
        for key, segment in rollout.segments.items():
            parts = [part[key] for part in minibatches if key in part]
            seen = torch.cat([part.observation["id"].flatten()[part.weight > 0] for part in parts])
            n_open, n_acts = batch.open_share[key]
            assert len(seen) == len(seen.unique()) == n_acts - n_open == int(segment.active.sum()) - n_open
            sizes = []
            for part in parts:
                assert part.weight.sum().item() == pytest.approx(1.0)
                n_sequences = len(part.observation[part.carried[0]]) if part.carried else len(part.weight)
                sizes.append(n_sequences)
                assert len(part.weight) % n_sequences == 0 and len(part.weight) <= 3 * n_sequences
            assert max(sizes) - min(sizes) <= 1, "dealt unevenly"
    by_step = play.actor_critic.critic.kind == "step"
    assert any(n_open for n_open, _ in batch.open_share.values()) == by_step, "open acts are to be among them"


def test_fewer_sequences_than_minibatches_leave_some_empty() -> None:
    play = PLAYS["flat"]
    minibatches = prepare(play, next(play.rollouts(3)), 50).minibatches(20)
    assert len(minibatches) == 20
    assert 0 < sum(bool(part) for part in minibatches) < 20
    learner = PPO(actor_critic=play.actor_critic, batch_size=1)
    assert all(learner.loss(part).isfinite() for part in minibatches)


# ---------------------------------------------------------------------------------------------- acting and refusals


def test_acting_needs_a_memory_that_is_the_same_in_each_call() -> None:
    play = PLAYS["several step keys and agents"]
    learner = A2C(actor_critic=play.actor_critic).eval()
    observation = {"id": np.array([3.0]), "allowed": np.array([1, 1, 1], np.int8)}
    with pytest.raises(ValueError, match=r"sub-step 1 needs a memory: pass memory=\{\}, the same dict"):
        learner.act(observation, 1)
    memory: dict[Any, Any] = {}
    state, policy = None, play.actor_critic.policy
    for number in (3.0, 8.0, 1.0):
        observation["id"] = np.array([number])
        learner.act(observation, 1, agent_id=2, memory=memory)
        batch = PolicyBatch(1, {name: array[None] for name, array in observation.items()}, np.array([2]), state)
        state = policy.act(batch, deterministic=True).state
        for name, array in state.items():
            np.testing.assert_array_equal(memory[1, 2][name], array)
    before = {name: array.copy() for name, array in memory[1, 2].items()}
    learner.act(observation, 1, agent_id=0, memory=memory)
    learner.act(observation, 0, memory=memory)
    assert set(memory) == {(1, 2), (1, 0), (0, 0)}
    assert all(np.array_equal(memory[1, 2][name], array) for name, array in before.items())


def test_a_critic_has_no_memory_of_its_own() -> None:
    sizes = {"choice": 3, "level": 2}
    for play, own in ((PLAYS["flat"], Memory("lstm")), (PLAYS["flat, gru, critic shares"], Memory("lstm"))):
        critic = TorchSharedStateCritic([Heads(own, {"value": 1})], play.spec)
        with pytest.raises(ValueError, match=r"critic of sub-step 0 carries a state of its own, \['h', 'c'\]"):
            TorchActorCritic(play.actor_critic.policy, critic)
    play = PLAYS["separate networks"]
    memories = [Memory("lstm") for _ in range(3)]
    policy = TorchPolicy(
        [[Heads(memory, sizes) for memory in memories]], play.spec, substeps_with_separate_agent_nets=[0]
    )
    with pytest.raises(ValueError, match="all agents must share"):
        TorchActorCritic(policy, TorchSharedStateCritic([Heads(memories[0], {"value": 1})], play.spec))


def test_critics_that_cannot_share_are_refused() -> None:
    spec = PLAYS["one sub-step has no memory"].spec
    with pytest.raises(ValueError, match=r"several sub-steps cannot remember \[.*\]: use a step critic"):
        TorchSharedStateCritic([Heads(Memory("gru"), {"value": 1})], spec)
    single = Spec({key: replace(step, n_agents=1, n_slots=1) for key, step in spec.steps.items()})
    with pytest.raises(ValueError, match=r"delta critic cannot remember, as its networks \[1\] do"):
        TorchDeltaStateCritic([Plain({"value": 1}), Heads(Memory("gru"), {"value": 1})], single)


def test_separate_networks_carry_the_same() -> None:
    sizes, spec = {"choice": 3, "level": 2}, PLAYS["separate networks"].spec
    networks = [Heads(Memory(cell), sizes) for cell in ("lstm", "gru", "lstm")]
    with pytest.raises(ValueError, match="networks of sub-step 0 carry different states"):
        TorchPolicy([networks], spec, substeps_with_separate_agent_nets=[0])


@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_a_sequence_length_below_one_is_refused(algorithm: Any) -> None:
    with pytest.raises(ValueError, match="sequence_length=0 must be at least 1"):
        algorithm(actor_critic=PLAYS["flat"].actor_critic, sequence_length=0)


# -------------------------------------------------------------------------------------------------------- training


def networks_that_remember(cell: str) -> TemplateModelComposer:
    config: dict[str, Any] = {
        "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8], "non_lin": nn.Tanh}},
        "recurrence": {"block_type": RecurrentBlock, "block_params": {"hidden_size": 8, "cell": cell}},
    }
    builder = ConcatModelBuilder(config, {"observation": "feature"}, ["latent"])
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())


@pytest.mark.parametrize(("algorithm", "cell"), [("ppo", "gru"), ("a2c", "lstm")])
def test_the_same_seed_gives_the_same_run(algorithm: str, cell: str) -> None:
    weights = []
    for _ in range(2):
        pl.seed_everything(3, verbose=False)
        evaluators = {"eval": RolloutEvaluator(n_episodes=2, n_envs=2)}
        make = partial(make_gym_maze_env, "CartPole-v1")
        data = RolloutDataModule(make, n_envs=3, n_rollout_steps=20, epoch_length=3, evaluators=evaluators, seed=3)
        options = {"networks": networks_that_remember(cell), "spec": data.spec, "sequence_length": 5, "lr": 1e-2}
        learner = PPO(**options, batch_size=15) if algorithm == "ppo" else A2C(**options)
        before = torch.cat([parameter.detach().flatten().clone() for parameter in learner.parameters()])
        trainer = make_trainer()
        trainer.fit(learner, data)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in learner.parameters()]))
        assert (weights[-1] != before).all()
        assert trainer.callback_metrics["eval/return"] > 0
    assert torch.equal(*weights)


@pytest.mark.parametrize("critic", [DeltaStateCriticComposer, SharedStateCriticComposer])
def test_critics_without_memory_judge_several_policies_with_one(critic: Any) -> None:
    pl.seed_everything(0, verbose=False)
    options = {"epoch_length": 2, "evaluators": {"eval": RolloutEvaluator(n_episodes=1)}, "seed": 0}
    data = RolloutDataModule(agreement.make_env, n_envs=2, n_rollout_steps=12, **options)
    names = {name for step in data.spec.steps.values() for name in step.observation_space.spaces}
    memory = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4}}
    builder = ConcatModelBuilder({"raw": None, "recurrence": memory}, dict.fromkeys(sorted(names), "raw"))
    value_net = partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=[8])
    networks = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), critic([value_net]))
    learner = PPO(networks=networks, spec=data.spec, batch_size=8, sequence_length=5)
    before = torch.cat([parameter.detach().flatten().clone() for parameter in learner.policy.parameters()])
    make_trainer().fit(learner, data)
    after = torch.cat([parameter.detach().flatten() for parameter in learner.policy.parameters()])
    assert learner.env_steps == 2 * 2 * 12
    assert after.isfinite().all() and (after != before).float().mean() > 0.9

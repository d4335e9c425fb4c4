"""Environments and recurrent networks, and a reference that steps through them act by act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.collect.collector import Collector
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.spec import Spec
from maze_pl.envs import MazeEnv
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.perception import (
    ConcatModelBuilder,
    DenseBlock,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    TemplateModelComposer,
    TransformerMemoryBlock,
)
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, ScriptedCoreEnv

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
    """Features of the number, then an LSTM, GRU or transformer that remembers. Shared by policy and critic."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.encoder = nn.Linear(N_FEATURES, 3)
        if cell == "transformer":
            self.recurrent: nn.Module = TransformerMemoryBlock("in", "out", [3], N_HIDDEN, 3, 2, num_heads=1)
            self.state_shapes = self.recurrent.state_shapes
            return
        self.recurrent = (nn.LSTM if cell == "lstm" else nn.GRU)(3, N_HIDDEN)
        self.state_shapes = {"h": (1, N_HIDDEN)} | ({"c": (1, N_HIDDEN)} if cell == "lstm" else {})

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        inputs = self.encoder(features(tensors["id"])).tanh()
        if isinstance(self.recurrent, TransformerMemoryBlock):
            outputs = self.recurrent({"in": inputs, **{name: tensors[name] for name in self.state_shapes}})
            return {"latent": outputs.pop("out"), **outputs}
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
    """Features without a memory."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({name: nn.Linear(N_FEATURES, n) for name, n in sizes.items()})

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: head(features(tensors["id"])) for name, head in self.heads.items()}


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
    """Rollouts that a test learns from."""

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
    "transformers": Play((1, 2), dynamic=True, cell="transformer", critic="sharing"),
}


@dataclass
class Stepped:
    """What the reference found for one act."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


class TransformerStep(nn.Module):
    """A single step of a transformer with a memory; the state is the output and the memory."""

    def __init__(self, block: TransformerMemoryBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if len(state) == 2:  # the first act of an episode
            memories = {name: inputs.new_zeros(1, *shape) for name, shape in self.block.state_shapes.items()}
        else:
            memories = dict(zip(self.block.state_shapes, state[1:], strict=True))
        outputs = self.block({"in": inputs, **memories})
        return outputs.pop("out"), *outputs.values()


def cell_of(memory: Memory) -> nn.Module:
    """Torch's own cell for single steps with the same weights, or the steps of a transformer."""
    if isinstance(memory.recurrent, TransformerMemoryBlock):
        return TransformerStep(memory.recurrent)
    cell = (nn.LSTMCell if isinstance(memory.recurrent, nn.LSTM) else nn.GRUCell)(3, N_HIDDEN)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(cell, name, getattr(memory.recurrent, f"{name}_l0"))
    return cell


def step_by_step(play: Play, rollouts: list[Rollout], length: int) -> list[dict[StepKey, dict[float, Stepped]]]:
    """For each rollout and step key: number of the act -> what comes out when each actor steps by itself.

    Gradients stop where a rollout or an episode begins, and after every `length` acts.
    """
    zero = torch.zeros(1, N_HIDDEN, dtype=torch.float64)
    found, carried = [], dict[Any, tuple[Tensor, ...]]()
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
                        state = tuple(part.detach() for part in state)
                    inputs, cell = network.memory.encoder(latent).tanh(), cells[network.memory]
                    is_gru = isinstance(cell, nn.GRUCell)
                    state = (cell(inputs, state[0]), zero) if is_gru else cell(inputs, state)
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


def networks_that_remember(cell: str) -> TemplateModelComposer:
    config: dict[str, Any] = {
        "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8], "non_lin": nn.Tanh}},
        "recurrence": {"block_type": RecurrentBlock, "block_params": {"hidden_size": 8, "cell": cell}},
    }
    builder = ConcatModelBuilder(config, {"observation": "feature"}, ["latent"])
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())

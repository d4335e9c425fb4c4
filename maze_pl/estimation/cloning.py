"""Estimation of the policy that recorded episodes, by behavioural cloning."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from tqdm import tqdm

from maze_pl.agents import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.estimation.probabilities import tensors
from maze_pl.estimation.recorded_acts import RecordedActs, Situations
from maze_pl.estimation.recorded_units import InRecordedUnits, Units
from maze_pl.estimation.weighted_episodes import Array
from maze_pl.perception import (
    AutomaticModelComposer,
    ConcatModelBuilder,
    ProbabilisticPolicyComposer,
    TemplateModelComposer,
)
from maze_pl.perception.automatic import kind_of
from maze_pl.system.progress import bar_options

_HELD_OUT = 0.1
"""Share of the episodes that decide when to stop."""
_BATCH_SIZE = 256
_PATIENCE = 10
"""Epochs without a better log-probability after which training ends, if there were 500 updates in them."""
_PATIENT_UPDATES = 500
_MOST_PATIENCES = 20
"""Limit of the epochs, in multiples of the patience."""
_LR = 1e-3


@dataclass(frozen=True)
class Clone:
    """Policy that was learned from recorded acts.

    Attributes:
        policy: The policy.
        held_out_log_prob: Mean log-probability, in nats, of the acts of the episodes that were held out.
    """

    policy: TorchPolicy
    held_out_log_prob: float


def clone_of(acts: RecordedActs, seed: int, progress: bool = False) -> Clone:
    """Learn the probabilities of the recorded acts.

    Networks that fit the spaces (`AutomaticModelComposer`), one for each agent of a sub-step,
    maximise the log-probability of the acts of nine tenths of the episodes, until that of the
    others has not risen for ten epochs and 500 updates. Agents whose number changes during an episode share a
    network, so that they are taken to act alike. For acts on the bounds of a Box, the probability
    is that of all samples that are clipped to them. Numbers that were recorded in any unit are
    learned equally well, see `InRecordedUnits`.
    Importance sampling with an estimated behaviour policy: J. Hanna, S. Niekum and P. Stone 2019,
    arXiv:1806.01347.

    Args:
        acts: The recorded acts.
        seed: Determines weights, held-out episodes and batches.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: There are fewer than two episodes, so that none can be held out.
    """
    if acts.n_episodes < 2:
        raise ValueError("cloning needs at least two episodes, one of which decides when to stop: record more")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = _networks(acts)
    generator = np.random.default_rng(seed)
    n_held_out = max(1, round(_HELD_OUT * acts.n_episodes))
    is_held_out = np.zeros(acts.n_episodes, bool)
    is_held_out[generator.permutation(acts.n_episodes)[:n_held_out]] = True
    of_act = is_held_out[acts.episode]
    training, held_out = np.flatnonzero(~of_act), np.flatnonzero(of_act)
    with tqdm(leave=False, unit=" epochs", **bar_options("cloning", progress)) as bar:
        best = _train(policy, acts, training, held_out, generator, bar)
    return Clone(policy.eval(), best)


def _train(
    policy: TorchPolicy,
    acts: RecordedActs,
    training: Array,
    held_out: Array,
    generator: np.random.Generator,
    bar: Any,
) -> float:
    """Train networks, and return the best mean log-probability of held-out acts, of which they keep the weights.

    Args:
        policy: The networks.
        acts: All acts.
        training: Indices of the acts to learn.
        held_out: Indices of the acts that decide when to stop.
        generator: Source of the order of the acts.
        bar: Shows the number of epochs.
    """
    optimizer = torch.optim.Adam(policy.parameters(), lr=_LR)
    best = -np.inf
    best_state = copy.deepcopy(policy.state_dict())
    n_worse = 0
    n_batches = max(1, len(training) // _BATCH_SIZE)
    patience = max(_PATIENCE, math.ceil(_PATIENT_UPDATES / n_batches))
    for _ in range(_MOST_PATIENCES * patience):
        policy.train()
        for batch in np.array_split(generator.permutation(training), n_batches):
            loss = -_log_prob(policy, acts, batch).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad(), evaluation_mode(policy):
            reached = float(_log_prob(policy, acts, held_out).mean())
        if reached > best:
            best = reached
            best_state = copy.deepcopy(policy.state_dict())
            n_worse = 0
        else:
            n_worse += 1
        bar.set_postfix_str(f"log-probability of held-out acts {best:.3f}", refresh=False)
        bar.update()
        if n_worse == patience:
            break
    policy.load_state_dict(best_state)
    return best


def _networks(acts: RecordedActs) -> TorchPolicy:
    """Make networks that fit the spaces, one for each agent where the number of agents is fixed.

    Observations that are vectors and continuous actions are standardised by those that were recorded.
    """
    spec = acts.spec
    vectors = _vectors(spec)
    arguments = AutomaticModelComposer(kinds=dict.fromkeys(vectors, "vector")).describe(spec)["init_args"]
    separate = [key for key, step in spec.steps.items() if step.n_agents > 1]
    builder = ConcatModelBuilder(**arguments["model_builder"]["init_args"])
    composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(None, separate))
    composed: Any = composer.compose(spec).policy.networks
    networks: dict[StepKey, list[nn.Module]] = {}
    for key, of_step in zip(spec.step_keys, composed, strict=True):
        situations = acts.situations[key]
        networks[key] = []
        for agent, network in enumerate(of_step):
            of_agent = situations.agent_id[: situations.n_acts] == agent
            rows = of_agent if key in separate and of_agent.any() else np.full(situations.n_acts, True)
            networks[key].append(_in_recorded_units(network, spec.steps[key], situations, rows, vectors))
    return TorchPolicy(networks, spec, None, separate)


def _vectors(spec: Spec) -> list[str]:
    """Return the observations that are plain numbers: no masks, categories or images."""
    kinds: dict[str, set[str]] = {}
    masks: set[str] = set()
    for step in spec.steps.values():
        masks.update(step.masks.values())
        for name, space in step.observation_space.spaces.items():
            kind = kind_of(space) if isinstance(space, spaces.Box) else "category"
            kinds.setdefault(name, set()).add(kind)
    return [name for name, found in kinds.items() if name not in masks and found <= {"vector", "scaled"}]


def _in_recorded_units(
    network: nn.Module, step: StepSpec, situations: Situations, rows: Array, vectors: list[str]
) -> nn.Module:
    """Give a network the units of recorded observations and actions.

    Args:
        network: The network.
        step: Its sub-step.
        situations: The acts of the sub-step.
        rows: [n_acts] which of these acts count.
        vectors: Names of the observations to standardise.
    """
    if not rows.any():
        return network
    observations = {}
    for name in vectors:
        if name in step.observation_space.spaces:
            observations[name] = Units.of(situations.observation[name][: len(rows)][rows])
    actions = {}
    for head, space in step.action_space.spaces.items():
        if isinstance(space, spaces.Box):
            actions[head] = Units.of(situations.action[head][rows].reshape(np.count_nonzero(rows), -1))
    return InRecordedUnits(network, observations, actions)


def _log_prob(policy: TorchPolicy, acts: RecordedActs, chosen: Array) -> torch.Tensor:
    """[n] log-probabilities of acts, with gradients, in the order of the sub-steps."""
    parts = []
    for place, (key, situations) in enumerate(acts.situations.items()):
        rows = acts.row[chosen[acts.key_index[chosen] == place]]
        if len(rows):
            agent_id = torch.from_numpy(situations.agent_id[rows])
            joint = policy.distribution(key, tensors(situations.observation, rows), agent_id)
            parts.append(joint.environment_log_prob(tensors(situations.action, rows)))
    return torch.cat(parts)

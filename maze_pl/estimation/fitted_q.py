"""Fitted Q evaluation: networks that learn the values of a policy from the episodes of another one."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.acting import HasProbabilities
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, evaluation_mode
from maze_pl.core.spaces import environment_actions
from maze_pl.core.spec import StepSpec
from maze_pl.estimation.features import action_features, observation_features, standardised_boxes
from maze_pl.estimation.probabilities import BATCH_SIZE, batches
from maze_pl.estimation.recorded_acts import NOTHING, RecordedActs, Situations
from maze_pl.estimation.weighted_episodes import Array, ModelValues

MOST_OPTIONS = 32
"""Number of options of a discrete action up to which all are weighted by their probabilities."""
_TAU = 0.05  # share of the new weights in the target networks after each update
_SMALL_SPREAD = 1e-4  # of returns, relative to their size: divided by it, values are too large to be learned


@dataclass(frozen=True)
class FittedQOptions:
    """Options of fitted Q evaluation.

    Attributes:
        n_updates: Updates of the networks.
        batch_size: Acts of an update.
        hidden_units: Width of each of the two hidden layers.
        lr: Learning rate of Adam.
        n_samples: Actions that are drawn in each situation where the policy's expected value cannot
            be computed from probabilities.
    """

    n_updates: int = 4000
    batch_size: int = 256
    hidden_units: int = 128
    lr: float = 1e-3
    n_samples: int = 8


@dataclass
class _Inputs:
    """Inputs of the network of a sub-step.

    Attributes:
        observation: [n, F] the situations.
        taken: [n_acts, A] the recorded acts.
        candidates: [n, K, A] acts of the evaluated policy.
        weights: [n, K] their probabilities.
    """

    observation: Tensor
    taken: Tensor
    candidates: Tensor
    weights: Tensor


class FittedQ:
    """Values of a policy, learned from recorded acts of other policies.

        Q(s_i, a_i) <- r_i + gamma^(t_{i+1} - t_i) * sum_a pi(a | s_{i+1}) Q'(s_{i+1}, a)

    The sum over the next act is exact where the policy has one discrete head with at most 32
    options and knows their probabilities; otherwise it is the mean over drawn actions. It is 0
    after an episode has terminated; where it was truncated, the value of its last situation takes
    its place. An act is that of one actor, so that the values of several sub-steps and agents refer
    to each other in the order in which they act. Q' are copies of the networks that follow them slowly.

    With a discount below 1, values are limited to what the recorded rewards allow (`value_limits`).
    Networks that exaggerate the values of acts that were never recorded would otherwise raise their
    targets again and again.

    H. Le, C. Voloshin and Y. Yue 2019, "Batch policy learning under constraints", arXiv:1903.08738.
    Departure: gradient steps with slowly moving targets instead of complete regressions.

    Args:
        acts: The recorded acts.
        policy: The policy to evaluate.
        gamma: Discount of an environment step.
        seed: Determines weights, samples and actions that are drawn.
        deterministic: Whether the policy takes its most likely actions.
        options: Options of the training.
    """

    def __init__(
        self,
        acts: RecordedActs,
        policy: Policy,
        gamma: float,
        seed: int,
        *,
        deterministic: bool = False,
        options: FittedQOptions | None = None,
    ) -> None:
        self._acts = acts
        self._gamma = gamma
        self._options = options or FittedQOptions()
        self._seed = seed
        generator = torch.Generator().manual_seed(seed)
        if acts.is_unknown.all():
            fault = "fitted Q evaluation does not know what followed any of the recorded acts"
            raise ValueError(f"{fault}: record episodes with their last observations")
        # By the place of the sub-step; those that never occur are left out.
        self._inputs: dict[int, _Inputs] = {}
        for place, key in enumerate(acts.spec.step_keys):
            situations = acts.situations[key]
            if not len(situations.agent_id):
                continue
            step = acts.spec.steps[key]
            head = _head_of_few_options(step)
            with torch.no_grad(), evaluation_mode(policy):
                if head is not None and not deterministic and isinstance(policy, HasProbabilities):
                    candidates, weights = _every_act(policy, key, head, situations)
                else:
                    n_samples = 1 if deterministic else self._options.n_samples
                    candidates = _drawn_acts(policy, key, step, situations, generator, deterministic, n_samples)
                    weights = torch.full(candidates.shape[:2], 1.0 / n_samples, dtype=torch.float32)
            taken, candidates = standardised_boxes(step, action_features(step, situations.action), candidates)
            self._inputs[place] = _Inputs(observation_features(step, situations), taken, candidates, weights)
        self._discount = torch.from_numpy(gamma ** (acts.next_time - acts.time)).float()
        self._scale = _scale_of_values(acts)
        self._reward = torch.from_numpy(acts.reward / self._scale).float()
        lowest, highest = value_limits(acts, gamma)
        self._limits = lowest / self._scale, highest / self._scale

    def can_fit(self, counts: Array) -> bool:
        """Return whether a sample has an act of which it is known what followed.

        Args:
            counts: [E] number of occurrences of each episode in the sample.
        """
        return bool(self._occurrences(counts).any())

    def _occurrences(self, counts: Array) -> Array:
        """[A] int64 number of occurrences of each act; 0 where it is unknown what followed."""
        return np.asarray(counts.astype(np.int64)[self._acts.episode] * ~self._acts.is_unknown)

    def fit(self, counts: Array, fit_seed: int, progress: Callable[[], None] | None = None) -> ModelValues:
        """Train networks on a sample of the episodes, and return the values of all acts.

        Args:
            counts: [E] number of occurrences of each episode in the sample.
            fit_seed: Seed of this fit.
            progress: Called after each update.

        Raises:
            ValueError: The values became infinite: rewards are too large, or `gamma` is. Or the
                sample has no act of which it is known what followed, see `can_fit`.
        """
        if not self.can_fit(counts):
            raise ValueError("it is not known what followed any act of this sample of the episodes")
        generator = torch.Generator().manual_seed(self._seed + fit_seed)
        networks = self._networks(generator)
        targets = copy.deepcopy(networks)
        optimizer = torch.optim.Adam(networks.parameters(), lr=self._options.lr)
        cumulated = torch.from_numpy(np.cumsum(self._occurrences(counts)))
        for _ in range(self._options.n_updates):
            chosen = drawn_acts(cumulated, self._options.batch_size, generator)
            with torch.no_grad():
                expected = self._reward[chosen] + self._discount[chosen] * self._next_values(targets, chosen)
                expected = expected.clamp(*self._limits)
            # A Huber loss would not lead to means: far below them where rewards are rare.
            loss = nn.functional.mse_loss(self._taken(networks, chosen), expected)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                for target, parameter in zip(targets.parameters(), networks.parameters(), strict=True):
                    target.lerp_(parameter, _TAU)
            if progress is not None:
                progress()
        values = self._values(targets)
        if not all(np.isfinite(part).all() for part in (values.of_acts, values.before, values.tail)):
            raise ValueError(f"fitted Q evaluation diverged: gamma={self._gamma} is too large for these episodes")
        return values

    def _networks(self, generator: torch.Generator) -> nn.ModuleDict:
        """Make a network for each sub-step."""
        width = self._options.hidden_units
        networks = {}
        for place, inputs in self._inputs.items():
            n_inputs = inputs.observation.shape[1] + inputs.candidates.shape[2]
            layers = [nn.Linear(n_inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)]
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    bound = layer.in_features**-0.5
                    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                    nn.init.zeros_(layer.bias)
            networks[str(place)] = nn.Sequential(*layers)
        return nn.ModuleDict(networks)

    def _taken(self, networks: nn.ModuleDict, chosen: Tensor) -> Tensor:
        """[n] values of recorded acts."""
        key_index = self._acts.key_index[chosen.numpy()]
        row = self._acts.row[chosen.numpy()]
        values = torch.zeros(len(chosen))
        for place, inputs in self._inputs.items():
            of_step = np.flatnonzero(key_index == place)
            if len(of_step):
                rows = torch.from_numpy(row[of_step])
                both = torch.cat([inputs.observation[rows], inputs.taken[rows]], -1)
                found = networks[str(place)](both).squeeze(-1)
                values = values.index_put((torch.from_numpy(of_step),), found)
        return values

    def _next_values(self, networks: nn.ModuleDict, chosen: Tensor) -> Tensor:
        """[n] expected values of the situations after recorded acts, 0 where there is none."""
        rows = self._acts.next_row[chosen.numpy()]
        key_index = self._acts.next_key_index[chosen.numpy()]
        values = torch.zeros(len(chosen))
        for place in self._inputs:
            of_step = np.flatnonzero((key_index == place) & (rows != NOTHING))
            if len(of_step):
                values[torch.from_numpy(of_step)] = self._expected(networks, place, torch.from_numpy(rows[of_step]))
        return values

    def _expected(self, networks: nn.ModuleDict, place: int, rows: Tensor) -> Tensor:
        """[n] expected values of situations of a sub-step over the acts of the policy."""
        inputs = self._inputs[place]
        candidates = inputs.candidates[rows]
        observation = inputs.observation[rows].unsqueeze(1).expand(-1, candidates.shape[1], -1)
        values = networks[str(place)](torch.cat([observation, candidates], -1)).squeeze(-1)
        total: Tensor = (values.clamp(*self._limits) * inputs.weights[rows]).sum(-1)
        return total

    @torch.no_grad()
    def _values(self, networks: nn.ModuleDict) -> ModelValues:
        """Values of all acts, of their situations, and of the last situations of truncated episodes."""
        acts = self._acts
        taken = np.zeros(len(acts.reward))
        before = np.zeros(len(acts.reward))
        after = np.zeros(len(acts.reward))
        for start in range(0, len(acts.reward), BATCH_SIZE):
            # A slice, since NumPy takes a tensor of one index for a number.
            part = slice(start, min(start + BATCH_SIZE, len(acts.reward)))
            chosen = torch.arange(part.start, part.stop)
            taken[part] = self._taken(networks, chosen).clamp(*self._limits).double().numpy()
            after[part] = self._next_values(networks, chosen).double().numpy()
            for place in self._inputs:
                of_step = start + np.flatnonzero(acts.key_index[part] == place)
                if len(of_step):
                    rows = torch.from_numpy(acts.row[of_step])
                    before[of_step] = self._expected(networks, place, rows).double().numpy()
        tail = after[acts.is_last] * self._gamma ** acts.next_time[acts.is_last]
        scale = self._scale
        return ModelValues(acts.padded(taken) * scale, acts.padded(before) * scale, tail * scale)


def drawn_acts(cumulated: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """[n] int64 acts, drawn with replacement by their numbers of occurrences.

    `torch.multinomial` draws from at most 2^24 of them.

    Args:
        cumulated: [A] int64 cumulative sums of the numbers of occurrences.
        n: Number of draws.
        generator: Source of randomness.

    Example:
        >>> drawn_acts(torch.tensor([0, 3, 3]), 4, torch.Generator())
        tensor([1, 1, 1, 1])
    """
    occurrence = torch.randint(int(cumulated[-1]), (n,), generator=generator)
    return torch.searchsorted(cumulated, occurrence, right=True)


def _scale_of_values(acts: RecordedActs) -> float:
    """Return the number that values are divided by: the spread of returns, or their size if they hardly differ."""
    rewards = acts.padded(acts.reward)
    spread = float(rewards.sum(1).std())
    size = float(np.abs(rewards).sum(1).mean())
    return (spread if spread > _SMALL_SPREAD * size else size) or 1.0


def value_limits(acts: RecordedActs, gamma: float) -> tuple[float, float]:
    """Lowest and highest discounted return that the recorded rewards allow.

        sum over sub-steps k of  n_k * max(0, largest reward of an act of k)  /  (1 - gamma)

    n_k is the largest number of acts of the sub-step in an environment step, since every act could
    have this reward. The lowest return follows from the smallest rewards. Both are infinite with a
    gamma of 1.

    Args:
        acts: The recorded acts.
        gamma: Discount of an environment step.
    """
    if gamma == 1.0:
        return -math.inf, math.inf
    lowest = highest = 0.0
    for place in range(len(acts.spec.steps)):
        of_step = acts.key_index == place
        if of_step.any():
            moments = np.stack([acts.episode[of_step], acts.time[of_step]])
            n_acts = int(np.unique(moments, axis=1, return_counts=True)[1].max())
            lowest += n_acts * min(0.0, float(acts.reward[of_step].min()))
            highest += n_acts * max(0.0, float(acts.reward[of_step].max()))
    return lowest / (1.0 - gamma), highest / (1.0 - gamma)


def _head_of_few_options(step: StepSpec) -> str | None:
    """Return the only head of a sub-step if it has at most 32 options; None otherwise."""
    heads = step.action_space.spaces
    if len(heads) > 1:
        return None
    ((head, space),) = heads.items()
    return head if isinstance(space, spaces.Discrete) and space.n <= MOST_OPTIONS else None


def _every_act(policy: HasProbabilities, key: StepKey, head: str, situations: Situations) -> tuple[Tensor, Tensor]:
    """One-hot options [n, K, K] of a discrete head in all situations, and their probabilities [n, K]."""
    parts = []
    for _, batch in batches(key, situations, len(situations.agent_id)):
        parts.append(np.asarray(policy.probabilities(batch)[head], np.float32))
    probabilities = torch.from_numpy(np.concatenate(parts))
    n, n_options = probabilities.shape
    return torch.eye(n_options, dtype=torch.float32).expand(n, -1, -1), probabilities


def _drawn_acts(
    policy: Policy,
    key: StepKey,
    step: StepSpec,
    situations: Situations,
    generator: torch.Generator,
    deterministic: bool,
    n_samples: int,
) -> Tensor:
    """[n, n_samples, A] acts of the policy in all situations, as environments receive them."""
    parts = []
    for _, batch in batches(key, situations, len(situations.agent_id)):
        drawn = []
        for _ in range(n_samples):
            action = policy.act(batch, deterministic=deterministic, generator=generator).action
            received = {}
            for head, space in step.action_space.spaces.items():
                received[head] = environment_actions(space, action[head])
            drawn.append(action_features(step, received))
        parts.append(np.stack(drawn, 1))
    return torch.from_numpy(np.concatenate(parts))

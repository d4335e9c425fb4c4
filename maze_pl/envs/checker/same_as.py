"""Comparison of two forms of an environment, which must give equal numbers for the same seeds and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.checks import check_seconds
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_vector_env import ArrayVectorEnv
from maze_pl.envs.arrays.gym_vector_array_env import GymVectorArrayEnv
from maze_pl.envs.checker.differences import content_of, differences, first_difference
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv
from maze_pl.system.time_limit import CallTimeoutError, time_limit, time_limit_to_make

_STAGED = {
    "reward": "reward",
    "terminated": "terminated",
    "truncated": "truncated",
    "env_steps": "completed environment steps",
    "actor_done": "the end of the actor that acted",
}
_NEXT = {"next_key": "next sub-step", "next_agent": "next agent"}
_PARTIAL_STEP = 3  # one in so many steps is that of some environments only
_SHARE = 0.6  # of the environments, in such a step


class EnvDifference(NamedTuple):
    """The first difference between two environments.

    Attributes:
        env_index: Number of the environment; None if the spaces differ.
        episode: Index of its episode.
        act: Number of acts in this episode before the difference.
        field: Description of the differing quantity.
        values: Both values, or errors.
    """

    env_index: int | None
    episode: int
    act: int
    field: str
    values: tuple[Any, Any]

    def __str__(self) -> str:
        one, other = map(_shown, self.values)
        if self.env_index is None:
            return f"{self.field}: {one} and {other}"
        place = f"environment {self.env_index}, episode {self.episode}, after act {self.act}"
        return f"{place}: {self.field} is {one} and {other}"


class Comparison(NamedTuple):
    """Result of `compare_envs`.

    Attributes:
        n_envs: Number of environments of each form.
        n_acts: Number of acts that were compared.
        n_episodes: Number of episodes that ended.
        difference: The first difference; None if everything was equal.
    """

    n_envs: int
    n_acts: int
    n_episodes: int
    difference: EnvDifference | None

    def __str__(self) -> str:
        played = f"{self.n_acts:,} acts in {self.n_envs} environments, {self.n_episodes} episodes ended"
        if self.difference is None:
            return f"equal: {played}"
        return f"different: {self.difference}\n({played})"


def compare_envs(
    first: Callable[[], VectorEnv],
    other: Callable[[], VectorEnv],
    *,
    n_steps: int = 1000,
    seed: int = 0,
    step_timeout: float | None = None,
) -> Comparison:
    """Play two forms of an environment with the same seeds and random actions, and compare everything.

    Compared are spaces and masks; observations, rewards, ends, and the actor that acts next, after
    each act; attributed rewards; final observations of truncated episodes; and at the end of each
    episode its return, length, KPIs and all statistics of events. Numbers must be equal bit for bit.
    In every third step, only some of the environments act, as in collectors, and the others must stay as they are;
    except if a `GymVectorArrayEnv` is compared, which steps all of them.

    Args:
        first: Makes a vector of environments in the first form.
        other: Makes a vector of as many in the second form, with the same seed.
        n_steps: Number of acts, over all environments.
        seed: Determines the actions, and which environments act.
        step_timeout: Seconds that a step or a reset may take, in the main thread; no limit if None.

    Raises:
        ValueError: `n_steps` is not positive, or the vectors have different numbers of environments.
    """
    if n_steps < 1:
        raise ValueError(f"n_steps={n_steps} must be at least 1")
    check_seconds("step_timeout", step_timeout)
    vectors: list[VectorEnv] = []
    try:
        for make in (first, other):
            with time_limit_to_make(step_timeout):
                vectors.append(make())
            if vectors[-1].waiting is not None:
                remedy = "compare the form for single episodes, or a vector env whose reset takes a mask"
                raise ValueError(f"an environment starts its episodes one step late and without seeds; {remedy}")
        return _Players(vectors[0], vectors[1], seed, step_timeout).compare(n_steps)
    finally:
        for vector in vectors:
            vector.close()


class _Players:
    """Both vectors, with the bookkeeping of their episodes."""

    def __init__(self, one: VectorEnv, other: VectorEnv, seed: int, step_timeout: float | None) -> None:
        if one.n_envs != other.n_envs:
            raise ValueError(f"both vectors need the same number of environments, got {one.n_envs} and {other.n_envs}")
        self.vectors = one, other
        self.n_envs = one.n_envs
        self.step_timeout = step_timeout
        self.acts = np.zeros(self.n_envs, np.int64)
        self.episodes = np.zeros(self.n_envs, np.int64)
        self.n_ended = 0
        self._seed = seed
        self._random = np.random.default_rng(derive_seed(seed, "acting environments"))
        self._n_calls = 0
        self._can_act_alone = not any(map(_steps_all, self.vectors))

    def compare(self, n_steps: int) -> Comparison:
        """Play, and compare after each act."""
        n_acts = 0
        difference = next(_differing_specs(self.vectors[0].spec, self.vectors[1].spec), None)
        if difference is None:
            difference = self._both("reset", lambda vector: vector.reset()) or self._differing_observation()
        choose = None if difference is not None else _Actions(self.vectors[0], self._seed)
        while choose is not None and difference is None and n_acts < n_steps:
            choose.stage(self.vectors)
            acting = self._acting()
            difference = self._act(acting)
            n_acts += len(acting)
        return Comparison(self.n_envs, n_acts, self.n_ended, difference)

    def _acting(self) -> Array:
        """Return the environments that act, [n]: all, or in some steps a random part of them."""
        self._n_calls += 1
        everyone = np.arange(self.n_envs)
        if self._n_calls % _PARTIAL_STEP or not self._can_act_alone:
            return everyone
        some = np.flatnonzero(self._random.random(self.n_envs) < _SHARE)
        return some if len(some) else everyone

    def _act(self, acting: Array) -> EnvDifference | None:
        """Perform the staged actions of environments [n] in both vectors, and return the first difference."""
        results: list[StepExtras] = []
        envs = None if len(acting) == self.n_envs else acting
        failed = self._both("step", lambda vector: results.append(vector.step(envs)))
        self.acts[acting] += 1
        if failed is not None:
            return failed
        one, other = (vector.staging for vector in self.vectors)
        for name, field in _STAGED.items():
            values = getattr(one, name), getattr(other, name)
            different = first_difference(values[0][acting], values[1][acting])
            if different is not None:
                return self._at((int(acting[different[0]]),), field, values)
        difference = self._differing_extras(results[0], results[1]) or self._differing_summaries()
        has_acted = np.zeros(self.n_envs, np.bool_)
        has_acted[acting] = True
        ended = (one.terminated | one.truncated) & has_acted
        self.n_ended += int(np.count_nonzero(ended))
        if difference is not None:
            return difference
        self.acts[ended] = 0
        self.episodes[ended] += 1
        return self._differing_observation()

    def _both(self, call: str, function: Callable[[VectorEnv], Any]) -> EnvDifference | None:
        """Call a function with both vectors; an error of one only is a difference.

        Raises:
            Exception: The function failed with both.
        """
        errors: list[Exception | None] = []
        for vector in self.vectors:
            try:
                with time_limit(call, self.step_timeout):
                    function(vector)
                errors.append(None)
            except CallTimeoutError:
                raise
            except Exception as error:  # whatever the environment raises
                errors.append(error)
        first = errors[0] or errors[1]
        if first is None:
            return None
        if None not in errors:
            raise first
        shown = [f"a {type(error).__name__} ({error})" if error else "a result" for error in errors]
        return EnvDifference(
            0, int(self.episodes[0]), int(self.acts[0]), f"the outcome of {call}", (shown[0], shown[1])
        )

    def _at(
        self, index: tuple[int, ...], field: str, arrays: tuple[Array, Array], n: int | None = None
    ) -> EnvDifference:
        """Difference at an index of two arrays [N, ...], or in environment `n`."""
        env_index = index[0] if n is None else n
        inner = index[1:] if n is None else index
        where = f"{field}[{', '.join(map(str, inner))}]" if inner else field
        values = arrays[0][index], arrays[1][index]
        return EnvDifference(env_index, int(self.episodes[env_index]), int(self.acts[env_index]), where, values)

    def _differing_observation(self) -> EnvDifference | None:
        """First difference in the next actors and their observations."""
        one, other = (vector.staging for vector in self.vectors)
        for name, field in _NEXT.items():
            different = first_difference(getattr(one, name), getattr(other, name))
            if different is not None:
                return self._at(different, field, (getattr(one, name), getattr(other, name)))
        for place, key in enumerate(self.vectors[0].spec.step_keys):
            envs = np.flatnonzero(one.next_key == place)
            for name, values in one.observation[key].items():
                both = values[envs], other.observation[key][name][envs]
                different = first_difference(*both)
                if different is not None:
                    index = (int(envs[different[0]]), *different[1:])
                    field = f"observation {name!r} of sub-step {key!r}"
                    return self._at(index, field, (values, other.observation[key][name]))
        return None

    def _differing_extras(self, one: StepExtras, other: StepExtras) -> EnvDifference | None:
        """First difference in attributed rewards, ends of actors and final observations."""
        rewards: list[dict[int, Any]] = []
        finals: list[dict[int, dict[str, Any]]] = []
        for extras in (one, other):
            rewards.append({} if extras.actor_rewards is None else extras.actor_rewards.by_env())
            of_envs: dict[int, dict[str, Any]] = {}
            for group in extras.finals:
                for place, n in enumerate(group.envs.tolist()):
                    observation = {name: array[place] for name, array in group.observation.items()}
                    of_envs[n] = {"sub-step": str(group.key), "agent": int(group.agent_ids[place]), **observation}
            finals.append(of_envs)
        done = [{n: sorted(actors, key=str) for n, actors in extras.done_actors.items()} for extras in (one, other)]
        compared: list[tuple[str, Mapping[int, Any], Mapping[int, Any]]] = [
            ("attributed rewards", rewards[0], rewards[1]),
            ("actors that are done", done[0], done[1]),
            ("final observation", finals[0], finals[1]),
        ]
        for what, left, right in compared:
            for n in sorted(set(left) | set(right)):
                found = next(differences(left.get(n), right.get(n), what), None)
                if found is not None:
                    return EnvDifference(n, int(self.episodes[n]), int(self.acts[n]), *found)
        return None

    def _differing_summaries(self) -> EnvDifference | None:
        """First difference in the statistics of episodes that ended."""
        one, other = (vector.drain_summaries() for vector in self.vectors)
        ended = [[(summary.env_index, summary.episode_index) for summary in summaries] for summaries in (one, other)]
        if ended[0] != ended[1]:
            n, episode = min(set(ended[0]) ^ set(ended[1]))
            values = [str((n, episode) in places) for places in ended]
            return EnvDifference(n, episode, int(self.acts[n]), "the presence of a summary", (values[0], values[1]))
        for left, right in zip(one, other, strict=True):
            found = next(differences(content_of(left), content_of(right), ""), None)
            if found is not None:
                n = left.env_index - self.vectors[0].first_env_index
                return EnvDifference(n, left.episode_index, int(self.acts[n]), *found)
        return None


class _Actions:
    """Random actions that masks allow, staged in both vectors."""

    def __init__(self, vector: VectorEnv, seed: int) -> None:
        import torch  # only here, so that environments can be used without it

        from maze_pl.core.policy import PolicyBatch
        from maze_pl.core.random_policy import RandomPolicy

        steps = vector.spec.steps
        spaces = {key: step.action_space for key, step in steps.items()}
        self._policy = RandomPolicy(spaces, {key: step.masks for key, step in steps.items()})
        self._batch = PolicyBatch
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))

    def stage(self, vectors: tuple[VectorEnv, VectorEnv]) -> None:
        """Choose actions from the first vector's observations, which equal the second's."""
        staging = vectors[0].staging
        for place, key in enumerate(vectors[0].spec.step_keys):
            envs = np.flatnonzero(staging.next_key == place)
            if not len(envs):
                continue
            observation = {name: values[envs] for name, values in staging.observation[key].items()}
            batch = self._batch(key, observation, staging.next_agent[envs])
            action = self._policy.act(batch, generator=self._generator).action
            for vector in vectors:
                for head, values in action.items():
                    vector.staging.action[key][head][envs] = values


def _steps_all(vector: VectorEnv) -> bool:
    """True if some environments of a vector cannot act while others stay as they are."""
    return isinstance(vector, ArrayVectorEnv) and isinstance(vector.env.unwrapped, GymVectorArrayEnv)


def _differing_specs(one: Spec, other: Spec) -> Iterator[EnvDifference]:
    """Differences of the spaces, agents and masks of two environments."""
    for field, values in differences(one.to_dict(), other.to_dict(), "spec"):
        yield EnvDifference(None, 0, 0, field, values)


def _shown(value: Any) -> str:
    """Show a value; numbers with all their digits."""
    return str(value.item()) if isinstance(value, np.generic) else str(value)

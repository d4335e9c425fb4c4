"""Names for observations and actions of environments that give them none, their order, and spaces without names.

Those without names are what stable-baselines3 and the like know as environments, which have to be flat. At the end,
other action heads in the place of an environment's own, for policies that need another kind of choice.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space, environment_action
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Action, Array, Observation, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, Wrapper


class DictObservationWrapper(ObservationWrapper):
    """Puts observations that are single arrays into a Dict, under the name `observation`.

    For a `MazeEnv` whose observation conversions have a space that is no Dict; `GymMazeEnv` does this by itself.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: Its observations in some sub-step are not a Box, Discrete, MultiDiscrete or MultiBinary.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import NoDictObservationWrapper
        >>> env = DictObservationWrapper(NoDictObservationWrapper(GymMazeEnv("CartPole-v1")))
        >>> list(env.observation_space)
        ['observation']
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self._observation_spaces = _named(self, {k: {"observation": s} for k, s in env.observation_spaces_dict.items()})

    def observation(self, observation: Any) -> Observation:
        """The observation under its name."""
        return {"observation": np.asarray(observation)}


class DictActionWrapper(ActionWrapper):
    """Puts single actions into a Dict under the name `action`, and tuples of them as `action_0`, `action_1` and so on.

    For a `MazeEnv` whose action conversions have a space that is no Dict; `GymMazeEnv` does this by itself.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: Its action space in some sub-step is a Dict already.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import NoDictActionWrapper
        >>> env = DictActionWrapper(NoDictActionWrapper(GymMazeEnv("CartPole-v1")))
        >>> env.action_space
        Dict('action': Discrete(2))
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        wholes = {k: s.spaces if isinstance(s, spaces.Tuple) else s for k, s in env.action_spaces_dict.items()}
        self._action_spaces = _named(self, {key: self.reverse_action(whole) for key, whole in wholes.items()})

    def action(self, action: Action) -> Any:
        """What stands under the name, or the tuple of what stands under the names."""
        return action["action"] if "action" in action else tuple(action[f"action_{i}"] for i in range(len(action)))

    def reverse_action(self, action: Any) -> dict[str, Any]:
        """The action under its name, or its parts under theirs."""
        parts = action if isinstance(action, tuple) else ()
        return {f"action_{i}": part for i, part in enumerate(parts)} or {"action": action}


def _named(wrapper: Wrapper, parts: Mapping[StepKey, dict[str, Any]]) -> dict[StepKey, spaces.Dict]:
    """The spaces of sub-steps that have these parts."""
    what = f"what {type(wrapper).__name__} makes of sub-step"
    return {key: dict_space(spaces.Dict(named), f"{what} {key!r}") for key, named in parts.items()}


class SortedSpacesWrapper(ObservationWrapper):
    """Sorts the entries of observations and of both spaces by name; sub-steps stay in their order.

    Args:
        env: The environment to wrap.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = SortedSpacesWrapper(GymMazeEnv("CartPole-v1"))
        >>> list(env.observation_space)
        ['observation']
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        shown, taken = env.observation_spaces_dict.items(), env.action_spaces_dict.items()
        self._observation_spaces = {key: spaces.Dict(sorted(space.items())) for key, space in shown}
        self._action_spaces = {key: spaces.Dict(sorted(space.items())) for key, space in taken}

    def observation(self, observation: Observation) -> Observation:
        """The same entries, sorted."""
        return dict(sorted(observation.items()))


class PlainGymWrapper(Wrapper):
    """A flat environment as other libraries know environments; meant to be outermost.

    Args:
        env: The environment to wrap.

    Raises:
        ValueError: The environment is structured or has action masks, of which other libraries know nothing.
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        counts, masks = dict(env.agent_counts_dict), env.action_masks_dict
        if list(counts.values()) != [1] or any(masks.values()):
            only = f"{type(self).__name__} is for flat environments without action masks: other libraries know none"
            raise ValueError(f"{only}; {name_of(env)} has agents {counts} and masks {dict(masks)}; train it by maze_pl")

    def _entries(self, spaces_dict: Mapping[StepKey, spaces.Dict], what: str, *joined: type) -> tuple[StepKey, Any]:
        """The sub-step, and the entries of its space: a single one, or several of the types that can be joined."""
        ((key, space),) = spaces_dict.items()
        parts = dict_space(space, f"the {what} space that {type(self).__name__} is to take apart").spaces
        if len(parts) != 1 and not (parts and all(isinstance(part, joined) for part in parts.values())):
            only = f"{type(self).__name__} is for {what}s with a single entry, but there are {list(space)}"
            raise ValueError(f"{only}; leave out or join some of them by a wrapper further in")
        return key, parts

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """This environment itself: further in, its spaces are others."""
        return self

    @property
    def _np_random(self) -> np.random.Generator:  # type: ignore[override]
        """What gymnasium's checker looks at."""
        return self.np_random


class NoDictObservationWrapper(PlainGymWrapper, ObservationWrapper):  # type: ignore[misc]
    """Replaces the Dict observation space by the only space in it.

    Args:
        env: A flat environment whose observations have one entry.

    Raises:
        TypeError: Its observation space is no Dict.
        ValueError: It is structured, has action masks, or several observations.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> observation, _ = NoDictObservationWrapper(GymMazeEnv("CartPole-v1")).reset(seed=1)
        >>> observation.shape
        (4,)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, parts = self._entries(env.observation_spaces_dict, "observation")
        ((self._name, space),) = parts.items()
        self._observation_spaces = {key: space}

    def observation(self, observation: Observation) -> Any:
        """The only entry."""
        return observation[self._name]


class NoDictActionWrapper(PlainGymWrapper, ActionWrapper):  # type: ignore[misc]
    """Replaces the Dict action space by the only space in it, or several `Discrete` ones by one `MultiDiscrete`.

    Args:
        env: A flat environment whose actions have one head, or discrete heads only, which keep their order.

    Raises:
        TypeError: Its action space is no Dict.
        ValueError: It is structured, has action masks, or several action heads that are not all `Discrete`.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictActionWrapper(GymMazeEnv("CartPole-v1"))
        >>> env.action_space
        Discrete(2)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, heads = self._entries(env.action_spaces_dict, "action", spaces.Discrete)
        self._heads, self._several, choices = list(heads), len(heads) > 1, heads.values()
        self._space = next(iter(choices))
        if self._several:
            sizes, starts = [int(choice.n) for choice in choices], [int(choice.start) for choice in choices]
            self._space = spaces.MultiDiscrete(sizes, start=starts)
        self._action_spaces = {key: self._space}

    def action(self, action: Any) -> Action:
        """The action under its name, integers as Python's own, boxes within their bounds."""
        if self._several:
            return dict(zip(self._heads, np.asarray(action).tolist(), strict=True))
        return {self._heads[0]: environment_action(self._space, action)}

    def reverse_action(self, action: Action) -> Any:
        """The only entry, or all of them in order."""
        return np.array([action[head] for head in self._heads]) if self._several else action[self._heads[0]]


class NoDictSpacesWrapper(PlainGymWrapper):
    """Replaces both Dict spaces by the only space in each, for other libraries and for gymnasium's checker.

    Args:
        env: A flat environment with one observation, and actions as `NoDictActionWrapper` takes them.

    Raises:
        TypeError: One of its spaces is no Dict.
        ValueError: It is structured, has action masks, several observations, or action heads that cannot be joined.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictSpacesWrapper(GymMazeEnv("CartPole-v1"))
        >>> observation, _ = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, _ = env.step(1)
        >>> observation.shape, reward
        ((4,), 1.0)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(NoDictActionWrapper(NoDictObservationWrapper(env)))


Parts = Mapping[str, Mapping[str, Sequence[int]]]
"""New head -> `indices` -> which entries of the old one it has."""


class ReplacedHeadsWrapper(ActionWrapper):
    """Replaces action heads, by name and in every sub-step that has them, each by one or several others.

    Args:
        env: The environment to wrap.
        config: Head -> what to do with it.

    Raises:
        ValueError: A head is unknown, is not the same in all sub-steps, or would be there twice.
    """

    def __init__(self, env: StructuredEnv, config: Mapping[str, Any]) -> None:
        super().__init__(env)
        old = {head: part for space in env.action_spaces_dict.values() for head, part in space.items()}
        differing = {h for space in env.action_spaces_dict.values() for h, part in space.items() if part != old[h]}
        name = type(self).__name__
        if wrong := set(config) - (set(old) - differing):
            raise ValueError(f"{name}: {sorted(wrong)} are not the same in all sub-steps, or not among {sorted(old)}")
        self._new = {head: self.replacement(head, old[head], entry) for head, entry in config.items()}
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts = [item for head, part in space.items() for item in self._new.get(head, {head: part}).items()]
            if len(dict(parts)) != len(parts):
                raise ValueError(f"{name}: some of the action heads {[head for head, _ in parts]} have the same name")
            self._action_spaces[key] = spaces.Dict(dict(parts))

    @abstractmethod
    def replacement(self, head: str, space: spaces.Space[Any], entry: Any) -> dict[str, spaces.Space[Any]]:
        """New heads, with their spaces, for an old one."""

    @abstractmethod
    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Value of an old head from those of the new ones."""

    @abstractmethod
    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Values of the new heads from that of the old one."""

    def action(self, action: Action) -> Action:
        """With the old heads."""
        changed = dict(action)
        for head, parts in self._new.items():
            if parts.keys() <= action.keys():  # otherwise it is another sub-step's
                changed[head] = self.joined(head, {name: changed.pop(name) for name in parts})
        return changed

    def reverse_action(self, action: Action) -> Action:
        """With the new heads."""
        changed = dict(action)
        for head in self._new.keys() & action.keys():
            changed |= self.divided(head, changed.pop(head))
        return changed


class DiscretizeActionsWrapper(ReplacedHeadsWrapper):
    """Turns Box action heads into Discrete ones (one entry) or MultiDiscrete ones (several).

    Bin i of an entry stands for the value low + i * (high - low) / (num_bins - 1): evenly spaced, both ends included.

    Args:
        env: The environment to wrap.
        discretization_config: Head -> `num_bins`, at least 2, and optionally `low` and `high`: numbers, or lists in the
            shape of the action. By default they are the bounds of the head's space.

    Raises:
        ValueError: A head is no Box, is unknown, or has different spaces in two sub-steps, or the bounds are infinite,
            outside of the space, or not in order.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = DiscretizeActionsWrapper(GymMazeEnv("Pendulum-v1"), discretization_config={"action": {"num_bins": 5}})
        >>> env.action_space["action"], env.action({"action": 1})["action"]
        (Discrete(5), array([-1.], dtype=float32))
    """

    def __init__(self, env: StructuredEnv, discretization_config: Mapping[str, Mapping[str, Any]]) -> None:
        self._bins: dict[str, tuple[Array, tuple[int, ...]]] = {}  # [entries, bins] values, and the shape of the head
        super().__init__(env, discretization_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """As many choices as there are entries."""
        if not isinstance(space, spaces.Box):
            raise ValueError(f"DiscretizeActionsWrapper: head {head!r} is {space}; only a Box can be discretised")
        values = bin_values(space, **entry).astype(space.dtype)
        self._bins[head], (n_entries, num_bins) = (values, space.shape), values.shape
        return {head: spaces.Discrete(num_bins) if n_entries == 1 else spaces.MultiDiscrete([num_bins] * n_entries)}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """The values that bins stand for."""
        table, shape = self._bins[head]
        return table[np.arange(len(table)), np.reshape(values[head], -1)].reshape(shape)

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """The bins whose values are nearest."""
        bins = np.abs(self._bins[head][0] - np.reshape(value, (-1, 1))).argmin(-1)
        return {head: bins if len(bins) > 1 else int(bins[0])}


def bin_values(space: spaces.Box, num_bins: int, low: Any = None, high: Any = None) -> Array:
    """[number of entries, num_bins] the values that bins stand for.

    Raises:
        ValueError: The bounds are infinite, outside of the space, or not in order, or there are too few bins.
    """
    ends = [space.low if low is None else low, space.high if high is None else high]
    low, high = (np.broadcast_to(np.asarray(end, np.float64), space.shape).ravel() for end in ends)
    fits = (space.low.ravel() <= low) & (low < high) & (high <= space.high.ravel()) & np.isfinite([low, high]).all()
    if num_bins < 2 or not fits.all():
        wrong = f"num_bins={num_bins}, low={low}, high={high} do not fit {space}"
        raise ValueError(f"discretization_config: {wrong}; use at least 2 bins and finite bounds within the space")
    return np.linspace(low, high, num_bins, axis=-1)


class SplitActionsWrapper(ReplacedHeadsWrapper):
    """Splits action heads into several, each with some of the entries.

    Args:
        env: The environment to wrap.
        split_config: Head -> new head -> `{indices: [...]}`, the entries that it has; each entry of the old head must
            belong to exactly one new head. Heads are a Box, MultiDiscrete or MultiBinary with one axis.

    Raises:
        ValueError: A head is of another kind, unknown, or would be there twice, or an entry belongs to none or several
            new heads.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> split = {"action": {"main": {"indices": [0]}, "side": {"indices": [1]}}}
        >>> env = SplitActionsWrapper(GymMazeEnv("LunarLanderContinuous-v3"), split_config=split)
        >>> list(env.action_space)
        ['main', 'side']
    """

    def __init__(self, env: StructuredEnv, split_config: Mapping[str, Parts]) -> None:
        self._indices: dict[str, dict[str, list[int]]] = {}
        super().__init__(env, split_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """Vectors of some of the entries."""
        kinds = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
        parts = self._indices[head] = {name: list(part["indices"]) for name, part in entry.items()}
        indices = sorted(index for part in parts.values() for index in part)
        if not isinstance(space, kinds) or indices != list(range(*space.shape)):
            raise ValueError(f"split_config: {head!r}, {space}, is no vector with each entry in exactly one of {parts}")
        return {name: _part(space, indices) for name, indices in parts.items()}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """One vector of all parts."""
        parts = self._indices[head]
        whole = np.empty(sum(map(len, parts.values())), np.asarray(next(iter(values.values()))).dtype)
        for name, indices in parts.items():
            whole[indices] = values[name]
        return whole

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """The parts of a vector."""
        return {name: np.asarray(value)[indices] for name, indices in self._indices[head].items()}


def _part(space: Any, indices: list[int]) -> spaces.Space[Any]:
    """The space of some entries of a vector."""
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[indices], space.high[indices], dtype=space.low.dtype.type)
    return spaces.MultiDiscrete(space.nvec[indices]) if hasattr(space, "nvec") else spaces.MultiBinary(len(indices))

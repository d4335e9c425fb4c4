"""Recording of everything that an environment returns while the doctor plays it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import MaskError, allowed_entries
from maze_pl.core.spec import Spec, StepSpec, fitting_masks
from maze_pl.envs.checker.differences import content_of, differences
from maze_pl.envs.checker.early_events import EarlyEvents
from maze_pl.envs.contract import (
    EnvContractError,
    check_actor_rewards,
    check_observation,
    check_reset,
    check_step,
)
from maze_pl.envs.reward_watch import reward_watch
from maze_pl.envs.structured_env import Action, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.system.time_limit import time_limit

_COMPARED = ("actor", "reward", "terminated", "truncated", "env_time", "done_actors")


class Act(NamedTuple):
    """Outcome of a reset or a step.

    Attributes:
        actor: Actor that acts next.
        reward: Reward of the action.
        terminated: Whether the episode terminated.
        truncated: Whether the episode was truncated.
        env_time: Environment steps since the episode began.
        returned: The observation object itself.
        kept: Copies of its arrays, made when it was returned.
        action: Action that led here, None after a reset.
        seed: Seed that the environment was reset with.
        seconds: Duration of the step.
        actor_rewards: Rewards of the acts of the environment step that this act completed, for
            environments that attribute rewards to actors.
        summary: Statistics of the episode that this act ended, None if it ended none.
        is_actor_done: Whether the actor that acted does not act again.
        done_actors: Other actors of the environment step that this act completed, which do not act
            again.
    """

    actor: ActorID
    reward: float
    terminated: bool
    truncated: bool
    env_time: int
    returned: Observation
    kept: Observation
    action: Action | None
    seed: int | None = None
    seconds: float = 0.0
    actor_rewards: Sequence[float] = ()
    summary: EpisodeSummary | None = None
    is_actor_done: bool = False
    done_actors: Sequence[ActorID] = ()


class Recorder(Wrapper):
    """Records all resets and steps of an environment; refuses results that no policy can act on.

    Args:
        env: The environment.
        masks: Action head -> observation, in addition to the masks that the environment declares;
            masks that do not fit are ignored, since they belong to another layer of wrappers.
        step_timeout: Seconds that a step or a reset may take; no limit if None.

    Attributes:
        acts: All resets and steps.
        fired: Topic and event of everything that happened.
        early_events: Events that were fired before their environment step had begun.
        unattributed: Fault of a wrapper that changes rewards, but not those of single actors; None if there is none.
        sub_steps: Step key -> spaces and masks of the sub-step.
    """

    def __init__(self, env: StructuredEnv, masks: Mapping[str, str], step_timeout: float | None) -> None:
        super().__init__(env)
        self._step_timeout = step_timeout
        fitting: dict[str, str] = {}
        for of_sub_step in fitting_masks(env, masks).values():
            fitting |= of_sub_step
        most_agents = {key: 1 for key, count in env.agent_counts_dict.items() if count < 0}
        spec = Spec.of(env, most_agents, fitting)
        spec.to_dict()  # raises an error if a checkpoint cannot hold it
        self.sub_steps = spec.steps
        self._counts = dict(env.agent_counts_dict)
        self._has_one_actor = spec.is_flat
        self._done: set[ActorID] = set()  # in this episode
        self._acted: list[ActorID] | None = None  # in the running step; None if it began elsewhere
        self._is_attributed: bool | None = None  # None before the first step is complete
        self._watch = reward_watch(env)
        self.unattributed: str | None = None
        self.acts: list[Act] = []
        self.fired: set[tuple[type, Any]] = set()
        known = [subscriber for subscriber in env.pubsub.subscribers if type(subscriber) is EarlyEvents]
        self.early_events = known[0] if known else EarlyEvents()
        env.pubsub.register_subscriber(self.early_events)

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return {key: step.masks for key, step in self.sub_steps.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        with time_limit("reset", self._step_timeout):
            result = self.env.reset(seed=seed, options=options)
        check_reset(result, self.env)
        self._done = set()
        self._acted = []
        self._keep((result[0], 0.0, False, False), None, seed=seed)
        return result

    def step(self, action: Action) -> Any:
        """Perform an act."""
        actor = self.env.actor_id()
        self.early_events.begin_act(actor.step_key)
        env_time = self.env.get_env_time()
        with time_limit("step", self._step_timeout):
            began = time.perf_counter()
            result = self.env.step(action) if self._watch is None else self._watch.step(action)
            seconds = time.perf_counter() - began
        check_step(result, self.env)
        self.early_events.end_act()
        is_done = not self._has_one_actor and bool(self.env.is_actor_done())
        if is_done:
            self._done.add(actor)
        if self._acted is not None:
            self._acted.append(actor)
        is_complete = bool(self.env.get_env_time() > env_time or result[2] or result[3])
        further: dict[str, Any] = {"seconds": seconds, "is_actor_done": is_done}
        if is_complete:
            further |= {"actor_rewards": self._attributed(), "done_actors": self._done_actors()}
            self._acted = []
        summary = self._summary() if result[2] or result[3] else None
        self._keep(result, action, summary=summary, **further)
        return result

    def _summary(self) -> EpisodeSummary | None:
        """Return the statistics of the episode that has just ended, None if nothing summarises episodes."""
        summaries = self.env.drain_episode_summaries() if isinstance(self.env, LogStatsWrapper) else []
        return summaries[-1] if summaries else None

    def _attributed(self) -> tuple[float, ...]:
        """Return the rewards of the acts of the step that is complete."""
        actor_rewards = self.env.get_actor_rewards()
        n_acts = None if self._acted is None else len(self._acted)
        check_actor_rewards(actor_rewards, n_acts, self._is_attributed, self.env)
        self._is_attributed = actor_rewards is not None
        if self._watch is not None and actor_rewards is not None:
            self.unattributed = self.unattributed or self._watch.end_step()
        return () if actor_rewards is None else tuple(map(float, actor_rewards))

    def _done_actors(self) -> tuple[ActorID, ...]:
        """Return the actors that have ended in the step that is complete after their acts in it."""
        if self._has_one_actor:
            return ()
        actors = tuple(ActorID(*actor) for actor in self.env.get_done_actors())
        for actor in actors:
            if self._acted is not None and actor not in self._acted:
                came = f"get_done_actors() names agent {actor.agent_id} of sub-step {actor.step_key!r}"
                remedy = "it may only name actors that have, since their latest acts become their last"
                raise EnvContractError(f"{came}, which has not acted in the environment step; {remedy}")
        self._done.update(actors)
        return actors

    def _check_actor(self, actor: ActorID) -> None:
        """Refuse the next actor if there is no such agent, or if it is done."""
        key, agent_id = actor
        count = self._counts[key]
        named = f"actor_id() names agent {agent_id} of sub-step {key!r}"
        if agent_id < 0 or 0 <= count <= agent_id:
            there_are = f"there are {count}," if count >= 0 else "agents are"
            raise EnvContractError(f"{named}; {there_are} numbered from 0")
        if actor in self._done:
            remedy = "is_actor_done() tells of actors that do not act again in the episode, as get_done_actors() does"
            raise EnvContractError(f"{named}, which is done; {remedy}")

    def _keep(self, result: Any, action: Action | None, **further: Any) -> None:
        observation, reward, terminated, truncated, *_ = result
        actor = self.env.actor_id()
        if actor.step_key not in self.sub_steps:
            declared = list(self.sub_steps)
            raise EnvContractError(f"actor_id() names sub-step {actor.step_key!r}; declared are {declared}")
        step = self.sub_steps[actor.step_key]
        what = f"the observation of sub-step {actor.step_key!r} by {self.makers(actor.step_key)}"
        check_observation(observation, step.observation_space, what)
        if not (terminated or truncated):  # no policy acts on the last observation
            self._check_actor(actor)
            self._check_masks(observation, step, what)
        act = Act(
            actor=actor,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            env_time=self.env.get_env_time(),
            returned=observation,
            kept={name: np.array(value) for name, value in observation.items()},
            action=action,
            **further,
        )
        self.acts.append(act)
        self.fired |= {(record.topic, record.event) for record in self.env.get_step_events()}

    def _check_masks(self, observation: Observation, step: StepSpec, what: str) -> None:
        """Refuse masks that are malformed or allow nothing."""
        place = f"(act {len(self.acts)})"
        for head, name in step.masks.items():
            space = step.action_space.spaces[head]
            try:
                allowed_entries(observation[name], (spaces.flatdim(space),), name, head)
            except MaskError as error:
                raise EnvContractError(f"{what} {place}: {error}") from error
            if isinstance(space, spaces.MultiBinary):
                continue  # choosing none of the entries is an action as well
            parts = [observation[name]]
            if isinstance(space, spaces.MultiDiscrete):
                parts = np.split(observation[name], np.cumsum(space.nvec)[:-1].tolist())
            if not all(part.any() for part in parts):
                raise EnvContractError(f"mask {name!r} in {what} allows nothing for {head!r} {place}")

    def makers(self, key: StepKey) -> str:
        """Classes that make the observations of a sub-step: its conversion and the wrappers."""
        inner: Any = self.unwrapped
        makers = [inner.observation_maker(key)] if key in inner.observation_conversion_dict else []
        _, *wrappers = wrappers_of(self.env)  # without the statistics, which are outermost
        makers += [type(wrapper).__name__ for wrapper in reversed(wrappers)]
        return ", ".join(makers)

    def seconds(self) -> float:
        """Mean duration of a step in seconds."""
        return float(np.mean([act.seconds for act in self.acts if act.action is not None]))

    def repeat(self, acts: Sequence[Act], with_summaries: bool = False) -> str | None:
        """Replay acts without recording them, and describe the first difference, if any.

        Args:
            acts: The acts.
            with_summaries: Whether the statistics of episodes are compared, too.
        """
        for act in acts:
            if act.action is None:
                self.reset(seed=act.seed)
            else:
                self.step(act.action)
            again = self.acts.pop()
            different = _difference(act, again)
            if different is None and with_summaries:
                different = _difference_of_summaries(act.summary, again.summary)
            if different is not None:
                return f"another {different} at environment step {act.env_time}"
        return None


class LimitedCalls(Wrapper):
    """Limits the time of steps and resets that wrappers make to estimate their statistics.

    Args:
        env: The environment with its wrappers.
        step_timeout: Seconds that a step or a reset may take; no limit if None.
    """

    def __init__(self, env: StructuredEnv, step_timeout: float | None) -> None:
        super().__init__(env)
        self._step_timeout = step_timeout

    def step(self, action: Action) -> StepResult:
        """Perform an act."""
        with time_limit("step, while wrappers estimated their statistics,", self._step_timeout):
            return self.env.step(action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        with time_limit("reset, while wrappers estimated their statistics,", self._step_timeout):
            return self.env.reset(seed=seed, options=options)


def same(first: Any, second: Any) -> bool:
    """True if two arrays or numbers are equal, with NaN equal to itself."""
    array, other = np.asarray(first), np.asarray(second)
    is_float = array.dtype.kind == "f" and other.dtype.kind == "f"
    return np.array_equal(array, other, equal_nan=is_float)


def _difference(act: Act, again: Act) -> str | None:
    """Return the name of the first part in which two acts differ, None if they are equal."""
    for name in _COMPARED:
        if not same(getattr(act, name), getattr(again, name)):
            return name
    for name, array in act.kept.items():
        if not same(array, again.kept.get(name)):
            return f"observation {name!r}"
    return None


def _difference_of_summaries(summary: EpisodeSummary | None, again: EpisodeSummary | None) -> str | None:
    """Return the name of the first statistic in which two episodes differ, None if they are equal."""
    if summary is None or again is None:
        return None
    found = next(differences(content_of(summary), content_of(again), ""), None)
    return None if found is None else found[0]

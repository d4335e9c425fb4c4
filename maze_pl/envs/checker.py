"""The environment doctor: finds faults that make training fail, or silently learn nothing."""

import copy
import os
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.checks import check_seconds
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import MaskError, allowed_entries
from maze_pl.core.spec import Spec, fitting_masks
from maze_pl.envs.contract import EnvContractError, check_observation, check_reset, check_step, name_of
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.vector.vector_env import make_wrapped
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.action_masks_wrapper import require_used
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.normalization import sample_episodes
from maze_pl.events import EventRecord, Subscriber
from maze_pl.events.topics import BUILT_IN_TOPICS, declarations
from maze_pl.system.time_limit import CallTimeoutError, time_limit, time_limit_to_make

OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"
_LIBRARIES = ("maze_pl", "gymnasium", "numpy", "torch", "copy", "cloudpickle")
_N_CONVERTED, _N_REPLAYED = 200, 500  # acts whose conversions are checked, acts that are replayed
_MOST_ENTRIES = 1000  # entries of an observation whose magnitudes are judged
_LARGE, _TINY = 100.0, 1e-3  # magnitudes that networks have trouble with
_DRIFT = 3.0  # standard deviations; a value that grows all the time drifts by 3.5
_EXCHANGE = 1e-4  # seconds that it costs to send a step to another process

Finding = tuple[str, str]
"""Verdict and explanation."""


class CheckLine(NamedTuple):
    """One result of a check.

    Attributes:
        name: Name of the check.
        verdict: `ok`, `warning`, `error`, or `skipped` if there is nothing to check.
        explanation: The finding and its remedy.
    """

    name: str
    verdict: str
    explanation: str


@dataclass(frozen=True)
class CheckReport:
    """Findings of the doctor; as text, a table of at most 100 columns.

    Attributes:
        title: Name of the environment, with the number of acts and episodes.
        lines: One or more for each check.
    """

    title: str
    lines: tuple[CheckLine, ...]

    @property
    def ok(self) -> bool:
        """True if there are no errors; there may be warnings."""
        return all(line.verdict != ERROR for line in self.lines)

    def __str__(self) -> str:
        rows = [("check", "verdict", "explanation"), *self.lines]
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        text = [self.title]
        for name, verdict, explanation in rows:
            for part in textwrap.wrap(explanation, 100 - first - second - 6) or [""]:
                text.append(f"{name:{first}} | {verdict:{second}} | {part}".rstrip())
                name = verdict = ""
        counts = [sum(line.verdict == verdict for line in self.lines) for verdict in (ERROR, WARNING)]
        return "\n".join([*text, f"errors: {counts[0]}, warnings: {counts[1]}"])


def check_env(
    env: Any,
    *,
    n_steps: int = 1000,
    seed: int = 0,
    action_masks: Mapping[str, str] | None = None,
    step_timeout: float | None = None,
) -> CheckReport:
    """Check an environment by playing it with random actions.

    An environment that is passed as an instance, not as a factory, is itself reset and stepped.

    Args:
        env: A `MazeEnv` or a stack of wrappers around one, a bare gymnasium environment, or a
            factory of one of these (called without arguments), so that two instances can be
            compared.
        n_steps: Number of acts to play.
        seed: Determines episodes and actions.
        action_masks: Masks in addition to the ones that the environment declares; see
            `RolloutDataModule`.
        step_timeout: Seconds that a step or a reset may take, in the main thread; no limit if None.
            Making an environment may take as long, but at least 60 s.

    Returns:
        The report. Exceptions in the environment are part of it.

    Raises:
        ValueError: `n_steps` is below 10, too few acts to find anything.

    Example:
        >>> check_env(GymMazeEnv("CartPole-v1")).ok
        True
    """
    if n_steps < 10:
        raise ValueError(f"n_steps={n_steps} must be at least 10")
    check_seconds("step_timeout", step_timeout)
    examination = Examination(env, n_steps, seed, action_masks or {}, step_timeout)
    lines, is_over = list[CheckLine](), False
    for look in Examination.CHECKS:
        what_holds = str(look.__doc__)
        try:
            found = list(look(examination)) or [(OK, what_holds[0].lower() + what_holds[1:-1])]
        except Exception as error:  # whatever the environment raises
            found = [(ERROR, _told(error))]
            is_over = look in Examination.CHECKS[:2] or isinstance(error, CallTimeoutError)
        lines += [CheckLine(look.__name__, *finding) for finding in found]
        if is_over:
            break  # the other checks would have nothing to look at
    examination.close(is_stuck=is_over)
    return CheckReport(examination.title, tuple(lines))


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


class _EarlyEvents(Subscriber):
    """Events that are fired in an act before the environment step that it belongs to has begun.

    Attributes:
        lost: For each sub-step, the names of events that were forgotten when its step began.
        unbegun: For each sub-step in which no environment step began although the previous one was
            complete, the names of the events fired in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[StepKey, set[str]] = {}
        self.unbegun: dict[StepKey, set[str]] = {}
        self._is_waiting = False  # whether the step of the running act has yet to begin
        self._step_key: StepKey = 0

    def get_interfaces(self) -> list[type]:
        return [object]

    def begin_act(self, step_key: StepKey) -> None:
        self._step_key, self._is_waiting = step_key, self.pubsub.context.env_step_incremented
        self.events.clear()

    def notify_event(self, record: EventRecord) -> None:
        if self._is_waiting:
            self.events.append(record)

    def clear_events(self) -> None:
        if self._is_waiting and self.events:
            self.lost.setdefault(self._step_key, set()).update(self._names())
        self._is_waiting = False
        self.events.clear()

    def end_act(self) -> None:
        if self._is_waiting:
            self.unbegun.setdefault(self._step_key, set()).update(self._names())
        self._is_waiting = False
        self.events.clear()

    def _names(self) -> set[str]:
        return {f"{record.topic.__name__}.{record.event.__name__}" for record in self.events}


class Recorder(Wrapper):
    """Records all resets and steps of an environment; refuses what cannot be acted on.

    Args:
        env: The environment.
        masks: Action head -> observation, in addition to the masks that the environment declares;
            masks that do not fit it belong to another layer.
        step_timeout: Seconds that a step or a reset may take; no limit if None.

    Attributes:
        before: Called with each action before it is taken, unless None.
        acts: All resets and steps.
        fired: Topic and event of everything that happened.
        early_events: Events that were fired before their environment step had begun.
        sub_steps: Step key -> spaces and masks of the sub-step.
    """

    def __init__(self, env: StructuredEnv, masks: Mapping[str, str], step_timeout: float | None) -> None:
        super().__init__(env)
        self._step_timeout = step_timeout
        fitting = {head: name for found in fitting_masks(env, masks).values() for head, name in found.items()}
        spec = Spec.of(env, {key: 1 for key, count in env.agent_counts_dict.items() if count < 0}, fitting)
        spec.to_dict()  # raises if a checkpoint could not hold it
        self.sub_steps = spec.steps
        self.before: Callable[[Action], None] | None = None
        self.acts: list[Act] = []
        self.fired: set[tuple[type, Any]] = set()
        known = [subscriber for subscriber in env.pubsub.subscribers if type(subscriber) is _EarlyEvents]
        self.early_events = known[0] if known else _EarlyEvents()
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
        self._keep((result[0], 0.0, False, False), None, seed=seed)
        return result

    def step(self, action: Action) -> Any:
        """Perform an act."""
        if self.before is not None:
            self.before(action)
        self.early_events.begin_act(self.env.actor_id().step_key)
        with time_limit("step", self._step_timeout):
            began = time.perf_counter()
            result = self.env.step(action)
            seconds = time.perf_counter() - began
        check_step(result, self.env)
        self.early_events.end_act()
        self._keep(result, action, seconds=seconds)
        return result

    def _keep(self, result: Any, action: Action | None, **further: Any) -> None:
        observation, reward, terminated, truncated, *_ = result
        actor = self.env.actor_id()
        if actor.step_key not in self.sub_steps:
            raise EnvContractError(f"actor_id() names sub-step {actor.step_key!r}; declared are {list(self.sub_steps)}")
        step = self.sub_steps[actor.step_key]
        what = f"the observation of sub-step {actor.step_key!r} by {self.makers(actor.step_key)}"
        check_observation(observation, step.observation_space, what)
        for head, name in step.masks.items():
            space = step.action_space.spaces[head]
            ends = np.cumsum(space.nvec)[:-1].tolist() if isinstance(space, spaces.MultiDiscrete) else []
            if terminated or truncated:
                continue  # nobody acts on it
            try:
                allowed_entries(observation[name], (spaces.flatdim(space),), name, head)
            except MaskError as error:
                raise EnvContractError(f"{what} (act {len(self.acts)}): {error}") from error
            is_free = isinstance(space, spaces.MultiBinary)
            if not is_free and not all(part.any() for part in np.split(observation[name], ends)):
                raise EnvContractError(f"mask {name!r} in {what} allows nothing for {head!r} (act {len(self.acts)})")
        kept = {name: np.array(value) for name, value in observation.items()}
        outcome = float(reward), bool(terminated), bool(truncated), self.env.get_env_time()
        self.acts.append(Act(actor, *outcome, observation, kept, action, **further))
        self.fired |= {(record.topic, record.event) for record in self.env.get_step_events()}

    def makers(self, key: StepKey) -> str:
        """Classes that make the observations of a sub-step: its conversion and the wrappers."""
        inner: Any = self.unwrapped
        makers = [inner.observation_conversion_dict.get(key), *list(wrappers_of(self.env))[:0:-1]]
        return ", ".join(type(maker).__name__ for maker in makers if maker is not None)

    def seconds(self) -> float:
        """Mean duration of a step in seconds."""
        return float(np.mean([act.seconds for act in self.acts if act.action is not None]))

    def repeat(self, acts: Sequence[Act]) -> str | None:
        """Replay acts without recording them, and describe the first difference, if any."""
        for act in acts:
            if act.action is None:
                self.reset(seed=act.seed)
            else:
                self.step(act.action)
            again = self.acts.pop()
            pairs = dict(zip(Act._fields[:5], zip(act[:5], again[:5], strict=True), strict=True))
            pairs |= {f"observation {name!r}": (array, again.kept.get(name)) for name, array in act.kept.items()}
            different = next((name for name, pair in pairs.items() if not same(*pair)), None)
            if different is not None:
                return f"another {different} at environment step {act.env_time}"
        return None


class _LimitedCalls(Wrapper):
    """Limits the time of steps and resets that wrappers make to estimate their statistics."""

    def __init__(self, env: StructuredEnv, step_timeout: float | None) -> None:
        super().__init__(env)
        self._step_timeout = step_timeout

    def step(self, action: Action) -> StepResult:
        with time_limit("step, while wrappers estimated their statistics,", self._step_timeout):
            return self.env.step(action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        with time_limit("reset, while wrappers estimated their statistics,", self._step_timeout):
            return self.env.reset(seed=seed, options=options)


def same(one: Any, other: Any) -> bool:
    """True if two arrays or numbers are equal, with NaN equal to itself."""
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" == other.dtype.kind)


class _Shown(NamedTuple):
    """One observation in all acts of a sub-step: its description, space and use as a mask.

    `kept` holds its values when they were returned, `returned` the same arrays as they are now.
    """

    what: str
    space: spaces.Space[Any]
    is_mask: bool
    kept: list[Array]
    returned: list[Array]


class Examination:
    """Checks of one environment, on acts recorded while it was played at random.

    Each check yields verdicts and explanations; if it yields none, the report shows its docstring.

    Args:
        env: The environment, or a factory of it.
        n_steps: Number of acts to play.
        seed: Determines episodes and actions.
        masks: Action head -> observation, in addition to the masks that the environment declares.
        step_timeout: Seconds that a step or a reset may take; no limit if None.
    """

    def __init__(self, env: Any, n_steps: int, seed: int, masks: Mapping[str, str], step_timeout: float | None) -> None:
        self._given, self._n_steps, self._seed, self._masks = env, n_steps, seed, masks
        self._step_timeout = step_timeout
        self._made: list[LogStatsWrapper] = []
        self._learned: list[dict[str, Any]] = []  # wrapper states, which outputs may depend on
        self._acts: list[Act] = []
        self._shown: list[_Shown] = []
        self._is_deterministic = True

    @property
    def title(self) -> str:
        """Name of the environment, with the number of acts and episodes."""
        name = name_of(self._made[0]) if self._made else "the environment"
        n_episodes = sum(act.action is None for act in self._acts)
        return f"{name}: {len(self._acts) - n_episodes:,} acts in {n_episodes} episodes"

    def close(self, is_stuck: bool = False) -> None:
        """Restore the states of the wrappers, and close the environments that were made here.

        Args:
            is_stuck: Whether a call has not returned, so that closing may fail as well.
        """
        for env in self._made:
            self._rewind(env)
            for subscriber in env.pubsub.subscribers:
                if type(subscriber) is _EarlyEvents:
                    env.pubsub.remove_subscriber(subscriber)
            if callable(self._given):
                with suppress(Exception) if is_stuck else nullcontext(), time_limit("close", self._step_timeout):
                    env.close()

    def _make(self) -> Recorder:
        """Record a new environment if a factory was given, otherwise the same one again."""
        if callable(self._given) or not self._made:
            with time_limit_to_make(self._step_timeout):
                made: Any = make_wrapped(self._given if callable(self._given) else lambda: self._given)
            made.unwrapped._unchecked = []  # `steps` checks all observations
            self._made.append(made)
        return Recorder(self._made[-1], self._masks, self._step_timeout)

    def _rewind(self, env: Any) -> None:
        for wrapper, state in zip(wrappers_of(env), self._learned, strict=False):  # none if unplayed
            wrapper.load_state_dict(state)

    def _play_again(self, env: Recorder, end: int = _N_REPLAYED) -> str | None:
        self._rewind(env.env)
        return env.repeat(self._acts[:end])

    def spaces(self) -> Iterator[Finding]:
        """There are networks and distributions for all observations and actions."""
        self._env = self._make()
        require_used(self._env, self._masks)
        self._acts = self._env.acts
        yield from ()

    def steps(self) -> Iterator[Finding]:
        """Every observation lies in its space."""
        self._made[0].context.is_logged = False
        seed = derive_seed(self._seed, "normalization")
        _LimitedCalls(self._made[0], self._step_timeout).estimate(min(self._n_steps, 1000), seed)
        self._made[0].context.is_logged = True
        self._learned = [wrapper.state_dict() for wrapper in wrappers_of(self._made[0])]
        sample_episodes(self._env, self._n_steps, self._seed, None)
        for key, step in self._env.sub_steps.items():
            acts = [act for act in self._acts if act.actor.step_key == key]
            for name, space in step.observation_space.items() if acts else ():
                kept, returned = [act.kept[name] for act in acts], [act.returned[name] for act in acts]
                what = f"{name!r} of sub-step {key!r} by {self._env.makers(key)}"
                self._shown.append(_Shown(what, space, name in step.masks.values(), kept, returned))
                try:
                    for array in kept:
                        check_observation(array, space, what, exactly=True)
                except EnvContractError as error:
                    yield ERROR, str(error)

    def conversions(self) -> Iterator[Finding]:
        """States stay as they are."""
        inner: Any = self._env.unwrapped
        found: set[str] = set()

        def convert(action: Action) -> None:
            state, sees, acts = inner.get_maze_state(), inner.observation_conversion, inner.action_conversion
            before = cloudpickle.dumps(state)
            sees.maze_to_space(state)
            seen = cloudpickle.dumps(state)
            acts.space_to_maze(action, state)
            what = "changes the state that it is given"
            if seen != before:
                found.add(f"{type(sees).__name__}.maze_to_space {what}: let it work on a copy")
            if cloudpickle.dumps(state) != seen:
                found.add(f"{type(acts).__name__}.space_to_maze {what}: the simulation does")

        alone = Recorder(inner, self._masks, self._step_timeout)
        alone.before = convert
        sample_episodes(alone, min(self._n_steps, _N_CONVERTED), self._seed, None)  # inside all wrappers
        self._seconds_alone = alone.seconds()
        yield from ((ERROR, text) for text in sorted(found))

    def memory(self) -> Iterator[Finding]:
        """Observations stay as they were returned."""
        for shown in self._shown:
            if not all(map(same, shown.kept, shown.returned)):
                yield ERROR, f"{shown.what} changes after it was returned: return a copy"

    def determinism(self) -> Iterator[Finding]:
        """The same seed and the same actions give the same episode."""
        found = self._play_again(self._env) or self._play_again(self._make())
        if found is not None:
            self._is_deterministic = False
            remedy = "let reset(seed=...) begin anew, and take all chance from that seed"
            yield ERROR, f"with the same seeds and actions there was {found}: {remedy}"

    def env_time(self) -> Iterator[Finding]:
        """Environment time advances."""
        acts = [(before, act) for before, act in pairwise(self._acts) if act.action is not None]
        if all(act.env_time == before.env_time for before, act in acts):
            remedy = "call self.context.increment_env_step() in the act that completes an environment step"
            yield ERROR, f"it did not advance in {len(acts)} acts: {remedy}"

    def episodes(self) -> Iterator[Finding]:
        """Episodes end, and say why."""
        ends = [act for act in self._acts if act.terminated or act.truncated]
        if not ends:
            yield WARNING, f"none ended within {self._n_steps} acts: add TimeLimitWrapper, or take more of them"
            return
        lengths, n_terminated = sorted(act.env_time for act in ends), sum(act.terminated for act in ends)
        if any(act.terminated and act.truncated for act in ends):
            yield WARNING, "terminated and truncated come together: truncated is for what only the limit has ended"
        if len(ends) > 2 and lengths[0] == lengths[-1] and n_terminated == len(ends):
            yield WARNING, f"all terminated after {lengths[0]} steps: if that is a time limit, let it be truncated"
        how = f"{n_terminated} terminated and {len(ends) - n_terminated} truncated"
        yield OK, f"{how} after {lengths[0]} to {lengths[-1]} steps"

    def masks(self) -> Iterator[Finding]:
        """There is always an action that is allowed."""
        masks = [shown for shown in self._shown if shown.is_mask]
        for shown in masks:
            if np.all(shown.kept):
                yield WARNING, f"{shown.what} never forbids anything"
        if not masks:
            yield SKIPPED, "none is declared"

    def observations(self) -> Iterator[Finding]:
        """Finite, of sizes that networks can learn from, and without drift."""
        for shown in self._shown:
            if isinstance(shown.space, spaces.Box) and not shown.is_mask:
                is_image = shown.space.dtype == np.uint8 and len(shown.space.shape) > 1  # networks scale its bytes
                kept = [seen / 255.0 for seen in shown.kept] if is_image else shown.kept
                yield from _judge(shown.what, kept, "use ObservationNormalizationWrapper")

    def rewards(self) -> Iterator[Finding]:
        """Finite, of sizes that networks can learn from, and without drift."""
        rewards = [act.reward for act in self._acts if act.action is not None]
        yield from _judge("the reward", rewards, "use RewardScalingWrapper", _TINY)

    def events(self) -> Iterator[Finding]:
        """All of those that are declared happened."""
        topics = [topic for topic in self._env.pubsub.topics if topic not in BUILT_IN_TOPICS]
        known = [(topic, one) for topic in topics for one in declarations(topic).values()]
        never = [f"{topic.__name__}.{one.name}" for topic, one in known if (topic, one.event) not in self._env.fired]
        early, unbegun = self._env.early_events.lost, self._env.early_events.unbegun
        remedy = "let the wrapper call begin_env_step() first in it"
        lost = "count in the environment step before it, and no reward aggregator receives them"
        for key, names in early.items():
            fired = "are fired before its environment step has begun; they"
            yield ERROR, f"{', '.join(sorted(names))} of sub-step {key!r} {fired} {lost}: {remedy}"
        for key, names in unbegun.items():
            if names:
                yield ERROR, f"{', '.join(sorted(names))} of sub-step {key!r} {lost}: {remedy}"
            else:
                yield WARNING, f"sub-step {key!r} leaves the environment step before it open: {remedy}"
        if never or not (known or early or unbegun):
            yield (WARNING, f"never fired: {', '.join(never)}") if never else (SKIPPED, "none is declared")

    def saving(self) -> Iterator[Finding]:
        """A copy made in the middle of an episode goes on as the original does."""
        if not self._is_deterministic:
            yield SKIPPED, "the environment is not deterministic"
            return
        resets = [index for index, act in enumerate(self._acts[:_N_REPLAYED]) if act.action is None]
        start, end = max(pairwise([*resets, len(self._acts)]), key=lambda episode: episode[1] - episode[0])
        middle, verdict = (start + end) // 2, ERROR
        self._play_again(self._env, middle)
        try:
            try:
                other = self._make() if callable(self._given) else self._copied()
                other.env.clone_from(self._env.env)
            except CallTimeoutError:
                raise
            except Exception:  # classes of the user may raise anything
                verdict = WARNING
                other = self._copied()
            found = self._env.repeat(self._acts[middle:end]) or other.repeat(self._acts[middle:end])
        except CallTimeoutError:
            raise
        except Exception as error:  # a copy may be too broken to be stepped
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            yield verdict, f"a copy leads to {found}; let clone_from take over copies of all that the state is made of"

    def _copied(self) -> Recorder:
        return Recorder(copy.deepcopy(self._made[0]), self._masks, self._step_timeout)

    def pickling(self) -> Iterator[Finding]:
        """It can be sent to other processes."""
        try:
            cloudpickle.loads(cloudpickle.dumps(self._given))
        except Exception as error:  # classes of the user may raise anything
            yield WARNING, f"it cannot be sent to other processes, only vectorization=sequential is possible: {error}"

    def speed(self) -> Iterator[Finding]:
        """Acts per second."""
        names = ", ".join(type(wrapper).__name__ for wrapper in wrappers_of(self._made[0]))
        yield OK, f"{1 / self._seconds_alone:,.0f} acts a second alone, {1 / self._env.seconds():,.0f} within {names}"

    def vectorization(self) -> Iterator[Finding]:
        """Recommended way to step several environments."""
        seconds, n_cores = self._env.seconds(), len(os.sched_getaffinity(0))
        where = "subprocess" if seconds > 2 * _EXCHANGE and n_cores > 1 else "sequential"
        needs = f"an act takes {1e6 * seconds:,.0f} us, sending it to another process about {1e6 * _EXCHANGE:.0f} us"
        yield OK, f"{where}: {needs}, and there are {n_cores} cores"

    CHECKS = (
        *(spaces, steps, conversions, memory, determinism, env_time, episodes, masks, observations, rewards, events),
        *(saving, pickling, speed, vectorization),
    )


def _judge(what: str, values: Sequence[Any], remedy: str, least: float = 0.0) -> Iterator[Finding]:
    """Yield what is wrong with the magnitudes of numbers, given in the order of time."""
    flat = np.array(values, np.float64).reshape(len(values), -1)
    flat = flat[:, :: max(1, flat.shape[1] // _MOST_ENTRIES)]
    largest = float(np.abs(flat).max(initial=0.0))
    if not np.isfinite(largest):
        yield ERROR, f"{what} is not finite: it holds {flat[~np.isfinite(flat)][0]}"
        return
    described = f"(mean {flat.mean():.3g}, standard deviation {flat.std():.3g}, largest {largest:.3g})"
    if largest == 0 or (least == 0 and np.ptp(flat, axis=0).max() == 0 and len(values) > 1):
        yield WARNING, f"{what} never changes {described}: nothing can be learned from it"
    elif not least <= largest <= _LARGE:
        yield WARNING, f"{what} has a size that is hard to learn from {described}: {remedy}"
    early, late = np.array_split(flat, 2)
    spread = np.maximum(early.std(axis=0), late.std(axis=0)) + 1e-6 * (1 + largest)
    if len(values) >= 20 and (np.abs(early.mean(axis=0) - late.mean(axis=0)) > _DRIFT * spread).any():
        yield WARNING, f"{what} drifts {described}: its mean changes by more than {_DRIFT:.0f} standard deviations"


def _told(error: Exception) -> str:
    """Describe an exception, with its place in the user's code."""
    if isinstance(error, EnvContractError | CallTimeoutError):
        return str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    theirs = [frame for frame in frames if str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES]
    step = traceback.extract_stack((theirs or frames)[-1], limit=1)[0]
    return f"{type(error).__name__}: {error} ({Path(step.filename).name}:{step.lineno} in {step.name})"

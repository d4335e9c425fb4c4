"""The environment doctor: finds what training would fail on, or would learn nothing from without saying so."""

import copy
import os
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, check_observation, check_reset, check_step, name_of
from maze_pl.envs.structured_env import Action, Array, Observation, StructuredEnv
from maze_pl.envs.vector.vector_env import make_wrapped
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.normalization import sample_episodes
from maze_pl.events.topics import BUILT_IN_TOPICS, declarations

OK, WARNING, ERROR, SKIPPED = "ok", "warning", "error", "skipped"
_LIBRARIES = ("maze_pl", "gymnasium", "numpy", "torch", "copy", "cloudpickle")
_N_CONVERTED, _N_REPLAYED = 200, 500  # acts in which conversions are looked at, acts that are played again
_MOST_ENTRIES = 1000  # of an observation whose size is judged
_LARGE, _TINY = 100.0, 1e-3  # sizes that networks have trouble with
_DRIFT = 3.0  # standard deviations; a value that grows all the time drifts by 3.5
_EXCHANGE = 1e-4  # seconds that a step costs if the environment lives in another process

Finding = tuple[str, str]
"""Verdict and explanation."""


class CheckLine(NamedTuple):
    """One thing that was looked at.

    Attributes:
        name: What.
        verdict: `ok`, `warning`, `error`, or `skipped` where there is nothing to look at.
        explanation: What was found, and what to do.
    """

    name: str
    verdict: str
    explanation: str


@dataclass(frozen=True)
class CheckReport:
    """What the doctor found; as text, a table of at most 100 columns.

    Attributes:
        title: What was looked at.
        lines: One or several for each check.
    """

    title: str
    lines: tuple[CheckLine, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings are not."""
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
    env: Any, *, n_steps: int = 1000, seed: int = 0, action_masks: Mapping[str, str] | None = None
) -> CheckReport:
    """Look at an environment closely, by playing it at random.

    An environment that is given itself, and not what makes it, is reset and stepped by this.

    Args:
        env: A `MazeEnv` or a stack of wrappers around one, a bare gymnasium environment, or what makes one of these
            when it is called without arguments, so that two of them can be compared.
        n_steps: Acts to play.
        seed: Determines episodes and actions.
        action_masks: Masks beyond those that the environment declares; see `RolloutDataModule`.

    Returns:
        The report. Exceptions in the environment are part of it.

    Raises:
        ValueError: So few acts show nothing.

    Example:
        >>> check_env(GymMazeEnv("CartPole-v1")).ok
        True
    """
    if n_steps < 10:
        raise ValueError(f"n_steps={n_steps} must be at least 10")
    examination, lines, is_over = Examination(env, n_steps, seed, action_masks or {}), list[CheckLine](), False
    for look in Examination.CHECKS:
        what_holds = str(look.__doc__)
        try:
            found = list(look(examination)) or [(OK, what_holds[0].lower() + what_holds[1:-1])]
        except Exception as error:  # of the environment, whatever it is
            found, is_over = [(ERROR, _told(error))], look in Examination.CHECKS[:2]
        lines += [CheckLine(look.__name__, *finding) for finding in found]
        if is_over:
            break  # there is nothing that others could look at
    examination.close()
    return CheckReport(examination.title, tuple(lines))


class Act(NamedTuple):
    """What an environment showed after a reset or a step.

    Attributes:
        actor: Who acts next.
        reward: What came of the action.
        terminated: Whether the episode terminated.
        truncated: Whether it was cut off.
        env_time: Environment steps since it began.
        returned: The observation itself.
        kept: Its arrays as they were when it was returned.
        action: What led here, None after a reset.
        seed: What the environment was reset with.
        seconds: How long the step took.
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


class Recorder(Wrapper):
    """Keeps all that an environment shows, and refuses what nobody can act on.

    Args:
        env: The environment.
        masks: Action head -> observation, beyond the masks that the environment declares.

    Attributes:
        before: Told each action before it is taken, if anything is to be told.
        acts: All resets and steps.
        fired: Topic and event of all that happened.
        sub_steps: What is seen and done in each sub-step.
    """

    def __init__(self, env: StructuredEnv, masks: Mapping[str, str]) -> None:
        super().__init__(env)
        spec = Spec.of(env, {key: 1 for key, count in env.agent_counts_dict.items() if count < 0}, masks)
        spec.to_dict()  # refuses what checkpoints cannot hold
        self.sub_steps = spec.steps
        self.before: Callable[[Action], None] | None = None
        self.acts: list[Act] = []
        self.fired: set[tuple[type, Any]] = set()

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return {key: step.masks for key, step in self.sub_steps.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        result = self.env.reset(seed=seed, options=options)
        check_reset(result, self.env)
        self._keep((result[0], 0.0, False, False), None, seed=seed)
        return result

    def step(self, action: Action) -> Any:
        """Perform an act."""
        if self.before is not None:
            self.before(action)
        began = time.perf_counter()
        result = self.env.step(action)
        seconds = time.perf_counter() - began
        check_step(result, self.env)
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
            is_free = isinstance(space, spaces.MultiBinary) or terminated or truncated
            if not is_free and not all(part.any() for part in np.split(observation[name], ends)):
                raise EnvContractError(f"mask {name!r} in {what} allows nothing for {head!r} (act {len(self.acts)})")
        kept = {name: np.array(value) for name, value in observation.items()}
        outcome = float(reward), bool(terminated), bool(truncated), self.env.get_env_time()
        self.acts.append(Act(actor, *outcome, observation, kept, action, **further))
        self.fired |= {(record.topic, record.event) for record in self.env.get_step_events()}

    def makers(self, key: StepKey) -> str:
        """Who makes the observations of a sub-step: its conversion, and wrappers."""
        inner: Any = self.unwrapped
        makers = [inner.observation_conversion_dict.get(key), *list(wrappers_of(self.env))[:0:-1]]
        return ", ".join(type(maker).__name__ for maker in makers if maker is not None)

    def seconds(self) -> float:
        """How long a step took on average."""
        return float(np.mean([act.seconds for act in self.acts if act.action is not None]))

    def repeat(self, acts: Sequence[Act]) -> str | None:
        """Do again what was done, without keeping it, and say what is not as it was."""
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


def same(one: Any, other: Any) -> bool:
    """Whether two arrays or numbers are equal, NaN being equal to itself."""
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" == other.dtype.kind)


class _Shown(NamedTuple):
    """An observation: whose it is, what it may be, whether it is a mask, and what it was, when returned and now."""

    what: str
    space: spaces.Space[Any]
    is_mask: bool
    kept: list[Array]
    returned: list[Array]


class Examination:
    """An environment, and what it showed when it was played at random.

    Each check yields verdicts and explanations; its docstring says what holds where it yields none.

    Args:
        env: The environment, or what makes it.
        n_steps: Acts to play.
        seed: Determines episodes and actions.
        masks: Action head -> observation, beyond the masks that the environment declares.
    """

    def __init__(self, env: Any, n_steps: int, seed: int, masks: Mapping[str, str]) -> None:
        self._given, self._n_steps, self._seed, self._masks = env, n_steps, seed, masks
        self._made: list[LogStatsWrapper] = []
        self._learned: list[dict[str, Any]] = []  # by each wrapper, which observations and rewards may depend on
        self._acts: list[Act] = []
        self._shown: list[_Shown] = []
        self._is_deterministic = True

    @property
    def title(self) -> str:
        """What was looked at, and for how long."""
        name = name_of(self._made[0]) if self._made else "the environment"
        n_episodes = sum(act.action is None for act in self._acts)
        return f"{name}: {len(self._acts) - n_episodes:,} acts in {n_episodes} episodes"

    def close(self) -> None:
        """Leave what wrappers had learned as it was, and end the environments that were made."""
        for env in self._made:
            self._rewind(env)
            if callable(self._given):
                env.close()

    def _make(self) -> Recorder:
        """Another environment if there can be one, otherwise the same."""
        if callable(self._given) or not self._made:
            made: Any = make_wrapped(self._given if callable(self._given) else lambda: self._given)
            made.unwrapped._unchecked = []  # `steps` looks at all observations
            self._made.append(made)
        return Recorder(self._made[-1], self._masks)

    def _rewind(self, env: Any) -> None:
        for wrapper, state in zip(wrappers_of(env), self._learned, strict=False):  # none if it was not played
            wrapper.load_state_dict(state)

    def _play_again(self, env: Recorder, end: int = _N_REPLAYED) -> str | None:
        self._rewind(env.env)
        return env.repeat(self._acts[:end])

    def spaces(self) -> Iterator[Finding]:
        """There are networks and distributions for all observations and actions."""
        self._env = self._make()
        self._acts = self._env.acts
        yield from ()

    def steps(self) -> Iterator[Finding]:
        """Every observation lies in its space."""
        self._made[0].estimate(min(self._n_steps, 1000), derive_seed(self._seed, "normalization"))
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
        names = {name for space in inner.observation_spaces_dict.values() for name in space}
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

        alone = Recorder(inner, {head: name for head, name in self._masks.items() if name in names})
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
            if not np.isin(shown.kept, (0, 1)).all():
                verdict = WARNING if np.isfinite(shown.kept).all() else ERROR
                yield verdict, f"{shown.what} holds more than 0 (forbidden) and 1 (allowed)"
            elif np.all(shown.kept):
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
        if never or not known:
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
            except Exception:  # whatever their own classes make of it
                verdict = WARNING
                other = self._copied()
            found = self._env.repeat(self._acts[middle:end]) or other.repeat(self._acts[middle:end])
        except Exception as error:  # a copy may be too broken to be stepped
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            yield verdict, f"a copy leads to {found}; let clone_from take over copies of all that the state is made of"

    def _copied(self) -> Recorder:
        return Recorder(copy.deepcopy(self._made[0]), self._masks)

    def pickling(self) -> Iterator[Finding]:
        """It can be sent to other processes."""
        try:
            cloudpickle.loads(cloudpickle.dumps(self._given))
        except Exception as error:  # whatever their own classes make of it
            yield WARNING, f"it cannot be sent to other processes, only vectorization=sequential is possible: {error}"

    def speed(self) -> Iterator[Finding]:
        """Acts a second."""
        names = ", ".join(type(wrapper).__name__ for wrapper in wrappers_of(self._made[0]))
        yield OK, f"{1 / self._seconds_alone:,.0f} acts a second alone, {1 / self._env.seconds():,.0f} within {names}"

    def vectorization(self) -> Iterator[Finding]:
        """Where several environments are best stepped."""
        seconds, n_cores = self._env.seconds(), len(os.sched_getaffinity(0))
        where = "subprocess" if seconds > 2 * _EXCHANGE and n_cores > 1 else "sequential"
        needs = f"an act takes {1e6 * seconds:,.0f} us, sending it to another process about {1e6 * _EXCHANGE:.0f} us"
        yield OK, f"{where}: {needs}, and there are {n_cores} cores"

    CHECKS = (
        *(spaces, steps, conversions, memory, determinism, episodes, masks, observations, rewards, events),
        *(saving, pickling, speed, vectorization),
    )


def _judge(what: str, values: Sequence[Any], remedy: str, least: float = 0.0) -> Iterator[Finding]:
    """What is wrong with the sizes of numbers, in the order in which they came."""
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
    """What went wrong, and where in the user's code."""
    if isinstance(error, EnvContractError):
        return str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    theirs = [frame for frame in frames if str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES]
    step = traceback.extract_stack((theirs or frames)[-1], limit=1)[0]
    return f"{type(error).__name__}: {error} ({Path(step.filename).name}:{step.lineno} in {step.name})"

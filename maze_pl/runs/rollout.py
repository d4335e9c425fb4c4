"""Rollouts: recorded episodes of a policy, played in this or other processes or machines."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import Any

import gymnasium
import torch
from tqdm import tqdm

from maze_pl.agents.input_range import unreadable
from maze_pl.collect.endless_episodes import MAX_STEPS, EndlessEpisodes
from maze_pl.collect.engines import Engine, InProcessEngine
from maze_pl.collect.episodes import play_episodes
from maze_pl.core.actor_id import StepKey
from maze_pl.core.checks import MOST_EPISODES, check_room_for_environments
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import EnvPolicy, MazeStatePolicy, PolicyBatch, PolicyStep, evaluation_mode
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import MaskError, no_value
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.building import Env, shared_states_of, wrapper_stack
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.vector.episode_seeding import EpisodeSeeding
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.bundle_policy import BundlePolicy, bundle_policy
from maze_pl.runs.contained_wrappers import MakeWithout
from maze_pl.runs.episode_seeds import listed_seeds
from maze_pl.runs.forbidden_actions import ForbiddenActions
from maze_pl.runs.part_factories import env_or_factory, to_factories
from maze_pl.runs.policies import make_policy
from maze_pl.runs.recording_envs import RECORDABLE, RecordingEnvs, recorded
from maze_pl.runs.searching import MakeSearchable, make_search_policy, require_copies, searchable
from maze_pl.search import SearchError, SearchOptions, SearchPolicy
from maze_pl.search.simulation import is_of_simulation
from maze_pl.system.progress import bar_options
from maze_pl.system.time_limit import time_limit_to_make

_N_ESTIMATION_SAMPLES = 1000


@dataclass(slots=True)
class Trajectory:
    """An episode that was played.

    Attributes:
        episode_id: Its UUID.
        seed: Seed that the environment was reset with.
        summary: Its statistics: `episode_index`, `reward` (the return), `env_steps` (the length),
            `kpis` and others.
        spaces: Observations and actions of the agents, if recorded.
        states: States of the simulation, if recorded.
        events: Arguments of `EventLogFiles.append`, if events were recorded.
    """

    episode_id: str
    seed: int
    summary: EpisodeSummary
    spaces: SpacesTrajectoryRecord | None = None
    states: StateTrajectoryRecord | None = None
    events: list[tuple[Any, ...]] = field(default_factory=list)


def _vector(factories: list[Any], step_timeout: float | None, **options: Any) -> SequentialVectorEnv | SubprocVectorEnv:
    """Make a vector env, in a subprocess if a step timeout must be able to kill it."""
    if step_timeout is None:
        return SequentialVectorEnv(factories, **options)
    return SubprocVectorEnv(factories, step_timeout=step_timeout, n_workers=1, **options)


class _Player:
    """Plays groups of episodes; also wraps the policy, to supply and check what it needs.

    Args:
        policy: The wrapped policy.
        make: Makes an environment.
        n_envs: Maximum number of episodes in a group.
        spec: Spaces of the agents.
        seed: Determines the episodes and the policy's random numbers.
        step_timeout: Seconds that an environment may take for a step or a reset; None means no
            limit.
        acting: `deterministic` and `temperature`.
        episode_seeds: Seeds of all episodes by their numbers; None if they follow from `seed`.
        keeps_wrappers: Whether wrappers keep their state from one group to the next.
    """

    def __init__(
        self,
        policy: Any,
        make: Any,
        n_envs: int,
        spec: Spec,
        seed: int,
        step_timeout: float | None,
        acting: dict[str, Any],
        episode_seeds: Sequence[int] | None = None,
        keeps_wrappers: bool = False,
    ) -> None:
        self.policy = policy
        self._keeps_wrappers = keeps_wrappers
        self._asks_for_envs = isinstance(policy, EnvPolicy)  # asking a protocol for each act takes long
        self._asks_for_states = isinstance(policy, MazeStatePolicy)
        self._guide = policy.policy if isinstance(policy, SearchPolicy) else policy
        self.seed = seed
        self.acting = acting
        self._seeding = EpisodeSeeding(derive_seed(seed, "rollout"), seed_by_env=False, episode_seeds=episode_seeds)
        options: Any = vars(self._seeding)
        self.vector = _vector([make] * n_envs, step_timeout, spec=spec, autoreset=False, **options)
        self._unbounded = self._guide.unbounded if isinstance(self._guide, BundlePolicy) else {}
        endless = EndlessEpisodes(MAX_STEPS)
        self._on_many_acts = None if make.max_steps else partial(endless.tell, "")
        self._checked: set[StepKey] = set()
        self._forbidden = ForbiddenActions(spec, type(self._guide).__name__)

    def close(self) -> None:
        """Close the environments, and those of a search."""
        with closing(self.vector):
            if isinstance(self.policy, SearchPolicy):
                self.policy.close()

    def play(self, episodes: range) -> list[Trajectory]:
        """Play a group of episodes, each in a separate environment."""
        self.first = episodes.start
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "policy", self.first))
        if not self._keeps_wrappers:
            self.vector.reset_wrappers()
        with evaluation_mode(self.policy):
            summaries = play_episodes(
                self.vector,
                self,
                episodes,
                generator=generator,
                deterministic=False,
                unbounded=self._unbounded,
                on_many_acts=self._on_many_acts,
            )
        recordings_of_each = self.vector.of_each(recorded, range(len(summaries)))
        trajectories = []
        for (episode_id, recordings), summary in zip(recordings_of_each, summaries, strict=True):
            seed = self._seeding.seed_of(0, summary.episode_index)
            trajectories.append(Trajectory(episode_id, seed, summary, **recordings))
        return trajectories

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Ask the policy to act; validate its first action in each sub-step."""
        if self._asks_for_envs and batch.episode_index is not None:
            envs = (batch.episode_index - self.first).tolist()
            batch.envs = self.vector.of_each(searchable, envs)
        if self._asks_for_states and batch.episode_index is not None:
            envs = (batch.episode_index - self.first).tolist()
            batch.maze_state = self.vector.of_each(methodcaller("get_simulation_state"), envs)
        key = batch.step_key
        try:
            if fault := unreadable(self._guide, key, batch.observation):
                raise EnvContractError(f"{fault} (sub-step {key!r})")
            step: PolicyStep = self.policy.act(batch, generator=generator, **self.acting)
            if key not in self._checked:
                self._check(batch, step)
                self._checked.add(key)
            self._forbidden.look(batch, step)
        except (EnvContractError, MaskError, SearchError):
            raise
        except Exception as error:
            names_fault = isinstance(self._guide, BundlePolicy) or is_of_simulation(error)
            if key in self._checked or names_fault or not type(self.policy).__module__.startswith("maze_pl."):
                raise  # the traceback of a user's policy or environment shows its cause
            fault = f"{type(self.policy).__name__} is not a policy for sub-step {key!r}"
            raise ValueError(f"{fault} with observations {[*batch.observation]}: {error}") from error
        return step

    def _check(self, batch: PolicyBatch, step: PolicyStep) -> None:
        """Raise ValueError if actions do not belong to the action space of their sub-step."""
        heads = self.vector.spec.steps[batch.step_key].action_space.spaces
        n = len(batch.agent_id)
        if heads.keys() != step.action.keys() or any(no_value(heads[k], v, n) for k, v in step.action.items()):
            raise ValueError(f"{step.action} are not {n} actions of {heads}")


def rollout(
    env: Callable[[], Env] | Env | str | Mapping[str, Any],
    policy: Any = "random",
    episodes: int | None = None,
    seed: int = 0,
    *,
    record: Collection[str] = ("spaces",),
    wrappers: Sequence[Callable[..., Env] | str | Mapping[str, Any]] | Mapping[str, Any] | None = None,
    max_steps: int = 0,
    deterministic: bool = False,
    temperature: float = 1.0,
    search: str | SearchOptions | None = None,
    n_envs: int = 4,
    engine: Engine | None = None,
    wrapper_statistics: Mapping[str, Any] | None = None,
    action_masks: dict[str, str] | None = None,
    max_agents: dict[StepKey, int] | None = None,
    first_episode: int = 0,
    episode_seeds: Sequence[int] | str | None = None,
    progress: bool | str = False,
    receive: Callable[[Trajectory], object] | None = None,
    stop: Callable[[], object] | None = None,
) -> list[Trajectory]:
    """Play episodes with a policy. The same seed gives the same episodes on any engine.

    Args:
        env: Builds one environment (a callable, its class path, or a dict with `class_path` and
            `init_args`), or is one, which plays one episode after the other and is then closed; a
            plain gymnasium environment or an array environment is adapted.
        policy: A policy; a trained module; a class path or callable that makes a policy from any of
            `action_spaces_dict`, `masks` (by sub-step), `spec` and `env` (a sample that is not
            played in); `random`; `heuristic` for the policy that the environment names; or the
            file of a bundle, which is played without the wrappers that it contains.
        episodes: Number of episodes; None means one for each of `episode_seeds`, or one.
        seed: Determines the episodes and the policy's random numbers.
        record: Data to keep of each episode besides its statistics: `spaces` (observations and
            actions), `states` (of the simulation), `events` (all of them), `frames` (pictures, kept
            as `states.frames`, with the states), `gifs` (files in `renderings` of the current or the
            run directory, written where the episode is played).
        wrappers: Callables that wrap the environment, their class paths, or dicts with `class_path` and
            `init_args`, the first one innermost; or a dict from class paths to arguments.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        deterministic: Whether the policy takes its most likely actions.
        temperature: Above 1 flattens the policy's distributions, below 1 sharpens them.
        search: Search before each decision, such as `best_of:128`, `beam:16`, `lookahead:heuristic`,
            `puct:64`, or `puct:50ms`; see the page on search.
        n_envs: Episodes per group; a group is played in parallel with its own random numbers.
        engine: Plays the groups; None means in this process.
        wrapper_statistics: Wrapper statistics (`shared_states_of`); wrappers estimate them if None or empty.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        first_episode: Number of the first episode; the episodes are those that a rollout from 0 on
            would play, if the number is a multiple of `n_envs`.
        episode_seeds: Seeds that the environment is reset with, by the numbers of the episodes,
            instead of seeds that follow from `seed`: a list, or a text such as `0-39`.
        progress: Whether to show a progress bar, in a file a line every 10 s; a text is its label.
        receive: Called with each trajectory, in order, as soon as it is available; may remove data
            that should not be kept.
        stop: Called from time to time; if it returns true, the remaining episodes are left out.

    Returns:
        The trajectories, in the order of the episodes.

    Raises:
        TypeError: An argument is not an environment, a wrapper, or a policy.
        ValueError: A number is too small, a name in `record` is unknown, or policy, environment and
            wrappers do not fit together.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> trajectories = rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", episodes=2, max_steps=100)
        >>> [(one.summary.reward, one.spaces.truncated) for one in trajectories]
        [(100.0, True), (100.0, True)]
    """
    seeds = None if episode_seeds is None else listed_seeds(episode_seeds)
    if episodes is None:
        episodes = 1 if seeds is None else max(1, len(seeds) - first_episode)
    _check_numbers(episodes, max_steps, n_envs, first_episode, temperature)
    _check_record(record)
    end = first_episode + episodes
    if seeds is not None and len(seeds) < end:
        raise ValueError(f"episode_seeds has {len(seeds)} seeds for {end} episodes: give each one a seed")
    env = env_or_factory(env)
    if isinstance(env, ArrayEnv):
        env = ArrayMazeEnv(env)
    is_single = isinstance(env, gymnasium.Env)
    group_size = 1 if is_single else n_envs
    step_timeout = None if engine is None else engine.step_timeout
    if is_single and step_timeout is not None:
        fault = f"step_timeout={step_timeout} needs environments that are made in separate processes"
        raise ValueError(f"{fault}: give a function that makes one, such as lambda: MyEnv(), instead of {env}")
    if search is not None:
        _check_search(is_single, step_timeout)
    bundle = bundle_policy(policy, temperature)
    removed = [] if bundle is None else bundle.included
    make_env: Any = partial(_same, env) if is_single else env
    factory: Any = MakeWithout(make_env, to_factories(wrappers or ()), action_masks, removed, is_given=is_single)
    with time_limit_to_make(step_timeout):
        built = factory.build()
    sample = built.env
    with nullcontext() if is_single else closing(sample):
        if is_single:
            factory = partial(_same, sample)
        statistics = built.statistics_of(wrapper_statistics or {})
        if not wrapper_statistics:
            statistics = _estimated(factory, sample, derive_seed(seed, "normalization"), step_timeout)
        spec = Spec.of(sample, max_agents)
        make = RecordingEnvs(factory, statistics, record, max_steps, max_agents)
        agent = policy
        policy = make_policy(policy if bundle is None else bundle, spec, sample)
        if search is not None:
            make_copy = MakeSearchable(replace(make, record=()))
            require_copies(make_copy, spec)
            policy = make_search_policy(search, agent, policy, spec, sample, make_copy, seed)
    acting = {"deterministic": deterministic, "temperature": temperature}

    def make_player(policy: Any, *_: Any) -> _Player:
        return _Player(policy, make, group_size, spec, seed, step_timeout, acting, seeds, is_single)

    starts = range(first_episode, end, group_size)
    groups = [range(start, min(start + group_size, end)) for start in starts]
    played: list[Trajectory] = []
    label = progress if isinstance(progress, str) else "episodes"
    bar = tqdm(total=episodes, unit="episode", **bar_options(label, bool(progress)))
    with bar, closing(engine or InProcessEngine()) as workers:
        workers.start(make_player, policy)
        for trajectory in _played(workers, groups, stop):
            if receive is not None:
                receive(trajectory)
            played.append(trajectory)
            bar.update()
    return played


def _check_numbers(episodes: int, max_steps: int, n_envs: int, first_episode: int, temperature: float) -> None:
    """Raise ValueError if a number of `rollout` is out of range."""
    numbers: dict[str, tuple[float, float]] = {
        "episodes": (episodes, 1),
        "max_steps": (max_steps, 0),
        "n_envs": (n_envs, 1),
        "first_episode": (first_episode, 0),
        "temperature": (temperature, 1e-9),
    }
    for name, (number, smallest) in numbers.items():
        if not number >= smallest:
            raise ValueError(f"{name}={number} must be at least {smallest}")
    if episodes > MOST_EPISODES:
        raise ValueError(f"episodes={episodes} must be at most {MOST_EPISODES}")
    check_room_for_environments("n_envs", n_envs)


def _check_record(record: Collection[str]) -> None:
    """Raise ValueError if data to record are unknown, or are a single name."""
    if isinstance(record, str) or not set(record) <= set(RECORDABLE):
        raise ValueError(f"record={record!r} must be a list of names among {list(RECORDABLE)}")


def _check_search(is_single: bool, step_timeout: float | None) -> None:
    """Raise ValueError if environments cannot be copied for a search, because of where they are."""
    if is_single:
        raise ValueError("search needs further environments: give a function that makes them, such as lambda: MyEnv()")
    if step_timeout is not None:
        fault = f"step_timeout={step_timeout} keeps environments in separate processes"
        raise ValueError(f"{fault}, where search cannot copy them: give only one of the two")


def _same(env: Any) -> Any:
    """Return the environment: the factory of an environment that exists already."""
    return env


def _estimated(factory: Callable[[], Any], sample: Any, seed: int, step_timeout: float | None) -> dict[str, Any]:
    """Estimate wrapper statistics, in the sample or, with a step timeout, in a subprocess."""
    if step_timeout is None:
        sample.estimate(_N_ESTIMATION_SAMPLES, seed)
        return shared_states_of(wrapper_stack(sample))
    with closing(_vector([factory], step_timeout)) as vector:
        return vector.estimate(_N_ESTIMATION_SAMPLES, seed)


def _played(workers: Engine, groups: list[range], stop: Callable[[], object] | None) -> Iterator[Trajectory]:
    """Play groups of episodes on an engine, and yield their trajectories in order.

    Args:
        workers: The engine; its players are `_Player`s.
        groups: Episodes of each group.
        stop: Called from time to time; if it returns true, the remaining episodes are left out.
    """
    waiting = iter(groups)
    for player, group in zip(range(workers.n_workers), waiting, strict=False):
        workers.submit(player, "play", group)
    finished: dict[int, list[Trajectory]] = {}  # first episode of a group -> its trajectories
    for group in groups:
        while group.start not in finished:
            if stop is not None and stop():
                return
            with suppress(TimeoutError):
                done = workers.get(0.5)
                finished[done.result[0].summary.episode_index] = done.result
                following = next(waiting, None)
                if following is not None:
                    workers.submit(done.player, "play", following)
        yield from finished.pop(group.start)

"""Rollouts: episodes that a policy plays and that are kept, in this process, in others, or on other machines.

`rollout` plays them for programs, `maze-pl rollout` (`play`) for the command line, with statistics and files.
"""

import csv
import inspect
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, cast

import gymnasium
import torch
from jsonargparse.typing import lazy_instance
from torch import nn
from tqdm import tqdm

from maze_pl.agents import TorchPolicy
from maze_pl.check_command import parsed
from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.collect.episodes import play_episodes
from maze_pl.configuration import RUN_CONFIG
from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_object
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.output_folder import write_file
from maze_pl.core.policy import MazeStatePolicy, Policy, PolicyBatch, PolicyStep, evaluation_mode
from maze_pl.core.records import SpacesTrajectoryRecord
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import no_value
from maze_pl.core.spec import Spec
from maze_pl.envs import wrappers as ours
from maze_pl.envs.contract import name_of
from maze_pl.envs.trajectory_record import GifFiles, StateTrajectoryRecord, TrajectoryFiles
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.vector.vector_env import load_shared_states, make_wrapped, shared_states_of, wrapper_stack
from maze_pl.events import EpochStatistics, EventLogFiles, Histogram
from maze_pl.events.display import render as render_table
from maze_pl.instantiation import Factory
from maze_pl.loading import checkpoint_path, learned_in, load, read_checkpoint, require_same_spaces
from maze_pl.run_directory import new_directory, remove_empty, run_directory
from maze_pl.signals import StopSignals

Env = gymnasium.Env[Any, Any]
_PARALLEL: Final = lazy_instance(ProcessEngine)  # of which options may say more
_NO_OPTIONS: Final = {"texts", "signals", "learned", "record", "progress", "receive", "stop"}


@dataclass(slots=True)
class Trajectory:
    """An episode that was played.

    Attributes:
        episode_id: Its UUID.
        seed: Seed that the environment was reset with.
        summary: Its statistics: `episode_index`, `reward` (the return), `env_steps` (the length), `kpis` and others.
        spaces: What agents saw and did, if that was recorded.
        states: What the simulation went through, if that was recorded.
        events: Arguments of `EventLogFiles.append`, if events were recorded.
    """

    episode_id: str
    seed: int
    summary: EpisodeSummary
    spaces: SpacesTrajectoryRecord | None = None
    states: StateTrajectoryRecord | None = None
    events: list[tuple[Any, ...]] = field(default_factory=list)


class _EventRows(EventLogFiles):
    """Keeps rows for whoever writes those of all episodes in their order."""

    def append(self, *rows: Any) -> None:
        """Keep them, as an attribute that is not there while nothing is kept."""
        self.kept = [*vars(self).get("kept", ()), rows]

    def pop(self) -> Any:
        """Those of the last episode, as from recorded ones."""
        return vars(self).pop("kept", [])


class _Player:
    """Plays groups of episodes, and is the policy that sees to it that the other one gets what it needs.

    Args:
        policy: That other one.
        make: Makes an environment.
        n_envs: Episodes of a group, at most.
        spec: What agents see and do.
        seed: Determines the episodes and what is random in the policy.
        how: `deterministic` and `temperature`.
    """

    def __init__(self, policy: Any, make: Any, n_envs: int, spec: Spec, seed: int, **how: Any) -> None:
        self.policy, self.seed, self.how = policy, seed, how
        seed = derive_seed(seed, "rollout")
        self.vector = SequentialVectorEnv([make] * n_envs, seed=seed, spec=spec, autoreset=False, seed_by_env=False)
        self.close, self._known = self.vector.close, set[StepKey]()

    def play(self, episodes: range) -> list[Trajectory]:
        """Play a group, each episode in an environment of its own."""
        self.first = episodes.start
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "policy", self.first))
        with evaluation_mode(self.policy):
            played = play_episodes(self.vector, self, episodes, generator=generator, deterministic=False)
        return [self._kept(*pair) for pair in zip(self.vector.envs, played, strict=False)]

    def _kept(self, env: Any, summary: EpisodeSummary) -> Trajectory:
        """What was recorded of the episode that an environment has just played."""
        kept = {kind: recorded.pop() for kind, recorded in env.recorded.items()}
        if "spaces" in kept:
            kept["spaces"].spec = self.vector.spec  # with the masks that were configured
        seed = derive_seed(self.vector.seed, "env", 0, summary.episode_index)
        return Trajectory(env.get_episode_id(), seed, summary, **kept)

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Ask the policy; look closely at its first action in each sub-step."""
        if isinstance(self.policy, MazeStatePolicy) and batch.episode_index is not None:
            batch.maze_state = [self.vector.envs[n - self.first].get_maze_state() for n in batch.episode_index.tolist()]
        try:
            step: PolicyStep = self.policy.act(batch, generator=generator, **self.how)
            if batch.step_key not in self._known:
                heads, n = self.vector.spec.steps[batch.step_key].action_space.spaces, len(batch.agent_id)
                if heads.keys() != step.action.keys() or any(no_value(heads[k], v, n) for k, v in step.action.items()):
                    raise ValueError(f"{step.action} are not {n} actions of {heads}")
                self._known.add(batch.step_key)
        except Exception as error:
            if batch.step_key in self._known or not type(self.policy).__module__.startswith("maze_pl."):
                raise  # of their own policy, users can make more
            what = f"{type(self.policy).__name__} is a policy for something else than sub-step {batch.step_key!r}"
            raise ValueError(f"{what} with observations {[*batch.observation]}: {error}") from error
        return step


def rollout(
    env: Callable[[], Env] | Env,
    policy: Any = "random",
    episodes: int = 1,
    seed: int = 0,
    *,
    record: Collection[str] = ("spaces",),
    wrappers: Sequence[Callable[..., Env]] | None = None,
    max_steps: int = 0,
    deterministic: bool = False,
    temperature: float = 1.0,
    n_envs: int = 4,
    engine: Engine | None = None,
    learned: Mapping[str, Any] | None = None,
    action_masks: dict[str, str] | None = None,
    max_agents: dict[StepKey, int] | None = None,
    progress: bool = False,
    receive: Callable[[Trajectory], object] = id,
    stop: Callable[[], object] = bool,
) -> list[Trajectory]:
    """Have a policy play episodes. The same seed gives the same episodes, whatever the engine and its workers.

    Args:
        env: Builds one environment, or is one, which plays one episode after the other and is closed then; a bare
            gymnasium environment is adapted.
        policy: What acts: a policy, a trained module, something that makes a policy from those of `action_spaces_dict`,
            `masks` (by sub-step), `spec` and `env` (one that is not played in) that it takes, a class path, `random`,
            or `heuristic` for the policy that the environment names.
        episodes: How many.
        seed: Determines the episodes and what is random in the policy.
        record: What is kept of each episode beside its statistics: `spaces` (what agents saw and did), `states` (what
            the simulation went through), `events` (all of them), `gifs` (files in `renderings`, of the current or the
            run directory, written where the episode is played).
        wrappers: Wrap the environment, the first one innermost.
        max_steps: Environment steps after which an episode is truncated; 0 means without limit.
        deterministic: Whether the policy takes its most likely actions.
        temperature: Above 1 flattens the policy's distributions, below 1 sharpens them.
        n_envs: So many episodes are a group, which is played at the same time with random numbers of its own.
        engine: Where groups are played; in this process if None.
        learned: What the wrappers have learned (`shared_states_of`); they estimate it if that is nothing.
        action_masks: Action head -> observation whose nonzero entries are allowed, beyond what the environment
            declares itself.
        max_agents: For sub-steps whose number of agents changes, how many may be alive at once.
        progress: Whether to show how far it is, and how long it will take.
        receive: Told each trajectory in order as soon as it is there; may take out what is not to be kept.
        stop: Asked from time to time; if it says yes, the episodes that have not come yet are left out.

    Returns:
        The trajectories, in the order of the episodes.

    Raises:
        TypeError: Something is neither an environment nor a policy.
        ValueError: A number is too small, or policy, environment and wrappers do not fit together.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> trajectories = rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", episodes=2, max_steps=100)
        >>> [(one.summary.reward, one.spaces.truncated) for one in trajectories]
        [(100.0, True), (100.0, True)]
    """
    least = {"episodes": (episodes, 1), "max_steps": (max_steps, 0), "n_envs": (n_envs, 1)}
    for name, (number, smallest) in {**least, "temperature": (temperature, 1e-9)}.items():
        if not number >= smallest:
            raise ValueError(f"{name}={number} must be at least {smallest}")
    is_one, given = isinstance(env, gymnasium.Env), cast(Any, env)
    size = 1 if is_one else n_envs
    factory = partial(make_wrapped, (lambda: given) if is_one else given, wrappers or ())
    sample = factory()
    if not learned:
        sample.estimate(1000, derive_seed(seed, "normalization"))
        learned = shared_states_of(wrapper_stack(sample))
    spec = Spec.of(sample, max_agents, action_masks)
    policy = _made(policy, spec, sample)
    if not is_one:
        sample.close()

    def make() -> Any:
        wrapped: Any = factory()
        load_shared_states(wrapper_stack(wrapped), learned, freeze=True)  # while all are where they were
        # A limit that is never reached keeps vectors from stepping a gymnasium environment past its states.
        wrapped, recorded = ours.TimeLimitWrapper(wrapped.env, max_steps or sys.maxsize), dict[str, Any]()
        if "states" in record or "gifs" in record:
            wrapped = ours.TrajectoryRecordingWrapper(wrapped, GifFiles() if "gifs" in record else None)
            recorded["states"] = wrapped.trajectories
        if "events" in record:
            wrapped = ours.EventLogsWrapper(wrapped, _EventRows(n_rows=sys.maxsize))
            recorded["events"] = wrapped.writer
        if "spaces" in record:
            wrapped = ours.SpacesRecordingWrapper(wrapped, None, 1, max_agents)
            recorded["spaces"] = wrapped.trajectories
        wrapped = ours.LogStatsWrapper(wrapped)
        wrapped.recorded = {kind: episodes for kind, episodes in recorded.items() if kind in record}
        return wrapped

    options = {"deterministic": deterministic, "temperature": temperature}
    groups = [range(first, min(first + size, episodes)) for first in range(0, episodes, size)]
    ready, played = dict[int, list[Trajectory]](), list[Trajectory]()
    bar = tqdm(total=episodes, unit="episode", disable=not progress, mininterval=0.2 if sys.stderr.isatty() else 10)
    with bar, closing(engine or InProcessEngine()) as workers:
        workers.start(lambda policy, *_: _Player(policy, make, size, spec, seed, **options), policy)
        waiting = iter(groups)
        for actor, group in zip(range(workers.n_workers), waiting, strict=False):
            workers.submit(actor, "play", group)
        for group in groups:
            while group.start not in ready:
                if stop():
                    return played
                with suppress(TimeoutError):
                    done = workers.get(0.5)
                    ready[done.result[0].summary.episode_index] = done.result
                    for following in islice(waiting, 1):
                        workers.submit(done.actor, "play", following)
            for trajectory in ready.pop(group.start):
                receive(trajectory)
                played.append(trajectory)
                bar.update()
    return played


def _made(policy: Any, spec: Spec, env: Any) -> Policy:
    """The policy that somebody means."""
    policy = target = Factory(policy) if isinstance(policy, str) else policy
    if isinstance(policy, Factory):
        named = {"random": "maze_pl.agents.RandomPolicy", "heuristic": env.heuristic_policy or "heuristic"}
        path = named.get(policy.class_path, policy.class_path)
        try:
            target, policy = import_object(path), replace(policy, class_path=path)
        except ImportError as error:
            known = "use random, heuristic (where the environment has a heuristic_policy), or a class path"
            raise ValueError(f"no policy {policy.class_path!r} for {name_of(env)}: {error}; {known}") from error
    if isinstance(policy, type) or not isinstance(policy, Policy):
        given: dict[str, Any] = {"action_spaces_dict": {key: step.action_space for key, step in spec.steps.items()}}
        given |= {"masks": {key: step.masks for key, step in spec.steps.items()}, "spec": spec, "env": env}
        configured = {**getattr(policy, "init_args", {}), **getattr(policy, "keywords", {})}
        names = inspect.signature(target).parameters.keys() & given.keys() - configured
        policy = policy(**{name: given[name] for name in names})
    policy = getattr(policy, "policy", policy) if isinstance(policy, nn.Module) else policy  # that of an algorithm
    if isinstance(policy, TorchPolicy):
        require_same_spaces(policy.spec.to_dict(), spec.to_dict(), "the policy")
    if not isinstance(policy, Policy):
        raise TypeError(f"policy={policy!r} is none: it has no method act")
    return policy


# --------------------------------------------------------------------------------------------- the command `rollout`


def play(
    texts: Mapping[str, str],
    signals: StopSignals,
    env: Callable[[], Env],
    runner: Engine = _PARALLEL,
    policy: dict[str, Any] | str | None = None,
    n_episodes: int = 50,
    max_steps: int = 200,
    trajectories: Literal["states", "spaces", "both", "none"] = "both",
    files: Literal["each", "one"] = "each",
    event_logs: bool = True,
    render: bool = False,
    output_dir: str | None = None,
    run: str | None = None,
    checkpoint: str = "best",
    **others: Any,
) -> None:
    """Play episodes, and keep them.

    Args:
        texts: Files that say what was played.
        signals: Has taken the signals that stop a command.
        env: Builds one environment; a bare gymnasium environment is adapted.
        runner: Where episodes are played: `sequential`, `parallel`, or an engine.
        policy: `random`, `heuristic` (the one that the environment names), a group such as `policy/random_policy`, or a
            class path; that of the run if there is one, else `random`.
        n_episodes: How many.
        max_steps: Environment steps after which an episode is truncated; 0 means without limit.
        trajectories: What is recorded: what the simulation went through, what agents saw and did, both, or nothing.
        files: Whether each episode has a file of its own, or all are in one.
        event_logs: Whether to write all events.
        render: Whether each episode becomes a gif.
        output_dir: Where everything goes; `rollouts/<time>` of the run, or `outputs/rollout/<time>`, if None.
        run: Directory of the run whose environment, wrappers and policy are meant.
        checkpoint: Which one of the run: `best`, `last`, or a file.
        others: Of `rollout`.
    """
    began, kept = time.perf_counter(), [kind for kind in ("states", "spaces") if trajectories in (kind, "both")]
    wanted: Any = policy or "random"
    if isinstance(wanted, dict):
        wanted = Factory(wanted.pop("class_path", "random"), wanted.pop("init_args", {}) | wanted)
    if run is not None:
        path = checkpoint_path(run, ("best", "last") if checkpoint == "best" else (checkpoint,))
        others["learned"] = learned_in(read_checkpoint(path), path)
        wanted = load(path) if policy is None else wanted
        output_dir = output_dir or str(new_directory(Path(run, "rollouts"), True))
    folder, epoch, events = Path(run_directory(None, output_dir, "rollout")), EpochStatistics(), EventLogFiles()
    writers = {kind: TrajectoryFiles(f"trajectories/{kind}", "episodes" if files == "one" else None) for kind in kept}

    def receive(one: Trajectory) -> None:
        if one.summary.episode_index == 0:
            for name, text in texts.items():
                write_file(folder / name, text.encode())
        for kind, writer in writers.items():
            writer.write(getattr(one, kind))
        for rows in one.events:
            events.append(*rows)
        epoch.add(one.summary)
        one.states, one.spaces, one.events = None, None, []  # all together may be more than memory holds

    signals.deferred = True
    record = [*kept, *["events"] * event_logs, *["gifs"] * render]
    told: dict[str, Any] = {"record": record, "progress": True, "receive": receive, "stop": lambda: signals.received}
    try:
        played = rollout(env, wanted, n_episodes, max_steps=max_steps, engine=runner, **told, **others)
    finally:
        remove_empty((folder, *folder.parents[:2]))
    if signals.received:
        stopped = f"stopped by {signal.Signals(signals.received).name} after {len(played)} of {n_episodes} episodes"
        sys.stderr.write(f"maze-pl: {stopped}\n")
    if played:
        _report(folder, played, epoch, time.perf_counter() - began)


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        arguments: What `configuration.prepare` made of the command line.
        command: The command line as the user gave it, to be kept with what comes of it.
        signals: Has taken the signals that stop a command.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The options do not describe rollouts.
    """
    given, text = parsed(play, "rollout", arguments[1:], _NO_OPTIONS)
    play({RUN_CONFIG: text, "command.txt": f"{shlex.join(['maze-pl', *command])}\n"}, signals, **given)
    return 0


def _report(folder: Path, played: list[Trajectory], epoch: EpochStatistics, seconds: float) -> None:
    """Write and show what came of the episodes."""
    steps, statistics = epoch.total_step_count, epoch.compute()
    head = ("episode", "episode_id", "seed", "return", "env_steps", *played[0].summary.kpis)
    pairs = [((one.episode_id, one.seed), one.summary) for one in played]
    rows = [(s.episode_index, *who, s.reward, s.env_steps, *s.kpis.values()) for who, s in pairs]
    numbers = [(key, value.mean if isinstance(value, Histogram) else value) for key, value in statistics.items()]
    for name, first, lines in (("episodes", head, rows), ("statistics", ("statistic", "value"), numbers)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([first, *lines])
    title = f"rollouts | {len(played)} episodes | {steps:,} env steps | {seconds:.1f} s"
    sys.stdout.write(f"{render_table(title, 1, {'rollout': statistics})}\n\nfiles: {folder}\n")

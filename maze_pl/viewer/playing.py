"""Playing of episodes to be viewed, by a trained agent and by a policy for comparison."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import gymnasium

from maze_pl.core.checks import check_count
from maze_pl.runs.checkpoint import best_or_last, checkpoint_path
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.viewer.decisions import decisions_of
from maze_pl.viewer.drawing import check_renderer_arguments
from maze_pl.viewer.episode import Episode

Actions = Literal["most_likely", "sampled", "both"]
MOST_EPISODES: Final = 1000
"""Episodes of one view."""
_CHECKPOINTS: Final = ("best", "last")
_SDL_DRIVER: Final = "SDL_VIDEODRIVER"
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", _SDL_DRIVER)


@dataclass(frozen=True)
class PlayOptions:
    """Episodes to be played.

    Args:
        n_episodes: Number of seeds; None means one that is played, and at most ten that are read.
        seed: Determines the episodes.
        actions: Whether policies take their most likely actions, sample them, or play each episode
            twice, once in each way.
        temperature: Temperature of sampled actions.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        checkpoint: Checkpoint of the run: `best`, `last`, or a file.
        compare_with: Second policy for the same seeds: `heuristic`, `random`, `last`, `best`, a
            checkpoint or run directory, or a class path.
        pictures: Whether states are drawn.
        renderer_arguments: Values of the renderer's arguments.
        trust: Whether the run may name any class.
    """

    n_episodes: int | None = None
    seed: int = 0
    actions: Actions = "most_likely"
    temperature: float = 1.0
    max_steps: int = 10_000
    checkpoint: str = "best"
    compare_with: str | None = None
    pictures: bool = True
    renderer_arguments: dict[str, Any] | None = None
    trust: bool = False

    def __post_init__(self) -> None:
        if self.n_episodes is not None:
            check_count("n_episodes", self.n_episodes, 1, " of a view", MOST_EPISODES)


@dataclass(frozen=True)
class _Contender:
    """A policy that plays.

    Attributes:
        name: Its name in the view.
        policy: Anything that `rollout` takes as a policy.
        is_sampled: Whether it samples actions.
    """

    name: str
    policy: Any
    is_sampled: bool


def played_by_run(
    run_dir: str | Path, options: PlayOptions, progress: bool = False
) -> tuple[list[Episode], list[tuple[int, int]]]:
    """Play episodes with the agent of a run, and maybe with a second policy.

    Args:
        run_dir: The run directory, or a checkpoint.
        options: The episodes.
        progress: Whether to show progress.

    Returns:
        The episodes, and pairs of episodes with the same seed, by their positions.

    Raises:
        ConfigurationError: The run has no checkpoint, needs trust, or the second policy does not
            exist or fit.
    """
    path = best_or_last(run_dir) if options.checkpoint == "best" else _checkpoint(run_dir, options.checkpoint)
    agent = load(path, trust=options.trust)
    both = options.actions == "both"
    contenders = [_Contender("trained", agent, options.actions == "sampled")]
    if both:
        contenders.append(_Contender("trained, sampled", agent, True))
    if options.compare_with is not None:
        other = _second(run_dir, options)
        contenders.append(_Contender(options.compare_with, other, options.actions == "sampled"))
    stage = _Stage(path, options)
    for contender in contenders[1:]:
        stage.require_fit(contender)
    played = [stage.play(contender, progress) for contender in contenders]
    episodes: list[Episode] = []
    pairs: list[tuple[int, int]] = []
    for place in range(options.n_episodes or 1):
        first = len(episodes)
        episodes += [of_contender[place] for of_contender in played]
        pairs += [(first, first + other) for other in range(1, len(contenders))]
    return episodes, pairs


def _checkpoint(run_dir: str | Path, name: str) -> Path:
    """Return a checkpoint by its name in the run, or its path."""
    if name not in _CHECKPOINTS and Path(name).is_file():
        return Path(name)
    return checkpoint_path(run_dir, (name,))


def _second(run_dir: str | Path, options: PlayOptions) -> Any:
    """Return the policy to compare with, as `rollout` takes it."""
    name = str(options.compare_with)
    if name in _CHECKPOINTS:
        return load(checkpoint_path(run_dir, (name,)), trust=options.trust)
    if Path(name).exists():
        return load(checkpoint_path(name), trust=options.trust)
    return name


class _Stage:
    """The environment of a run, in which policies play the same seeds.

    Args:
        path: A checkpoint of the run.
        options: The episodes.
    """

    def __init__(self, path: Path, options: PlayOptions) -> None:
        self._options = options
        self._data = load_data(path, trust=options.trust)
        sample = self._data.make_env()
        self._renderer = sample.get_renderer() if options.pictures else None
        check_renderer_arguments(self._renderer, options.renderer_arguments or {})
        self._kpi_calculator = sample.get_kpi_calculator()
        can_render = options.pictures and self._renderer is None
        self._has_frames = can_render and sample.render_mode == "rgb_array"
        modes = sample.unwrapped.metadata.get("render_modes", ()) if can_render else ()
        sample.close()
        if can_render and not self._has_frames and "rgb_array" in modes:
            drawing = load_data(path, trust=options.trust, render_mode="rgb_array")
            if _draws(drawing.make_env):
                self._data = drawing
                self._has_frames = True

    def require_fit(self, contender: _Contender) -> None:
        """Raise ConfigurationError if a policy does not exist or cannot play here, before episodes are played."""
        self._rollout(contender, 1, record=(), max_steps=1)

    def play(self, contender: _Contender, progress: bool) -> list[Episode]:
        """Play the episodes with one policy."""
        options = self._options
        n_episodes = options.n_episodes or 1
        record = ["spaces", "events"]
        if self._renderer is not None or self._kpi_calculator is not None or self._has_frames:
            record.append("states")
        if self._has_frames:
            record.append("frames")
        trajectories = self._rollout(
            contender, n_episodes, record=record, max_steps=options.max_steps, progress=progress
        )
        parts = {
            "renderer": self._renderer,
            "renderer_arguments": options.renderer_arguments or {},
            "kpi_calculator": self._kpi_calculator,
        }
        episodes = []
        for number, trajectory in enumerate(trajectories):
            name = f"{contender.name}, episode {number}" if n_episodes > 1 else contender.name
            temperature = options.temperature if contender.is_sampled else 1.0
            episodes.append(episode_of(trajectory, name, contender.name, contender.policy, temperature, parts))
        return episodes

    def _rollout(self, contender: _Contender, n_episodes: int, **others: Any) -> list[Trajectory]:
        """Play episodes with one policy; `others` are further arguments of `rollout`."""
        with _drawing_without_display():
            return rollout(
                self._data.make_env,
                contender.policy,
                n_episodes,
                self._options.seed,
                deterministic=not contender.is_sampled,
                temperature=self._options.temperature,
                n_envs=1,
                wrapper_statistics=self._data.wrapper_statistics(),
                max_agents={key: step.n_slots for key, step in self._data.spec.steps.items() if step.n_agents < 0},
                **others,
            )


def _draws(make_env: Callable[[], Any]) -> bool:
    """True if an environment can be made and rendered; packages for it may be missing."""
    try:
        with _drawing_without_display():
            env = make_env()
            env.reset(seed=0)
            picture = env.render()
            env.close()
    except (gymnasium.error.Error, ImportError, OSError):
        return False
    return picture is not None


@contextmanager
def _drawing_without_display() -> Iterator[None]:
    """Keep SDL, with which gymnasium draws, from looking for a display where there is none, which causes warnings."""
    is_set = not any(os.environ.get(name) for name in _DISPLAYS)
    if is_set:
        os.environ[_SDL_DRIVER] = "dummy"
    try:
        yield
    finally:
        if is_set:
            os.environ.pop(_SDL_DRIVER, None)


def episode_of(
    trajectory: Trajectory,
    name: str,
    policy_name: str,
    agent: Any = None,
    temperature: float = 1.0,
    parts: Mapping[str, Any] | None = None,
) -> Episode:
    """Return the episode of a trajectory.

    Args:
        trajectory: An episode that was played.
        name: Its name in the view.
        policy_name: Name of its policy.
        agent: The algorithm or policy that played it, if it is known.
        temperature: Temperature with which actions were sampled.
        parts: Further attributes of `Episode`.
    """
    summary = trajectory.summary
    decisions = None
    if trajectory.spaces is not None and agent is not None and not isinstance(agent, str):
        decisions = decisions_of(agent, trajectory.spaces, temperature)
    return Episode(
        name,
        policy_name,
        trajectory.episode_id,
        trajectory.seed,
        trajectory.spaces,
        trajectory.states,
        trajectory.events,
        decisions=decisions,
        kpis=dict(summary.kpis),
        total_reward=float(summary.reward),
        **(parts or {}),
    )

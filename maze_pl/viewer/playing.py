"""Playing of episodes to be viewed, by a trained agent and by a policy for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from maze_pl.core.checks import check_count
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.runs.checkpoint_files import checkpoint_path, named_checkpoint
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.reward_wrappers import reward_wrappers_in
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.runs.run_checkpoints import BEST, LAST
from maze_pl.runs.short_names import shortened
from maze_pl.viewer.decisions import decisions_of
from maze_pl.viewer.drawing import check_renderer_arguments
from maze_pl.viewer.episode import Episode
from maze_pl.viewer.frames import MODE, drawing_without_display, with_frames
from maze_pl.viewer.normalizers import normalizers_in

Actions = Literal["most_likely", "sampled", "both"]
MOST_VIEWED_EPISODES: Final = 1000
"""Episodes of one view."""


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
            check_count("n_episodes", self.n_episodes, 1, " of a view", MOST_VIEWED_EPISODES)


@dataclass(frozen=True)
class _Contender:
    """A policy that plays.

    Attributes:
        name: Its name in the view.
        policy: Anything that `rollout` takes as a policy.
        is_sampled: Whether it samples actions.
        stage: Where it plays: the environment of the run, with the wrappers that it was trained with.
    """

    name: str
    policy: Any
    is_sampled: bool
    stage: "_Stage"


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
    path = named_checkpoint(run_dir, options.checkpoint)
    agent = load(path, trust=options.trust)
    both = options.actions == "both"
    stage = _Stage(path, options)
    contenders = [_Contender("trained", agent, options.actions == "sampled", stage)]
    if both:
        contenders.append(_Contender("trained, sampled", agent, True, stage))
    if options.compare_with is not None:
        other = _second(run_dir, options.compare_with)
        policy = options.compare_with if other is None else load(other, trust=options.trust)
        its_stage = stage if other is None else _Stage(other, options, stage)
        contenders.append(_Contender(options.compare_with, policy, options.actions == "sampled", its_stage))
    for contender in contenders[1:]:
        contender.stage.require_fit(contender)
    played = [contender.stage.play(contender, progress) for contender in contenders]
    episodes: list[Episode] = []
    pairs: list[tuple[int, int]] = []
    for place in range(options.n_episodes or 1):
        first = len(episodes)
        episodes += [of_contender[place] for of_contender in played]
        pairs += [(first, first + other) for other in range(1, len(contenders))]
    return episodes, pairs


def _second(run_dir: str | Path, name: str) -> Path | None:
    """Return the checkpoint of the policy to compare with; None if the name is that of another policy."""
    if name in (BEST, LAST):
        return checkpoint_path(run_dir, (name,))
    return checkpoint_path(name) if Path(name).exists() else None


class _Stage:
    """The environment in which policies play the same seeds, with the wrappers of a run.

    Args:
        path: A checkpoint of the run.
        options: The episodes.
        first: The stage whose environment is used; None means the environment of the run.
    """

    def __init__(self, path: Path, options: PlayOptions, first: "_Stage | None" = None) -> None:
        self._options = options
        self._source = source_of(path)
        self._renderer: Any = None
        self._kpi_calculator: Any = None
        self._has_frames = False
        data = load_data(path, trust=options.trust)
        self._reward_wrappers = reward_wrappers_in(data.rollout_options["wrappers"])
        self._normalizers = normalizers_in(data.rollout_options["wrappers"])
        self._arrangement = {
            **data.rollout_options,
            "wrappers": without_recorders(data.rollout_options["wrappers"]),
            "wrapper_statistics": data.wrapper_statistics(),
            "max_agents": {key: step.n_slots for key, step in data.spec.steps.items() if step.n_agents < 0},
        }
        if first is None:
            self._look_at(data)
            return
        self._arrangement["env"] = first._arrangement["env"]
        self._renderer = first._renderer
        self._kpi_calculator = first._kpi_calculator
        self._has_frames = first._has_frames

    def _look_at(self, data: EnvironmentDataModule) -> None:
        """Find out how the environment is drawn, and its KPIs."""
        options = self._options
        sample = data.make_env()
        self._renderer = sample.get_renderer() if options.pictures else None
        check_renderer_arguments(self._renderer, options.renderer_arguments or {})
        self._kpi_calculator = sample.get_kpi_calculator()
        can_render = options.pictures and self._renderer is None
        self._has_frames = can_render and sample.render_mode == MODE
        modes = sample.unwrapped.metadata.get("render_modes", ()) if can_render else ()
        sample.close()
        drawing = with_frames(self._arrangement["env"]) if MODE in modes and not self._has_frames else None
        if drawing is not None:
            self._arrangement["env"] = drawing
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
        played: dict[str, Any] = {"record": record, "max_steps": options.max_steps}
        label = shortened(contender.name, 40) if progress else False
        trajectories = self._rollout(contender, n_episodes, progress=label, **played)
        parts = {
            "renderer": self._renderer,
            "renderer_arguments": options.renderer_arguments or {},
            "kpi_calculator": self._kpi_calculator,
            "reward_wrappers": self._reward_wrappers,
            "normalizers": self._normalizers,
            "source": self._source,
        }
        episodes = []
        for number, trajectory in enumerate(trajectories):
            name = f"{contender.name}, episode {number}" if n_episodes > 1 else contender.name
            temperature = options.temperature if contender.is_sampled else 1.0
            episodes.append(episode_of(trajectory, name, contender.name, contender.policy, temperature, parts))
        return episodes

    def _rollout(self, contender: _Contender, n_episodes: int, **others: Any) -> list[Trajectory]:
        """Play episodes with one policy; `others` are further arguments of `rollout`."""
        with drawing_without_display():
            return rollout(
                policy=contender.policy,
                episodes=n_episodes,
                seed=self._options.seed,
                deterministic=not contender.is_sampled,
                temperature=self._options.temperature,
                n_envs=1,
                **self._arrangement,
                **others,
            )


def source_of(path: Path) -> str:
    """Return the name in views of a run, whose checkpoint may be given, or of a folder or file of episodes.

    Args:
        path: The path.

    Returns:
        Its last two parts, as the last one alone may be a time.
    """
    path = path.resolve()
    if path.suffix == ".ckpt" and path.parent.name == "checkpoints":
        path = path.parents[1]
    return "/".join([part for part in path.parts if part != path.anchor][-2:])


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

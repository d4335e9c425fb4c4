"""An episode to be viewed, from any source."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.viewer.arrays import Array
from maze_pl.viewer.normalizers import Normalizer

EventRows = tuple[str, dict[str, str], list[tuple[Any, ...]]]
"""Events of one kind: `<Topic>.<event>`, columns with their types, rows; as for `EventLogFiles.append`."""


@dataclass(slots=True)
class HeadDecisions:
    """Distributions of a policy over the actions of one head, in L acts.

    Attributes:
        family: Name of the distributions.
        most_likely: [L, *shape] most likely action.
        probabilities: [L, options of all choices] probabilities; None for continuous heads.
        density_x: [L, components, points] values at which the densities are known.
        density: [L, components, points] densities of the components; None if there are none.
    """

    family: str
    most_likely: Array
    probabilities: Array | None = None
    density_x: Array | None = None
    density: Array | None = None


@dataclass(slots=True)
class Decisions:
    """Distributions and values in the acts of an episode.

    Attributes:
        heads: Step key -> head -> distributions.
        value: [acts] values of the critic, NaN where it has none; None without a state critic.
    """

    heads: dict[StepKey, dict[str, HeadDecisions]] = field(default_factory=dict)
    value: Array | None = None


@dataclass(slots=True)
class Episode:
    """An episode with everything that is known about it.

    Attributes:
        name: Name in the view, such as "trained, seed 3".
        policy: Name of the policy that played it.
        episode_id: UUID of the episode.
        seed: Seed of the episode, if it is known.
        spaces: Observations and actions, if recorded.
        states: States of the simulation, if recorded.
        events: Events, if recorded.
        decisions: Distributions and values, if the policy is known.
        renderer: Draws the states, if there is one.
        renderer_arguments: Values of the renderer's arguments.
        kpi_calculator: Computes KPIs, if there is one.
        kpis: KPIs of the whole episode.
        total_reward: Return, if it is known without the rewards.
        reward_wrappers: Class names of the wrappers that changed the recorded rewards, the innermost
            first, if they are known.
        normalizers: Wrappers that normalised the recorded observations, the innermost first, if they
            are known.
        source: Name of the run or the folder that the episode comes from; empty without one.
    """

    name: str
    policy: str
    episode_id: str
    seed: int | None = None
    spaces: SpacesTrajectoryRecord | None = None
    states: StateTrajectoryRecord | None = None
    events: list[EventRows] = field(default_factory=list)
    decisions: Decisions | None = None
    renderer: Any = None
    renderer_arguments: dict[str, Any] = field(default_factory=dict)
    kpi_calculator: Any = None
    kpis: dict[str, float] = field(default_factory=dict)
    total_reward: float | None = None
    reward_wrappers: Sequence[str] = ()
    normalizers: Sequence[Normalizer] = ()
    source: str = ""

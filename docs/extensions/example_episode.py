"""An episode to scrub on the start page: played and written while the site is built."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

import maze_pl
from maze_pl.envs.cutting_2d import UniformDemand, masked_struct_env_factory

FILE = "_static/episode.html"
N_STEPS = 40
LOGGER = logging.getLogger(__name__)


def make_environment() -> Any:
    """Make the instance of cutting-2D on which simple rules are far from the optimum."""
    return masked_struct_env_factory(
        max_pieces_in_inventory=100,
        raw_piece_size=(10, 8),
        static_demand=UniformDemand((6, 5)),
    )


def write_episode(app: Sphinx, error: Exception | None) -> None:
    """Write the view of one episode of a random and of a greedy policy, on the same seed."""
    if error is not None or app.builder.format != "html":
        return
    played = []
    for policy in ("random", "heuristic"):
        record = ("spaces", "states", "events")
        played += maze_pl.rollout(make_environment, policy, seed=3, record=record, max_steps=N_STEPS)
    view = maze_pl.view(played, env=make_environment, title="Cutting-2D: random and greedy policy on the same orders")
    for episode, policy in zip(view.document["episodes"], ("random", "greedy"), strict=True):
        episode["name"] = episode["policy"] = policy
    view.document["pairs"] = [[0, 1]]
    path = Path(app.outdir) / FILE
    path.parent.mkdir(exist_ok=True)
    view.save(path)
    LOGGER.info("example episode: %s", path)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the events of a build."""
    app.connect("build-finished", write_episode)
    return {"parallel_read_safe": True}

"""Episodes to scrub in pages: played and written while the site is built.

A page names an episode in a comment, `<!-- example episode: job_shop -->`, whose place it takes. The option
`-D example_episode_steps=4` of a build limits all of them to four env steps.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.util import logging

import maze_pl
from maze_pl.config.factories import Factory

CONFIGS = Path(__file__).parents[2] / "configs"
FOLDER = "_static/episodes"
LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """Two policies that play the same episode.

    Attributes:
        title: Title of the view.
        env: Configuration of the environment, of which some options differ from the shipped ones.
        policies: Names that are shown -> names of policies for `rollout`, or of their files.
        n_steps: Most env steps of an episode; 0 for all.
        seed: Seed of the episode.
        max_agents: Most agents at a time, where they come and go.
    """

    title: str
    env: dict[str, Any]
    policies: dict[str, str]
    n_steps: int = 0
    seed: int = 3
    max_agents: dict[Any, int] | None = None


def shipped(name: str, **options: Any) -> dict[str, Any]:
    """Shipped configuration of an environment or policy, with other options."""
    node: dict[str, Any] = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    return {**node, "init_args": {**node.get("init_args", {}), **options}}


def examples() -> dict[str, Example]:
    """Return the examples by their names."""
    mixed = {"class_path": "maze_pl.envs.cutting_2d.UniformDemand", "init_args": {"max_size": [6, 5]}}
    cutting = shipped("env/tutorial_cutting_2d_struct_masked", max_pieces_in_inventory=100, raw_piece_size=[10, 8])
    cutting["init_args"]["static_demand"] = mixed
    return {
        "cutting_2d": Example(
            "Cutting-2D: random and greedy policy on the same orders",
            cutting,
            {"random": "random", "greedy": "heuristic"},
            n_steps=24,
        ),
        "job_shop": Example(
            "Job shop: shortest processing time, and most work remaining",
            shipped("env/job_shop", instances=["ft06"]),
            {"SPT": "policy/job_shop_spt", "MWKR": "policy/job_shop_mwkr"},
        ),
        "vehicle_routing": Example(
            "Vehicle routing: nearest neighbour and savings",
            shipped("env/vehicle_routing", instances=["random(20)"]),
            {
                "nearest neighbour": "policy/vehicle_routing_nearest_neighbour",
                "savings": "policy/vehicle_routing_savings",
            },
        ),
        "multi_echelon_stock": Example(
            "Stock: fixed base stock levels, and levels that follow demand",
            shipped("env/multi_echelon_stock"),
            {"fixed levels": "policy/stock_base_stock", "levels that follow": "policy/stock_following_base_stock"},
            n_steps=36,
        ),
        "ride_hailing": Example(
            "Ride hailing: nearest requests, without and with drives to where demand is expected",
            shipped("env/ride_hailing"),
            {"nearest": "policy/ride_hailing_nearest", "repositioning": "policy/ride_hailing_nearest_reposition"},
            n_steps=20,
            max_agents={"vehicle": 16},
        ),
    }


def policy_of(name: str) -> Any:
    """Policy for `rollout`, from a file if there is one of that name."""
    if not name.startswith("policy/"):
        return name
    node = shipped(name)
    return Factory(node["class_path"], node["init_args"])


def write_example(example: Example, path: Path, most_steps: int = 0) -> None:
    """Write the view of both episodes, of at most so many env steps; 0 for as many as the example has."""
    make = Factory(example.env["class_path"], example.env["init_args"])
    record = ("spaces", "states", "events")
    played = []
    for policy in example.policies.values():
        played += maze_pl.rollout(
            make,
            policy_of(policy),
            seed=example.seed,
            record=record,
            max_steps=most_steps or example.n_steps,
            max_agents=example.max_agents,
        )
    view = maze_pl.view(played, env=make, title=example.title)
    for episode, name in zip(view.document["episodes"], example.policies, strict=True):
        episode["name"] = episode["policy"] = name
    view.document["pairs"] = [[0, 1]]
    view.save(path)


def write_examples(app: Sphinx) -> None:
    """Write all views, before autodoc replaces the defaults of the functions that it documents."""
    if app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, example in examples().items():
        write_example(example, folder / f"{name}.html", app.config.example_episode_steps)
    LOGGER.info("example episodes: %s", folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the events of a build."""
    app.add_config_value("example_episode_steps", 0, "html")
    app.connect("builder-inited", write_examples)
    return {"parallel_read_safe": True}

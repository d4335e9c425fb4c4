"""Wrappers that changed the rewards of recorded episodes, from the folder of their rollout."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.core.class_path import import_object
from maze_pl.runs.reward_wrappers import reward_wrappers_in
from maze_pl.runs.rollout_table import EPISODES_FILE

_LEVELS: Final = 3
"""Folders above a file of records in which the folder of its rollout is looked for."""


def rollout_folder(path: Path) -> Path | None:
    """Return the folder of the rollout that a file or folder of records belongs to; None without one."""
    for folder in [path, *path.resolve().parents[:_LEVELS]]:
        if (folder / RUN_CONFIG).is_file() and (folder / EPISODES_FILE).is_file():
            return folder
    return None


def recorded_reward_wrappers(path: Path, trust: bool = False) -> list[str] | None:
    """Return the class names of the wrappers that changed recorded rewards; None if the rollout is unknown.

    Args:
        path: File or folder of records.
        trust: Whether classes of other packages may be imported; otherwise they are left out.
    """
    folder = rollout_folder(path)
    if folder is None:
        return None
    try:
        config = read(folder / RUN_CONFIG)
    except ConfigurationError:
        return None
    return reward_wrappers_of(config, trust)


def reward_wrappers_of(config: Any, trust: bool = False) -> list[str]:
    """Return the class names of the wrappers in the configuration of a rollout that change rewards.

    Args:
        config: The configuration, as in the file of the rollout.
        trust: Whether classes of other packages may be imported; otherwise they are left out.

    Example:
        >>> wrappers = [{"class_path": "maze_pl.envs.wrappers.RewardClippingWrapper"}, {"class_path": "other.Wrapper"}]
        >>> reward_wrappers_of({"wrappers": wrappers})
        ['RewardClippingWrapper']
    """
    wrappers = config.get("wrappers") if isinstance(config, Mapping) else None
    if not isinstance(wrappers, list):
        return []
    found: list[Any] = []
    for wrapper in wrappers:
        name = wrapper.get("class_path") if isinstance(wrapper, Mapping) else wrapper
        if isinstance(name, str) and (trust or name.startswith("maze_pl.")):
            with suppress(ImportError):
                found.append(import_object(name))
    return reward_wrappers_in(found)

"""Wrappers after which the rewards of recorded episodes count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from maze_pl.datasets.episode_loader import MINARI_PREFIX, sources_of
from maze_pl.runs.rollout_wrappers import recorded_reward_wrappers

AGENT: Final = "the agent's run"


@dataclass(frozen=True)
class RewardUnit:
    """Unit of recorded rewards.

    Attributes:
        wrappers: Class names of the wrappers that changed them, the innermost first.
        source: The run from whose configuration they are known; "" for that of the recordings.
        warnings: Reasons to doubt that rewards have the same unit.
    """

    wrappers: list[str]
    source: str = ""
    warnings: list[str] = field(default_factory=list)


def unit_of_rewards(entries: Sequence[Any], runs: Mapping[str, list[str]], trust: bool) -> RewardUnit:
    """Return the unit of the rewards of recorded episodes.

    Args:
        entries: Files, folders and records.
        runs: Name of a run -> class names of its wrappers that change rewards: that of the policy that
            recorded the episodes, if it is one, then `AGENT`. They stand for recordings without the
            configuration of their rollout.
        trust: Whether configurations may name any class.
    """
    found = [recorded_reward_wrappers(folder, trust) for folder in _folders(entries)]
    known = [wrappers for wrappers in found if wrappers is not None]
    if not known:
        for source, wrappers in runs.items():
            return RewardUnit(wrappers, source, _differences(wrappers, runs))
        return RewardUnit([])
    others = [wrappers for wrappers in known if wrappers != known[0]]
    if others:
        both = f"some are {_described(known[0])}, others {_described(others[0])}"
        return RewardUnit(known[0], "", [f"the recorded rewards have different units, which are mixed: {both}"])
    return RewardUnit(known[0], "", _differences(known[0], runs))


def _folders(entries: Sequence[Any]) -> list[Path]:
    """Return the folders of all files of records, each once."""
    paths = [entry for entry in entries if isinstance(entry, str | Path)]
    files: list[Path] = []
    for path in paths:
        if not str(path).startswith(MINARI_PREFIX):
            files += sources_of(path)
    return list(dict.fromkeys(file.parent for file in files))


def _differences(wrappers: list[str], runs: Mapping[str, list[str]]) -> list[str]:
    """Return a warning if the agent was trained with rewards in another unit than the recorded ones."""
    trained = runs.get(AGENT, wrappers)
    if trained == wrappers:
        return []
    both = f"the recorded rewards are {_described(wrappers)}, in training they were {_described(trained)}"
    return [f"{both}: the estimates have the unit of the recorded ones"]


def _described(wrappers: list[str]) -> str:
    """Return a unit of rewards in words."""
    return f"after {' and '.join(wrappers)}" if wrappers else "those of the environment"

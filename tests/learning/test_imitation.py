"""The documented workflow: the pilot of LunarLander is recorded, cloned, and its clone becomes better than it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from maze_pl.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "imitation.md"

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


def documented_commands() -> list[list[str]]:
    """The four commands of the page, without `maze-pl`."""
    (block,) = re.findall(
        r"^```sh\n(maze-pl rollout.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [line.split()[1:] for line in block.splitlines()]


def mean_return(folder: Path) -> tuple[float, int]:
    """Of the episodes of a rollout, and their number."""
    with next(folder.rglob("episodes.csv")).open(encoding="utf-8") as file:
        returns = [float(row["return"]) for row in csv.DictReader(file)]
    return sum(returns) / len(returns), len(returns)


@pytest.mark.slow
@pytest.mark.long
def test_the_documented_workflow_clones_the_pilot_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record, clone, play, fine_tune = documented_commands()
    assert main(record) == 0
    pilot, n_episodes = mean_return(Path("demonstrations"))
    assert n_episodes == 100
    assert pilot >= 200

    assert main([*clone, "--trainer.max_epochs", "30"]) == 0  # half of what the page takes
    assert main(play) == 0
    cloned, n_episodes = mean_return(Path("clone", "rollouts"))
    assert n_episodes == 100
    assert cloned >= 0.9 * pilot

    assert main([*fine_tune, "--trainer.max_epochs", "4"]) == 0  # of 10, which make it better still
    with Path("fine_tuned", "metrics.csv").open(encoding="utf-8") as file:
        evaluated = [float(row["eval_BaseEnvEvents/reward/mean"]) for row in csv.DictReader(file)]
    assert len(evaluated) == 4
    assert abs(evaluated[0] - cloned) < 25  # other episodes, by the same policy: of 100 the deviation is about 7
    assert max(evaluated) > evaluated[0]
    assert main([*play[:1], "fine_tuned", *play[2:]]) == 0
    assert mean_return(Path("fine_tuned", "rollouts"))[0] > cloned

"""PPO learns a game from its frames, through small, gray and stacked ones, and learns nothing where they are black."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import maze_pl
from maze_pl.__main__ import main
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import ObservationWrapper

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

CONFIG = str(Path(__file__).parents[2] / "examples/catch/configs/ppo_catch.yaml")
N_EPISODES = 100
OPTIMUM = 5.0


class Blindfold(ObservationWrapper):
    """Shows black frames."""

    def observation(self, observation: Observation) -> Observation:
        return {name: np.zeros_like(value) for name, value in observation.items()}


def mean_return(checkpoint: Path) -> float:
    """Of episodes that neither training nor the choice of the checkpoint has seen."""
    agent, env = maze_pl.load(checkpoint), maze_pl.load_env(checkpoint, trust=True)
    for episode in range(N_EPISODES):
        observation, _ = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(agent.act(observation))
            ended = terminated or truncated
    return float(np.mean([summary.reward for summary in env.drain_episode_summaries()]))


@pytest.mark.slow
@pytest.mark.long
def test_the_shipped_configuration_reaches_95_percent_of_the_optimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", CONFIG, "--run_dir", "run"]) == 0
    assert mean_return(Path("run", "checkpoints", "best.ckpt")) >= 0.95 * OPTIMUM


@pytest.mark.slow
@pytest.mark.long
def test_without_the_image_it_learns_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blindfold = f'--data.wrappers+={{"class_path": "{Blindfold.__module__}.{Blindfold.__qualname__}"}}'
    arguments = [blindfold, "--trainer.max_epochs", "1", "--run_dir", "run"]
    assert main(["fit", "--config", CONFIG, *arguments]) == 0
    assert mean_return(Path("run", "checkpoints", "best.ckpt")) < 0.5  # -5/7, but for luck

"""Values of training and of evaluations that are of the latest epoch or evaluation."""

from __future__ import annotations

from typing import Any

from maze_pl.modules.published_values import PublishedValues
from maze_pl.modules.run_statistics import SourceStatistics

EPISODES = "BaseEnvEvents/reward/episode_count"
RETURN = "train/return"


def publish(published: PublishedValues, metrics: dict[str, Any], epoch: int, source: str, **means: float) -> None:
    published.begin([source], epoch)
    table = SourceStatistics({EPISODES: float(len(means))}, means)
    metrics.update(table.short_values(source))
    published.add(source, table, metrics)


def test_earlier_values_stay_in_the_metrics_but_are_not_of_the_latest() -> None:
    published, metrics = PublishedValues(), {"learning": 2.0}
    publish(published, metrics, 0, "train", loss=1.0)
    publish(published, metrics, 0, "eval", loss=3.0)
    publish(published, metrics, 1, "eval")
    assert metrics["eval/loss"] == 3.0
    assert set(published.latest(metrics)) == {"learning", "train/loss", f"train_{EPISODES}", f"eval_{EPISODES}"}
    assert set(published.latest(metrics, epoch=1)) == {"learning", f"eval_{EPISODES}"}
    publish(published, metrics, 1, "eval", loss=4.0)
    assert published.latest(metrics)["eval/loss"] == 4.0


def test_values_of_training_are_awaited_until_their_epoch_and_an_episode_in_it_have_ended() -> None:
    published = PublishedValues()
    metrics: dict[str, Any] = {}
    assert published.awaits(RETURN, metrics, epoch=0) and published.awaits(RETURN, metrics)
    assert not published.awaits("eval/return", metrics, epoch=0)
    publish(published, metrics, 0, "train", **{"return": 1.0})
    assert not published.awaits(RETURN, metrics, epoch=0)
    assert not published.awaits("train/retrun", metrics, epoch=0)
    assert published.awaits(RETURN, metrics, epoch=1) and not published.awaits(RETURN, metrics)
    publish(published, metrics, 1, "train")
    assert published.awaits(RETURN, metrics, epoch=1) and published.awaits(RETURN, metrics)

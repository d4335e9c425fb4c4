"""Maps."""

from __future__ import annotations

import pytest

from maze_pl.envs.ride_hailing import RideHailingMazeAction, RideHailingRenderer, ride_hailing_factory
from tests.envs.ride_hailing.small import SHORT, begun

colors = pytest.importorskip("matplotlib.colors")


@pytest.mark.parametrize(
    ("option", "words"),
    [(0, "vehicle 0 accepts a trip of 6.0 km"), (8, "vehicle 0 drives east"), (6, "vehicle 0 stays")],
)
def test_the_title_tells_the_time_and_the_decision(option: int, words: str) -> None:
    state = begun([[30, 4, 1, 4, 7]], [[1, 1], [7, 7]]).state()
    (axes,) = RideHailingRenderer().render(state, RideHailingMazeAction(0, option)).axes
    assert axes.get_title(loc="left") == f"07:00   2 vehicles on duty   1 passengers waiting   {words}"


def test_vehicles_and_passengers_are_drawn_at_their_places() -> None:
    state = begun([[30, 4, 1, 4, 7], [1, 2, 3, 4, 7]], [[1, 1], [7, 7]]).state()
    (axes,) = RideHailingRenderer().render(state).axes
    places = {artist.get_label(): artist.get_offsets().tolist() for artist in axes.collections}
    assert places["waiting"] == [[4, 1]]
    assert places["waiting, will leave soon"] == [[2, 3]]
    assert places["vehicles that decide"] == [[1, 1], [7, 7]]
    assert places["destinations of trips"] == []


def test_the_forecast_of_each_zone_is_legible_on_every_colour() -> None:
    state = begun([[30, 4, 1, 4, 7]], [[1, 1], [7, 7]]).state()
    (axes,) = RideHailingRenderer().render(state).axes
    expected = [f"{number:.1f}" for number in state.city.forecast[0]]
    texts = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in texts] == expected
    lines = [line.get_zorder() for line in axes.get_lines()]
    for text in texts:
        assert text.get_fontsize() >= 9 and max(colors.to_rgb(text.get_color())) < 0.25
        assert text.get_path_effects()  # a white outline
        assert text.get_zorder() > max(lines)


def test_a_step_is_rendered_by_the_environment() -> None:
    env = ride_hailing_factory(**SHORT)
    env.reset(seed=0)
    env.step({"option": 6})
    assert env.render().shape[2] == 3

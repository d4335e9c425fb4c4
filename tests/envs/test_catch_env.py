"""The game of falling balls: its frames, its rules, and what is best in it."""

from __future__ import annotations

import doctest
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium_env

from examples.catch import catch_env
from examples.catch.catch_env import CELLS, CatchEnv
from maze_pl.envs import GymMazeEnv, check_env

N_STEPS = CELLS - 1  # that a ball takes
PADDLES = range(1, CELLS - 1)
BALLS = list(itertools.product(range(CELLS), range(-2, 3)))  # first column and drift


def begin(env: CatchEnv, column: int, drift: int, paddle: int) -> CatchEnv:
    """Put a ball and the paddle where they are wanted."""
    env.reset(seed=0)
    env._row, env._column, env._drift, env._paddle = 0, column, drift, paddle
    return env


def landings(env: CatchEnv) -> dict[tuple[int, int], int]:
    """Where each ball lands."""
    found = {}
    for column, drift in BALLS:
        begin(env, column, drift, 1)
        for _ in range(N_STEPS - 1):
            env.step(1)
        env._balls = 1  # so that no ball follows
        env.step(1)
        found[column, drift] = env._column
    return found


@pytest.fixture
def env() -> CatchEnv:
    return CatchEnv(size=CELLS)


def test_both_checkers_accept_it() -> None:
    check_gymnasium_env(CatchEnv(render_mode="rgb_array"), skip_render_check=True)
    report = check_env(lambda: CatchEnv(size=CELLS), n_steps=200)
    assert report.ok, report


def test_the_same_seed_gives_the_same_frames_which_nobody_else_writes_to() -> None:
    def play(seed: int) -> Iterator[Any]:
        env = CatchEnv()
        yield env.reset(seed=seed)[0]
        for action in np.random.default_rng(0).integers(3, size=5 * N_STEPS):
            yield from env.step(action)[:4]
        yield env.reset()[0]  # the second episode follows from the seed, too

    first, copies = [], []
    for item in play(1):
        first.append(item)
        copies.append(np.copy(item))
    for again, copied, kept in zip(play(1), copies, first, strict=True):
        np.testing.assert_array_equal(again, copied)
        np.testing.assert_array_equal(kept, copied)
    assert any(not np.array_equal(ours, others) for ours, others in zip(first, play(2), strict=True))


def test_a_frame_shows_ball_and_paddle_in_pixels(env: CatchEnv) -> None:
    begin(env, column=0, drift=2, paddle=3)
    frame = env.step(0)[0]
    ball, paddle, nothing = frame[1, 2], frame[CELLS - 1, 2], frame[0, 0]
    expected = np.tile(nothing, (CELLS, CELLS, 1))
    expected[1, 2], expected[CELLS - 1, 1:4] = ball, paddle
    np.testing.assert_array_equal(frame, expected)
    assert len({tuple(colour) for colour in (ball, paddle, nothing)}) == 3
    assert len({int(colour @ [299, 587, 114]) // 1000 for colour in (ball.astype(int), paddle.astype(int))}) == 2
    larger = CatchEnv(size=100)
    frame = begin(larger, column=6, drift=0, paddle=5).step(1)[0]
    assert frame.shape == (100, 100, 3)
    np.testing.assert_array_equal((frame == ball).all(-1).nonzero()[0][[0, -1]], [100 // 7, 200 // 7 - 1])
    np.testing.assert_array_equal((frame == ball).all(-1).nonzero()[1][[0, -1]], [600 // 7, 99])


def test_balls_bounce_off_the_walls_and_the_paddle_stays_inside(env: CatchEnv) -> None:
    begin(env, column=5, drift=2, paddle=2)
    columns = []
    for _ in range(N_STEPS - 1):
        env.step(0)
        columns.append(env._column)
    assert columns == [5, 3, 1, 1, 3]
    assert env._paddle == 1
    begin(env, column=0, drift=-1, paddle=4)
    for _ in range(3):
        env.step(2)
    assert (env._column, env._paddle) == (3, CELLS - 2)


def test_balls_that_land_beside_the_paddle_are_missed(env: CatchEnv) -> None:
    for landing, reward in ((2, -1.0), (3, 1.0), (4, 1.0), (5, 1.0), (6, -1.0)):
        begin(env, landing, 0, 4)
        rewards = [env.step(1)[1] for _ in range(N_STEPS)]
        assert rewards == [0.0] * (N_STEPS - 1) + [reward]


def test_an_episode_ends_with_the_last_ball() -> None:
    env = CatchEnv(n_balls=3)
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(3 * N_STEPS)]
    assert ends == [(False, False)] * (3 * N_STEPS - 1) + [(True, False)]


def test_every_ball_can_be_caught_even_by_who_waits_for_a_second_frame(env: CatchEnv) -> None:
    """So the optimum is `n_balls`: all ways of moving the paddle are tried for all balls."""
    reached = {paddle: {paddle} for paddle in PADDLES}  # where the paddle can be, after having stayed once
    for paddle in PADDLES:
        for _ in range(N_STEPS - 1):
            reached[paddle] |= {
                begin(env, 0, 0, place).step(action)[0][-1, :, 1].argmax() + 1
                for place in set(reached[paddle])
                for action in range(3)
            }
    for landing, paddle in itertools.product(landings(env).values(), PADDLES):
        assert any(abs(landing - place) <= 1 for place in reached[paddle])
    for (column, drift), landing in landings(env).items():  # and played, by going where the ball lands
        for paddle in PADDLES:
            begin(env, column, drift, paddle)
            total = sum(env.step(int(t > 0) * int(np.sign(landing - env._paddle)) + 1)[1] for t in range(N_STEPS))
            assert total == 1.0


def test_a_single_frame_does_not_tell_what_to_do(env: CatchEnv) -> None:
    """The same frame calls for a move to the left or to the right, depending on how the ball drifts."""

    def catching(drift: int) -> list[int]:
        """Which moves catch a ball that lands with the next step."""
        rewards = []
        for action in range(3):
            begin(env, 3, drift, 3)
            env._row = N_STEPS - 1
            shown.append(env._frame())
            rewards.append(env.step(action)[1])
        return [action for action, reward in enumerate(rewards) if reward == 1.0]

    shown: list[Any] = []
    assert (catching(-2), catching(2)) == ([0], [2])
    assert all(np.array_equal(frame, shown[0]) for frame in shown)


def test_who_does_not_look_catches_three_of_seven_whatever_the_moves(env: CatchEnv) -> None:
    found = list(landings(env).values())
    assert [found.count(column) for column in range(CELLS)] == [len(BALLS) // CELLS] * CELLS
    rewards = []
    for column, drift in BALLS:
        begin(env, column, drift, 1)
        rewards += [env.step(2 * (t < 3))[1] for t in range(N_STEPS)]
    assert np.sum(rewards) == pytest.approx(-len(BALLS) / 7)


def test_rendering_gives_the_frame_if_asked_for() -> None:
    env = CatchEnv(render_mode="rgb_array")
    frame, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), frame)
    assert CatchEnv().render() is None


@pytest.mark.parametrize("options", [{"size": 6}, {"n_balls": 0}, {"render_mode": "human"}])
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"CatchEnv: .*{next(iter(options))}="):
        CatchEnv(**options)


def test_it_is_adapted_like_any_environment() -> None:
    observation, _ = GymMazeEnv(CatchEnv()).reset(seed=0)
    assert (observation["observation"].dtype, observation["observation"].shape) == (np.uint8, (84, 84, 3))


def test_its_example_runs() -> None:
    assert doctest.testmod(catch_env).failed == 0

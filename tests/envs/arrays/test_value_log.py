"""The log of values equals a list of values for each environment."""

import numpy as np
import pytest

from maze_pl.envs.arrays.value_log import ValueLog


@pytest.mark.parametrize("seed", range(6))
def test_equals_lists_of_values(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n_envs = 3
    log = ValueLog(n_envs, {"value": ((), np.dtype(np.float64))})
    running: list[list[float]] = [[] for _ in range(n_envs)]
    ended: list[tuple[int, list[float]]] = []
    for number in range(700):
        value = float(number)
        kind = generator.integers(4)
        if kind == 0:
            log.append(slice(None), {"value": np.full(n_envs, value)})
            which = np.arange(n_envs)
        else:
            which = np.sort(generator.integers(n_envs, size=generator.integers(1, 5)))
            log.append(which, {"value": value + np.arange(len(which))})
        for place, n in enumerate(which.tolist()):
            running[n].append(value + (0 if kind == 0 else place))
        if generator.random() < 0.05:
            envs = np.flatnonzero(generator.random(n_envs) < 0.5)
            log.end_episodes(envs)
            for n in envs.tolist():
                ended.append((n, running[n]))
                running[n] = []
        if generator.random() < 0.05:
            episodes = log.ended()
            expected = [value for _, values in ended for value in values]
            assert episodes.envs.tolist() == [n for n, _ in ended]
            assert log.values_of("value", episodes).tolist() == expected
            log.drop_ended()
            ended = []
            if generator.random() < 0.3:
                log = ValueLog.from_state(n_envs, log.state_dict())  # type: ignore[arg-type]


def test_space_is_reused_after_episodes_have_ended() -> None:
    log = ValueLog(2, {"value": ((3,), np.dtype(np.float32))})
    for _ in range(50):
        for _ in range(40):
            log.append(slice(None), {"value": np.ones((2, 3), np.float32)})
        log.end_episodes(np.arange(2))
        assert log.values_of("value", log.ended()).shape == (80, 3)
        log.drop_ended()
    assert len(log.columns["value"]) <= 256

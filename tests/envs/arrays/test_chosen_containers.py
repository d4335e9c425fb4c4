"""Which of the containers that existed before `allocate` an attribute has now is saved and copied."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest

from maze_pl.envs import ArrayStep, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.saved_containers import SAVED_CONTAINERS
from maze_pl.envs.contract import EnvContractError
from tests.envs.arrays.adding import rewards_of, vector_of


class Place(NamedTuple):
    """A place in a table."""

    row: int
    column: int


NORTH, SOUTH = (0, 1), (0, -1)
PLACES = [Place(1, 2), Place(3, 4)]
TABLES = {"a": [5, 6], "b": [7, 8]}


class Choosing(CartPoleArrayEnv):
    """Each step puts the other one of two containers in place of the present one.

    Args:
        waves: Two containers.
    """

    def __init__(self, waves: Any) -> None:
        super().__init__()
        self.waves = waves

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.n_changes = np.zeros(n_envs)
        self.chosen = self.choices()[0]

    def choices(self) -> Any:
        return self.waves

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.n_changes += 1
        self.chosen = self.choices()[int(self.n_changes[0]) % 2]
        return super().step(actions, which)


class Constants(Choosing):
    """Chooses constants of the module that `waves` names."""

    def choices(self) -> Any:
        return {"tuples": (NORTH, SOUTH), "places": PLACES, "lists": [*TABLES.values()]}[self.waves]


class Begun(Choosing):
    """Its constructor chooses the first one."""

    def __init__(self, waves: Any) -> None:
        super().__init__(waves)
        self.chosen = waves[0]

    def allocate(self, n_envs: int) -> None:
        begin = self.chosen
        super().allocate(n_envs)
        self.chosen = begin


def _made(kind: Any, waves: Any) -> Any:
    return kind(copy.deepcopy(waves))


KINDS: dict[str, Any] = {
    "tuples": (Choosing, ((1, 2), (3, 4))),
    "lists": (Choosing, [[1, 2], [3, 4]]),
    "lists in tuples": (Choosing, (([1], 2), ([3], 4))),
    "places": (Choosing, tuple(PLACES)),
    "one of the constructor": (Begun, ((1, 2), (3, 4))),
    "a list of the constructor": (Begun, [[1, 2], [3, 4]]),
    "constant tuples": (Constants, "tuples"),
    "constant places": (Constants, "places"),
    "constant lists": (Constants, "lists"),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n_steps", [1, 2])
@pytest.mark.parametrize("n_of_resumed", [0, 1])
def test_the_choice_is_saved(name: str, n_steps: int, n_of_resumed: int, caplog: pytest.LogCaptureFixture) -> None:
    whole, resumed = (vector_of(_made(*KINDS[name]), n) for n in (n_steps, n_of_resumed))
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    choices = resumed.env.choices()  # type: ignore[attr-defined]
    chosen = resumed.env.chosen  # type: ignore[attr-defined]
    assert chosen == choices[n_steps % 2] == whole.env.chosen  # type: ignore[attr-defined]
    assert chosen is choices[n_steps % 2] or name in ("tuples", "one of the constructor", "constant tuples")
    for vector in (whole, resumed):
        vector.step()
        vector.state_dict()
    assert not caplog.records


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n_of_target", [0, 1])
def test_the_choice_is_copied(name: str, n_of_target: int) -> None:
    one, other = (ArrayMazeEnv(_made(*KINDS[name])) for _ in range(2))
    for env, n_acts in ((one, 0), (other, n_of_target)):
        env.reset(seed=1)
        rewards_of(env, n_acts)
    for _ in range(3):
        other.clone_from(one)
        assert vars(other.array_env)["chosen"] == vars(one.array_env)["chosen"]
        rewards_of(one, 1)


def test_a_resumed_run_chooses_from_its_own_containers(caplog: pytest.LogCaptureFixture) -> None:
    state = copy.deepcopy(vector_of(Choosing([[1], [2]]), 1).state_dict())
    saved = {"waves": ["given", "waves"], "chosen": ["given", "waves.1"]}
    assert state["array_env"][SAVED_CONTAINERS] == saved
    other = [[5], [6]]
    resumed = vector_of(Choosing(other), 0)
    resumed.load_state_dict(state)
    assert vars(resumed.env)["chosen"] is other[1]
    assert not caplog.records
    resumed = vector_of(Choosing([[7]]), 0)
    resumed.load_state_dict(state)
    (record,) = caplog.records
    came = "the saved state of Choosing has 'waves.1' as 'chosen', but there is no such container now"
    assert record.getMessage() == f"{came}: 'chosen' stays as it is"
    assert vars(resumed.env)["chosen"] == [7]


def test_attributes_of_one_container_keep_their_options() -> None:
    class Two(Choosing):
        """Has its argument as two attributes."""

        def __init__(self, waves: Any, limits: Any) -> None:
            super().__init__(waves)
            self.limits = limits

    shared, limits = [[1], [2]], [[3], [4]]
    resumed = vector_of(Two([[1], [2]], limits), 0)
    resumed.load_state_dict(copy.deepcopy(vector_of(Two(shared, shared), 1).state_dict()))
    assert vars(resumed.env)["limits"] is limits == [[3], [4]]


class Counting(Constants):
    """Counts in the list that it has chosen."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.chosen[0] += 1
        return result


def test_chosen_containers_that_change_are_warned_of_and_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TABLES", copy.deepcopy(TABLES))
    vector_of(Counting("lists"), 1).state_dict()
    (record,) = caplog.records
    assert "checkpoints do not hold, as 'chosen' existed before allocate" in record.getMessage()
    env, target = ArrayMazeEnv(Counting("lists")), ArrayMazeEnv(Counting("lists"))
    for one in (env, target):
        one.reset(seed=1)
    rewards_of(env, 1)
    with pytest.raises(EnvContractError, match=r"'chosen', which copies do not hold, as 'chosen' existed before alloc"):
        target.clone_from(env)

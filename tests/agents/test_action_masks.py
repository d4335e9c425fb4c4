"""What comes to a policy as a mask is one, whichever way the policy takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st
from torch import nn

from maze_pl.agents import TorchPolicy
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spaces import MaskError, allowed_entries
from maze_pl.core.spec import Spec, StepSpec

SIZE = 4
STEP = StepSpec(
    spaces.Dict({"m": spaces.Box(-9, 9, (SIZE,), np.float32), "x": spaces.Box(-1, 1, (3,), np.float32)}),
    spaces.Dict({"a": spaces.Discrete(SIZE), "free": spaces.Discrete(2)}),
    masks={"a": "m"},
)
SPEC = Spec({0: STEP})


class Heads(nn.Module):
    """Logits of both heads; with a layer that only torch knows, or without."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.a, self.free, self.body = nn.Linear(3, SIZE), nn.Linear(3, 2), nn.Sequential(*layers)

    def forward(self, observation: Any) -> Any:
        hidden = self.body(observation["x"])
        return {"a": self.a(hidden), "free": self.free(hidden)}


POLICIES: dict[str, Callable[[], Policy]] = {
    "numpy": lambda: TorchPolicy([Heads(nn.Tanh())], SPEC).eval(),
    "torch": lambda: TorchPolicy([Heads(nn.LayerNorm(3))], SPEC).eval(),
    "random": lambda: RandomPolicy({0: STEP.action_space}, {0: STEP.masks}),
}


def act(policy: Policy, mask: Any, **options: Any) -> np.ndarray[Any, Any]:
    batch = PolicyBatch(0, {"m": mask, "x": np.zeros((3, 3), np.float32)}, np.zeros(3, np.int64))
    return policy.act(batch, **options).action["a"]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("wrong", [-1.0, 0.5, 2.0, 1e-30, np.nan, np.inf])
def test_other_numbers_than_zero_and_one_are_refused(name: str, wrong: float) -> None:
    policy, mask = POLICIES[name](), np.float32([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    assert act(policy, mask).shape == (3,)
    mask[1, 0] = wrong
    with pytest.raises(MaskError, match=r"the mask 'm' of action head 'a' holds \[.*\]; 1 allows an action and 0"):
        act(policy, mask)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("shape", [(SIZE,), (1, SIZE), (3, 1), (3, SIZE + 1), (3, 1, SIZE), ()])
def test_shapes_that_would_have_to_be_broadcast_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(MaskError, match=r"the mask 'm' of action head 'a' has shape .*, expected \(3, 4\)"):
        act(POLICIES[name](), np.ones(shape, np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int64, np.bool_, np.uint8])
@pytest.mark.parametrize("name", POLICIES)
def test_masks_are_heeded_whatever_their_type(name: str, dtype: Any) -> None:
    policy, mask = POLICIES[name](), np.tile(np.array([0, 1, 0, 0], dtype), (3, 1))
    for seed in range(20):
        assert act(policy, mask, generator=torch.Generator().manual_seed(seed)).tolist() == [1, 1, 1]
    if name != "random":
        assert act(policy, mask, deterministic=True, with_log_prob=True).tolist() == [1, 1, 1]


@given(
    numpy_st.arrays(
        st.sampled_from([np.float32, np.int8, np.int64]), (2, 3), elements=st.sampled_from([0, 1]) | st.integers(-2, 2)
    )
)
@settings(max_examples=60)
def test_entries_of_1_are_allowed_and_other_numbers_than_0_and_1_refused(mask: Any) -> None:
    if set(mask.astype(float).ravel()) <= {0.0, 1.0}:
        np.testing.assert_array_equal(allowed_entries(mask, (2, 3), "m", "a"), mask.astype(bool))
    else:
        with pytest.raises(MaskError):
            allowed_entries(mask, (2, 3), "m", "a")

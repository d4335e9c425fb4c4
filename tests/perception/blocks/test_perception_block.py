"""What blocks have from their base class, with blocks that make it hard."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import DenseBlock, LinearOutputBlock, PerceptionBlock


class Restless(PerceptionBlock):
    """Learns statistics, drops units and draws noise, and is in another mode inside than outside."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.norm, self.drop = nn.BatchNorm1d(3, momentum=0.5), nn.Dropout(0.5).eval()
        self.register_buffer("noise_scale", torch.ones(1))

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x = self.drop(self.norm(block_input["in"]))
        return {"noisy": x + self.noise_scale * torch.randn_like(x), "mean": x.mean(-1)}


class Table(PerceptionBlock):
    """Nothing but a buffer of indices and, if asked for, one of numbers."""

    def __init__(self, *args: object, dtype: torch.dtype | None = None) -> None:
        super().__init__(*args)
        self.register_buffer("indices", torch.tensor([2, 0]))
        if dtype is not None:
            self.register_buffer("factors", torch.ones(1, dtype=dtype))

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.seen = block_input["in"]
        return {"out": self.seen[..., self.indices]}


def test_asking_for_shapes_changes_nothing() -> None:
    torch.manual_seed(0)
    block = Restless("in", ["noisy", "mean"], [3])
    state, random_state = {k: v.clone() for k, v in block.state_dict().items()}, torch.get_rng_state()
    assert block.out_shapes() == [(3,), ()]
    assert (block.training, block.norm.training, block.drop.training) == (True, True, False)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, state[name]) for name, value in block.state_dict().items())
    block.eval().out_shapes()
    assert not any(module.training for module in block.modules())


def test_a_block_that_fails_is_left_in_the_mode_in_which_it_was() -> None:
    block = Restless("in", ["noisy", "mean"], [4])
    with pytest.raises(RuntimeError, match=r"running_mean should contain 4 elements|shape|size"):
        block.out_shapes()
    assert (block.training, block.norm.training, block.drop.training) == (True, True, False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_shapes_are_found_in_the_type_of_the_weights(dtype: torch.dtype) -> None:
    assert DenseBlock("in", "out", [3], hidden_units=[4]).to(dtype).out_shapes() == [(4,)]


def test_shapes_are_found_where_the_weights_are() -> None:
    assert DenseBlock("in", "out", [3], hidden_units=[4]).to("meta").out_shapes() == [(4,)]
    indices = Table("in", "out", [3]).to("meta")
    assert indices.out_shapes() == [(2,)]
    assert indices.seen.device.type == "meta" and indices.seen.dtype == torch.float32
    factors = Table("in", "out", [3], dtype=torch.float64)
    assert factors.out_shapes() == [(2,)] and factors.seen.dtype == torch.float64


def test_shapes_are_of_plain_integers_whatever_they_are_given_as() -> None:
    block = LinearOutputBlock("in", "out", [np.prod([2, 3])], output_units=2)
    assert block.in_shapes == [(6,)] and type(block.in_shapes[0][0]) is int
    assert LinearOutputBlock("in", "out", torch.Size([4]), output_units=2).in_shapes == [(4,)]
    several = Table(("a", "b"), ("out",), np.zeros((2, 3), int).tolist())
    assert several.in_shapes == [(0, 0, 0), (0, 0, 0)] and several.in_keys == ["a", "b"] and several.out_keys == ["out"]


def test_a_scalar_has_the_empty_shape() -> None:
    assert Table("in", "out", []).in_shapes == [()]
    assert Table("in", "out", [()]).in_shapes == [()]


def test_errors_name_the_block_and_its_keys() -> None:
    with pytest.raises(ValueError, match=r"DenseBlock from 'a' \(3,\), 'b' \(4,\) to \['out'\]: expected one input"):
        DenseBlock(["a", "b"], "out", [[3], [4]], hidden_units=[2])
    with pytest.raises(ValueError, match=r"LinearOutputBlock from 'a' \(\) to \['out'\]: .*at least 1 dimension and"):
        LinearOutputBlock("a", "out", [], output_units=2)


class Joined(PerceptionBlock):
    """Inputs side by side, and their sum."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        joined = torch.cat([block_input[key] for key in self.in_keys], -1)
        return {self.out_keys[0]: joined, self.out_keys[1]: joined.sum(-1)}


def test_blocks_know_their_names_and_shapes() -> None:
    block = Joined(["a", "b"], ["joined", "sum"], [[2, 3], (2, 4)])
    assert isinstance(block, nn.Module)
    assert (block.in_keys, block.out_keys, block.in_shapes) == (["a", "b"], ["joined", "sum"], [(2, 3), (2, 4)])
    assert block.out_shapes() == [(2, 7), (2,)]
    assert Joined("a", ["joined", "sum"], (5,)).in_shapes == [(5,)]


@pytest.mark.parametrize("in_shapes", [[[2]], [2, 3], [[2], [3], [4]]])
def test_there_is_one_shape_for_each_input(in_shapes: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"Joined: in_shapes=.*for in_keys=\['a', 'b'\], expected one for each"):
        Joined(["a", "b"], ["joined", "sum"], in_shapes)

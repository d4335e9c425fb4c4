"""The masking block, and what all blocks have in common."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import ActionMaskingBlock, PerceptionBlock


def test_masked_logits_are_the_lowest_number_and_the_others_as_they_were() -> None:
    block = ActionMaskingBlock(["logits", "mask"], "masked", [[4], [4]])
    logits, mask = (
        torch.tensor([[1.0, -2.0, 3.0, 0.5], [1.0, 1.0, 1.0, 1.0]]),
        torch.tensor([[1, 0, 0, 1], [0, 0, 1, 1]]),
    )
    lowest = torch.finfo(torch.float32).min
    output = block({"logits": logits, "mask": mask})
    assert set(output) == {"masked"}
    assert output["masked"].tolist() == [[1.0, lowest, lowest, 0.5], [lowest, lowest, 1.0, 1.0]]


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_any_leading_dimensions_and_types(leading: tuple[int, ...], dtype: torch.dtype) -> None:
    block = ActionMaskingBlock(["logits", "mask"], ["masked"], [(4,), (4,)])
    output = block({"logits": torch.zeros(*leading, 4, dtype=dtype), "mask": torch.eye(4)[0].expand(*leading, 4)})
    masked = output["masked"]
    assert masked.shape == (*leading, 4) and masked.dtype == dtype
    assert bool((masked[..., 0] == 0).all()) and bool((masked[..., 1:] == torch.finfo(dtype).min).all())


@pytest.mark.parametrize("allowed", [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
def test_nothing_becomes_nan_and_no_gradient_reaches_masked_logits(allowed: list[float]) -> None:
    logits = torch.tensor([0.3, 50.0, -1.0], requires_grad=True)
    block = ActionMaskingBlock(["logits", "mask"], "masked", [[3], [3]])
    masked = block({"logits": logits, "mask": torch.tensor(allowed)})["masked"]
    log_probs = masked.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum()
    assert bool(log_probs.isfinite().all()) and bool(entropy.isfinite())
    (entropy + log_probs[2]).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
    assert all(grad == 0 for grad, one in zip(logits.grad.tolist(), allowed, strict=True) if one == 0)
    if allowed == [1.0, 0.0, 1.0]:
        wanted = torch.tensor([0.3, -1.0], requires_grad=True)
        only = wanted.log_softmax(-1)
        (-(only.exp() * only).sum() + only[1]).backward()
        assert wanted.grad is not None
        torch.testing.assert_close(logits.grad[[0, 2]], wanted.grad)


def test_shapes_of_outputs_are_known() -> None:
    assert ActionMaskingBlock(["logits", "mask"], "masked", [[7], [7]]).out_shapes() == [(7,)]


@pytest.mark.parametrize(
    ("in_keys", "out_keys", "in_shapes"),
    [
        (["logits"], "masked", [[3]]),
        (["logits", "mask"], ["a", "b"], [[3], [3]]),
        (["logits", "mask"], "masked", [[3], [4]]),
    ],
)
def test_inputs_that_do_not_fit_are_refused(in_keys: list[str], out_keys: str, in_shapes: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="logits and a mask of one shape"):
        ActionMaskingBlock(in_keys, out_keys, in_shapes)


class Joined(PerceptionBlock):
    """Inputs side by side, and their sum."""

    def forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        joined = torch.cat([block_input[key] for key in self.in_keys], -1)
        return {self.out_keys[0]: joined, self.out_keys[1]: joined.sum(-1)}


def test_blocks_know_their_names_and_shapes() -> None:
    block = Joined(["a", "b"], ["joined", "sum"], [[2, 3], (2, 4)])
    assert isinstance(block, nn.Module)
    assert (block.in_keys, block.out_keys, block.in_shapes) == (["a", "b"], ["joined", "sum"], [(2, 3), (2, 4)])
    assert block.out_shapes() == [(2, 7), (2,)]
    assert Joined("a", ["joined", "sum"], (5,)).in_shapes == [(5,)]


@pytest.mark.parametrize("in_shapes", [[[2]], [2, 3], [[2], 3], [[2], [3], [4]]])
def test_there_is_one_shape_for_each_input(in_shapes: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"Joined: in_shapes=.*for in_keys=\['a', 'b'\], one for each"):
        Joined(["a", "b"], ["joined", "sum"], in_shapes)

"""What a recorded graph may hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from maze_pl.modules.optimization.capture import check_shapes_are_fixed

X, MASK, INDEX = torch.rand(3, 4), torch.tensor([True, False, True]), torch.tensor([2, 0])


@pytest.mark.parametrize("function", [lambda x, m, i: x[m], lambda x, m, i: x * m.nonzero().sum()])
def test_operations_whose_shape_depends_on_values_are_refused(function: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="select entries by their values"):
        check_shapes_are_fixed(make_fx(function)(X, MASK, INDEX))


@pytest.mark.parametrize(
    "function", [lambda x, m, i: x[i], lambda x, m, i: x[:, i], lambda x, m, i: torch.where(m[:, None], x, 0.0)]
)
def test_indices_and_masks_that_keep_the_shape_are_accepted(function: Callable[..., Tensor]) -> None:
    check_shapes_are_fixed(make_fx(function)(X, MASK, INDEX))

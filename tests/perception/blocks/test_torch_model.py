"""Plain modules that know one batch dimension."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import TorchModelBlock


class Attention(nn.Module):
    """Insists on the dimensions that it was written for, and gives more than is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0]))

    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        rows, query = tensors["rows"], tensors["query"]
        assert rows.dim() == 3 and query.dim() == 2
        scores = torch.bmm(rows, (query * self.weight).unsqueeze(-1)).squeeze(-1)
        return {"scores": scores, "best": scores.amax(-1), "unused": rows}


def block(out_keys: list[str], out_num_dims: int | list[int]) -> TorchModelBlock:
    return TorchModelBlock(["rows", "query"], out_keys, [[3, 2], [2]], [3, 2], out_num_dims, Attention())


@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (0,)])
def test_the_module_sees_one_batch_dimension(leading: tuple[int, ...]) -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]).expand(*leading, 3, 2)
    query = torch.tensor([1.0, 4.0]).expand(*leading, 2)
    output = block(["scores", "best"], [2, 1])({"rows": rows, "query": query})
    assert set(output) == {"scores", "best"}
    # rows times [1 * 2, 4 * -1]
    assert torch.equal(output["scores"], torch.tensor([2.0, -4.0, -8.0]).expand(*leading, 3))
    assert torch.equal(output["best"], torch.tensor(2.0).expand(leading))


def test_shapes_and_weights_are_those_of_the_module() -> None:
    model = block(["best", "scores"], [1, 2])
    assert model.out_shapes() == [(), (3,)]
    assert [name for name, _ in model.named_parameters()] == ["net.weight"]


def test_a_module_that_gives_something_else_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"TorchModelBlock from 'rows' \(3, 2\), 'query' \(2,\) to \['scores', 'missing'\]: expected tensors of "
        r"\{'scores': 2, 'missing': 2\} dimensions from Attention, got \{'scores': 2\}",
    ):
        block(["scores", "missing"], 2).out_shapes()
    with pytest.raises(ValueError, match=r"of \{'best': 2\} dimensions from Attention, got \{'best': 1\}"):
        block(["best"], 2)({"rows": torch.zeros(5, 3, 2), "query": torch.zeros(5, 2)})
    with pytest.raises(ValueError, match=r"expected shapes of \[2, 1\] dimensions"):
        TorchModelBlock(["rows", "query"], "best", [[2], [2]], [3, 2], 1, Attention())

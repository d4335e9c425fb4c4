"""A block, what goes into it and how that is drawn, and comparisons of what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from maze_pl import perception
from maze_pl.perception import PerceptionBlock

Shape = tuple[int, ...]
Draw = Callable[[Shape, Generator], Tensor]


def numbers(shape: Shape, generator: Generator) -> Tensor:
    """Return the default input: numbers from a normal distribution."""
    return torch.randn(shape, generator=generator)


def mask(shape: Shape, generator: Generator) -> Tensor:
    """About half of them True, the last one always; so that something exists in each row."""
    drawn = torch.rand(shape, generator=generator) < 0.5
    drawn[..., -1] = True
    return drawn


def neighbours(shape: Shape, generator: Generator) -> Tensor:
    """An adjacency with about half of the edges."""
    return torch.rand(shape, generator=generator).round()


def edges(shape: Shape, generator: Generator) -> Tensor:
    """Edges between four nodes, and some padding."""
    drawn = torch.randint(4, shape, generator=generator)
    return torch.where(torch.rand(shape[:-1], generator=generator).unsqueeze(-1) < 0.2, -1, drawn)


def slots(shape: Shape, generator: Generator) -> Tensor:
    """Numbers of five slots, and -1 for none."""
    return torch.randint(-1, 5, shape, generator=generator)


def levels(shape: Shape, generator: Generator) -> Tensor:
    """Whole numbers, of which the largest is beyond the levels."""
    return torch.randint(4, shape, generator=generator)


def with_random_weights(kind: Callable[..., PerceptionBlock]) -> Callable[..., PerceptionBlock]:
    """A block of which some weights would start at 0, and keep gradients from others."""

    def build(*arguments: Any, **options: Any) -> PerceptionBlock:
        block = kind(*arguments, **options)
        for parameter in block.parameters():
            nn.init.normal_(parameter, std=0.3)
        return block

    return build


@dataclass(frozen=True)
class Case:
    """A block and what goes into it.

    Attributes:
        kind: Class of the block, or a function with the same arguments.
        inputs: Name -> shape of what goes in.
        options: Further arguments.
        outputs: Names of what comes out.
        draw: Name -> how its numbers are drawn, where they are not normally distributed.
        shape_is_fixed: Shapes with more dimensions do not count as leading ones, and why.
    """

    kind: Callable[..., PerceptionBlock]
    inputs: Mapping[str, Shape]
    options: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("out",)
    draw: Mapping[str, Draw] = field(default_factory=dict)
    shape_is_fixed: str = ""

    def build(self, seed: int = 0) -> PerceptionBlock:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.kind([*self.inputs], [*self.outputs], [*self.inputs.values()], **self.options).eval()

    def sample(self, *leading: int, seed: int = 1) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {
            name: self.draw.get(name, numbers)((*leading, *shape), generator) for name, shape in self.inputs.items()
        }


class TwoLayers(nn.Module):
    """Plain PyTorch that knows dicts and one batch dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(6, 5)

    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"out": self.second(torch.cat([self.first(tensors["a"]).tanh(), tensors["b"]], 1))}


def torch_model(in_keys: list[str], out_keys: list[str], in_shapes: list[Shape]) -> perception.TorchModelBlock:
    return perception.TorchModelBlock(in_keys, out_keys, in_shapes, in_num_dims=2, out_num_dims=[2], net=TwoLayers())


def two_modalities(in_keys: list[str], out_keys: list[str], in_shapes: list[Shape]) -> perception.InferenceBlock:
    """An image and a vector to two action heads."""
    shapes = dict(zip(in_keys, in_shapes, strict=True))
    image = perception.VGGConvolutionDenseBlock(
        "image", "seen", shapes["image"], hidden_channels=[2], hidden_units=[3], non_lin=nn.Tanh
    )
    vector = perception.DenseBlock("vector", "felt", shapes["vector"], hidden_units=[4], non_lin=nn.Tanh)
    both = perception.ConcatenationBlock(["seen", "felt"], "latent", [*image.out_shapes(), *vector.out_shapes()])
    heads = {key: perception.LinearOutputBlock("latent", key, both.out_shapes(), 2) for key in out_keys}
    blocks = {"image": image, "vector": vector, "both": both, **heads}
    return perception.InferenceBlock(in_keys, out_keys, in_shapes, blocks)


def by_name(x: Tensor, y: Tensor) -> Tensor:
    return x.tanh() * y


def assert_same(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-5) -> None:
    assert set(given) == set(expected)
    for name, tensor in given.items():
        torch.testing.assert_close(tensor.cpu(), expected[name].cpu(), rtol=tolerance, atol=tolerance)

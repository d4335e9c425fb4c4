"""Overhead of graphs of blocks: three networks as graphs and the same in plain PyTorch, interleaved.

Prints one line of JSON: by name, the microseconds of processor time of a graph and of the network written by hand, and
the ratio, medians each. Measured are building (parameters initialised), a forward pass without gradients and one with
the backward pass, with batches as for acting and for learning, and building together with a few passes.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import nn

from maze_pl.perception import (
    ConcatenationBlock,
    DenseBlock,
    InferenceBlock,
    LinearOutputBlock,
    StridedConvolutionDenseBlock,
    VGGConvolutionDenseBlock,
)

ROUNDS = 15
SECONDS = 0.02  # at least, for each measurement
PASSES = 10  # with a network that was just built


def mlp_of_blocks():
    latent = DenseBlock("observation", "latent", [4], hidden_units=[64, 64], non_lin=nn.Tanh)
    action = LinearOutputBlock("latent", "action", latent.out_shapes(), output_units=2)
    return InferenceBlock("observation", "action", [4], {"latent": latent, "action": action})


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.action = nn.Linear(64, 2)

    def forward(self, observation):
        return {"action": self.action(self.latent(observation["observation"]))}


def cnn_of_blocks():
    layers = {"hidden_channels": [32, 64, 64], "hidden_kernels": [8, 4, 3], "hidden_strides": [4, 2, 1]}
    latent = StridedConvolutionDenseBlock("screen", "latent", [4, 84, 84], **layers, hidden_units=[512])
    action = LinearOutputBlock("latent", "action", latent.out_shapes(), output_units=6)
    return InferenceBlock("screen", "action", [4, 84, 84], {"latent": latent, "action": action})


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.images = nn.Sequential(
            *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
        )
        self.latent = nn.Sequential(nn.Linear(64 * 7 * 7, 512), nn.ReLU())
        self.action = nn.Linear(512, 6)

    def forward(self, observation):
        return {"action": self.action(self.latent(self.images(observation["screen"]).flatten(1)))}


def two_modalities_of_blocks():
    screen = VGGConvolutionDenseBlock("screen", "seen", [3, 64, 64], hidden_channels=[8, 16, 32], hidden_units=[32])
    inventory = DenseBlock("inventory", "owned", [16], hidden_units=[32, 32])
    both = ConcatenationBlock(["seen", "owned"], "both", [*screen.out_shapes(), *inventory.out_shapes()], concat_dim=-1)
    hidden = DenseBlock("both", "hidden", both.out_shapes(), hidden_units=[128])
    move, use = (LinearOutputBlock("hidden", head, [128], output_units=n) for head, n in (("move", 4), ("use", 16)))
    blocks = {"screen": screen, "inventory": inventory, "both": both, "hidden": hidden, "move": move, "use": use}
    return InferenceBlock(["inventory", "screen"], ["move", "use"], [[16], [3, 64, 64]], blocks)


class TwoModalities(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for n_in, n_out in ((3, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(n_out, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.images = nn.Sequential(*layers)
        self.screen = nn.Sequential(nn.Linear(32 * 8 * 8, 32), nn.ReLU())
        self.inventory = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.hidden = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.move, self.use = nn.Linear(128, 4), nn.Linear(128, 16)

    def forward(self, observation):
        seen = self.screen(self.images(observation["screen"]).flatten(1))
        hidden = self.hidden(torch.cat((seen, self.inventory(observation["inventory"])), -1))
        return {"move": self.move(hidden), "use": self.use(hidden)}


NETWORKS = {
    "MLP": (mlp_of_blocks, Mlp, {"observation": (4,)}, (8, 100)),
    "CNN": (cnn_of_blocks, Cnn, {"screen": (4, 84, 84)}, (8, 64)),
    "two modalities": (two_modalities_of_blocks, TwoModalities, {"inventory": (16,), "screen": (3, 64, 64)}, (8, 64)),
}


def forward(network, observation):
    def run():
        with torch.no_grad():
            network(observation)

    return run


def forward_and_backward(network, observation):
    def run():
        sum(output.sum() for output in network(observation).values()).backward()

    return run


def check(graph, by_hand, observation):
    """Check that two networks are equivalent."""
    by_hand.load_state_dict(dict(zip(by_hand.state_dict(), in_the_order_of(graph, by_hand), strict=True)))
    expected, found = by_hand(observation), graph(observation)
    for head, output in expected.items():
        torch.testing.assert_close(found[head], output)


def in_the_order_of(graph, by_hand):
    """The parameters of the graph in the order of the other network; each has a different shape or block."""
    remaining = list(graph.parameters())
    for parameter in by_hand.parameters():
        place = next(i for i, candidate in enumerate(remaining) if candidate.shape == parameter.shape)
        yield remaining.pop(place)


def repeated(run, n):
    began = time.process_time()
    for _ in range(n):
        run()
    return (time.process_time() - began) / n * 1e6


def built_and_run(build, observation):
    def run():
        passes = forward_and_backward(build(), observation)
        for _ in range(PASSES):
            passes()

    return run


def compared(ours, theirs):
    """Medians of the microseconds of both, and of their ratio, measured in turn."""
    repetitions = max(1, round(SECONDS * 1e6 / repeated(theirs, 1)))
    repeated(ours, 1)
    rounds = [(repeated(ours, repetitions), repeated(theirs, repetitions)) for _ in range(ROUNDS)]
    ratio = statistics.median(graph / by_hand for graph, by_hand in rounds)
    return [*(statistics.median(times) for times in zip(*rounds, strict=True)), ratio]


def main() -> None:
    torch.set_num_threads(1)
    measured = {}
    for name, (of_blocks, by_hand, shapes, (acting, learning)) in NETWORKS.items():
        graph, plain = of_blocks(), by_hand()
        measured[f"{name}: building"] = compared(of_blocks, by_hand)
        for batch, kind, what in (
            (acting, forward, "forward"),
            (learning, forward, "forward"),
            (learning, forward_and_backward, "forward and backward"),
        ):
            observation = {key: torch.rand(batch, *shape) for key, shape in shapes.items()}
            check(graph, plain, observation)
            measured[f"{name}: {what}, batch of {batch}"] = compared(kind(graph, observation), kind(plain, observation))
        together = built_and_run(of_blocks, observation), built_and_run(by_hand, observation)
        measured[f"{name}: building, and {PASSES} times forward and backward"] = compared(*together)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

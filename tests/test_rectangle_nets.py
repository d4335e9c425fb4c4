"""Networks for cutting rectangles: what a way to cut gains, and what may not matter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from examples.cutting_2d_mixed.rectangle_nets import CutPolicyNet, PieceChoicePolicyNet
from maze_pl.perception.models.built_in import count_kinds

LEVELS = 7
LOWEST = torch.finfo(torch.float32).min
STOCK = torch.tensor([[5.0, 3], [3, 5], [1, 3], [0, 0], [2, 2]])
ORDER = torch.tensor([4.0, 2])
SHAPES = {"inventory": (5, 2), "ordered_piece": (2,), "inventory_size": (1,)}


def choice(n_copies: int = 1) -> PieceChoicePolicyNet:
    torch.manual_seed(0)
    return PieceChoicePolicyNet(SHAPES, {"piece_idx": (5,)}, LEVELS, n_copies=n_copies)


def worths(network: nn.Module) -> Tensor:
    return network.worth(network.features).view(LEVELS, LEVELS, -1)


def test_a_way_to_cut_gains_its_rests_and_loses_the_piece() -> None:
    network = choice()
    w = worths(network)[..., 0]
    gain, fits = network.gain(torch.tensor([[5.0, 3], [4, 4]]), ORDER.expand(2, 2))
    assert fits.tolist() == [[True, False], [True, True]]
    wanted = [w[1, 3] + w[1, 4] - w[3, 5], w[1, 5] + w[1, 2] - w[3, 5]]  # across first; along first
    torch.testing.assert_close(gain[0, 0], torch.stack(wanted))
    wanted = [w[2, 4] - w[4, 4], w[2, 4] - w[4, 4], w[2, 4] - w[4, 4], w[2, 4] - w[4, 4]]
    torch.testing.assert_close(gain[1].flatten(), torch.stack(wanted))  # (0, 4) has no worth
    assert bool((w[0] == 0).all()) and torch.equal(w, w.T)


def test_a_kind_in_stock_has_another_worth_and_the_piece_is_not_its_own_copy() -> None:
    network = choice(n_copies=2)
    w = worths(network)
    counts = count_kinds(STOCK[None], LEVELS, any_order=True)
    gain, _ = network.gain(STOCK[:1], ORDER[None], counts)
    wanted = [w[1, 3, 1] + w[1, 4, 0] - w[3, 5, 1], w[1, 5, 0] + w[1, 2, 0] - w[3, 5, 1]]
    torch.testing.assert_close(gain[0, 0], torch.stack(wanted))
    gain, _ = network.gain(STOCK[4:], torch.tensor([[1.0, 2]]), counts)
    torch.testing.assert_close(gain[0, 0, 0], w[1, 2, 0] - w[2, 2, 0])


@pytest.mark.parametrize("n_copies", [1, 2])
def test_the_choice_follows_the_pieces_and_leaves_out_what_is_too_small(n_copies: int) -> None:
    network = choice(n_copies)
    seen = {"inventory": STOCK.expand(2, 3, 5, 2), "ordered_piece": ORDER.expand(2, 3, 2)}
    logits = network(seen)["piece_idx"]
    assert logits.shape == (2, 3, 5)
    assert bool((logits[..., 2:] == LOWEST).all())
    assert torch.equal(logits[..., 0], logits[..., 1])  # the same piece, turned
    moved = network({**seen, "inventory": seen["inventory"].flip(-2)})["piece_idx"]
    torch.testing.assert_close(moved, logits.flip(-1))
    gain, fits = network.gain(STOCK[:1], ORDER[None], count_kinds(STOCK[None], LEVELS, True))
    torch.testing.assert_close(logits[0, 0, 0], gain[fits].logsumexp(-1).squeeze(0))
    log_probs = logits.log_softmax(-1)
    (log_probs.exp() * log_probs.clamp(min=-100)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


def test_cuts_that_do_not_fit_are_ruled_out_and_both_heads_mean_the_same_way() -> None:
    torch.manual_seed(0)
    heads = {"cut_rotation": (2,), "cut_order": (2,)}
    network = CutPolicyNet({"selected_piece": (2,), "ordered_piece": (2,)}, heads, LEVELS)
    for parameter in network.rest.parameters():
        parameter.data.zero_()
    seen = {"selected_piece": torch.tensor([[[5.0, 3], [6, 5]]]), "ordered_piece": ORDER.expand(1, 2, 2)}
    logits = network(seen)
    assert {name: x.shape for name, x in logits.items()} == dict.fromkeys(heads, (1, 2, 2))
    assert logits["cut_rotation"][0, 0, 1] == LOWEST
    gain, _ = network.gain(seen["selected_piece"][0], seen["ordered_piece"][0])
    torch.testing.assert_close(logits["cut_order"][0, 0], gain[0, 0])  # the only rotation that fits
    p = gain[1].logsumexp(-1).softmax(-1)
    torch.testing.assert_close(logits["cut_order"][0, 1], p @ gain[1])

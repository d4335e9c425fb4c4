"""Policy and critic as one module: what may be compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.modules import PPO
from tests.modules.kit import KIT


def test_policy_and_critic_cannot_be_compiled_as_one_module() -> None:
    networks = KIT.make_actor_critic()
    with pytest.raises(NotImplementedError, match=r"networks\.policy\.networks\[0\]\[0\]\.compile\(\); updates by a"):
        networks.compile()
    assert networks.policy.networks[0][0]._compiled_call_impl is None


def count_and_return(calls: list[int], graph: Any, _: Any) -> Callable[..., Any]:
    """A backend of `torch.compile` that compiles nothing."""
    calls.append(1)
    return graph.forward  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")
def test_a_compiled_network_learns_the_same_without_capture() -> None:
    results = []
    for is_compiled in (False, True):
        module = PPO(actor_critic=KIT.make_actor_critic(), batch_size=20, capture="off")
        network: Any = module.networks.policy.networks[0][0]
        calls: list[int] = []
        if is_compiled:
            network.compile(backend=partial(count_and_return, calls))
        KIT.fit(module, length=1)
        assert bool(calls) == is_compiled
        results.append(torch.cat([parameter.detach().flatten() for parameter in module.parameters()]))
    torch.testing.assert_close(results[0], results[1])

"""Acts that are evaluated in parts have the same numbers, and those that learners compute."""

from __future__ import annotations

import pytest
import torch

from maze_pl.agents import act_parts
from maze_pl.agents.act_parts import in_parts, n_parts
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.modules import IMPALA
from maze_pl.modules.on_policy.evaluation import existing_acts, log_ratios
from tests.envs.tensors.tensor_envs import ENVS


@pytest.mark.parametrize("name", ENVS)
def test_log_probabilities_are_noted_in_the_parts_of_the_learner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.of(ENVS[name]())
    module = IMPALA(spec=spec)
    policy = module.policy.eval()
    vector = TensorVector(ENVS[name](), 8, spec, torch.device("cpu"))
    rollout = TensorCollector(vector, 10, torch.Generator().manual_seed(0)).collect(policy)
    policy.note_log_probs(rollout)
    whole = {key: segment.log_prob.clone() for key, segment in rollout.segments.items()}  # type: ignore[union-attr]
    sizes: list[int] = []
    policy.networks[0][0].register_forward_pre_hook(
        lambda network, inputs: sizes.append(len(next(iter(inputs[0].values()))))
    )
    elements = sum(tensor[0, 0].numel() for tensor in next(iter(rollout.segments.values())).observation.values())
    monkeypatch.setattr(act_parts, "MOST_ELEMENTS", 30 * elements)
    policy.note_log_probs(rollout)
    assert sizes == [27, 27, 26], "80 acts in parts of at most 30"
    for key, log_prob in whole.items():
        torch.testing.assert_close(rollout.segments[key].log_prob, log_prob)
    with torch.no_grad():
        acts = existing_acts(rollout, module.networks.critic, {})
        for ratios in log_ratios(module.networks, acts).values():
            assert not ratios.any(), "not even by rounding"


def test_no_acts_have_no_outputs() -> None:
    none = torch.zeros(0, 3)
    assert n_parts({"x": none}) == 1
    assert in_parts(lambda *_: pytest.fail("called"), {"x": none}, torch.zeros(0)).shape == (0,)

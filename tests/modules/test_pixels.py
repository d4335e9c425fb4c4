"""Learning from images: numbers on every device, mixed precision, and memory."""

from __future__ import annotations

import copy
import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import maze_pl
from maze_pl.__main__ import main
from maze_pl.agents import TorchActorCritic, act_parts
from maze_pl.core.batches import Rollout
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import A2C, PPO
from maze_pl.modules.on_policy.learning_batch import learning_batch
from maze_pl.modules.on_policy.minibatches import PolicySamples
from maze_pl.perception import (
    ConcatModelBuilder,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StridedConvolutionDenseBlock,
    TemplateModelComposer,
)
from tests.devices import DEVICES

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")

IMAGES = spaces.Dict({"screen": spaces.Box(0, 255, (4, 36, 36), "uint8")})
SPEC = Spec({0: StepSpec(IMAGES, spaces.Dict({"action": spaces.Discrete(3)}))})
T, N = 8, 4
CATCH = str(Path(__file__).parents[2] / "examples/catch/configs/ppo_catch.yaml")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device there is, with true float32 where a GPU would take a shorter type."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield request.param


def actor_critic() -> TorchActorCritic:
    torch.manual_seed(0)
    params = {"hidden_channels": [8, 16], "hidden_kernels": [8, 3], "hidden_strides": [4, 2], "hidden_units": [32]}
    image = {"block_type": StridedConvolutionDenseBlock, "block_params": params | {"non_lin": nn.ReLU}}
    builder = ConcatModelBuilder({"image": image, "hidden": {}, "recurrence": {}}, {"screen": "image"}, ["latent"])
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer()).compose(SPEC)


def rollout() -> Rollout:
    """Random images, actions and rewards, with an end in the middle."""
    draw = torch.Generator().manual_seed(0)
    zeros, flags = torch.zeros(T, N, dtype=torch.int64), torch.zeros(T, N, dtype=torch.bool)
    terminated = flags.clone()
    terminated[3, 1] = True
    reward = torch.randn(T, N, generator=draw, dtype=torch.float64)
    images = torch.randint(256, (T + 1, N, 4, 36, 36), generator=draw, dtype=torch.uint8)
    next_key = torch.where(terminated, -1, 0)
    rows = Rows(~flags, reward, terminated, flags, zeros + 1, zeros, zeros, next_key, next_key)
    action = {"action": torch.randint(3, (T, N), generator=draw)}
    segment = Segment({"screen": images[:T]}, action, ~flags, zeros, zeros, reward, flags, flags, None)
    envs = torch.arange(N)
    final = FinalObservations(envs * 0 + T - 1, envs, envs * 0, envs * 0, {"screen": images[T]})
    return Rollout(rows, {0: segment}, {0: final}, T, flat=True)


def ppo_numbers(networks: TorchActorCritic, batch: Rollout) -> dict[str, Tensor]:
    """What a PPO update computes from a rollout, up to the gradient."""
    module = PPO(actor_critic=networks).to(networks.policy.device)
    module.record = lambda *arguments, **options: None  # type: ignore[method-assign]
    learning = learning_batch(networks, batch, 0.9, 0.8, normalize_advantage=True, with_log_prob=True)
    (minibatch,) = learning.minibatches(1)
    loss = module.loss(minibatch)
    gradients = torch.autograd.grad(loss, list(networks.parameters()))
    acts: PolicySamples = minibatch[0]
    return {
        "advantage": acts.advantage,
        "return": acts.return_,
        "value": acts.old_value,
        "log_prob": acts.old_log_prob,
        "loss": loss.detach(),
        "gradient": torch.cat([gradient.flatten() for gradient in gradients]),
    }


def test_the_numbers_of_float32_are_those_of_float64_to_1e_4(device: str) -> None:
    networks = actor_critic()
    exact = ppo_numbers(copy.deepcopy(networks).double(), rollout())
    found = ppo_numbers(networks.to(device), rollout().to(device))
    for name, value in exact.items():
        assert found[name].dtype == torch.float32
        assert found[name].device.type == device
        error = (found[name].cpu().double() - value).abs().max() / value.abs().max()
        assert error < 1e-4, name


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_mixed_precision_is_for_layers_alone(kind: Any, device: str) -> None:
    networks = actor_critic().to(device)
    module = kind(actor_critic=networks).to(device)
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        learning = learning_batch(
            networks, rollout().to(device), 0.9, 0.8, normalize_advantage=True, with_log_prob=True
        )
        (minibatch,) = learning.minibatches(1)
        assert module.policy.action_logits(0, minibatch[0].observation)["action"].dtype == torch.bfloat16
        total, records = module._gradient_steps.evaluate(module.loss, minibatch)
    numbers = {str(index): vector for index, vector in enumerate(minibatch[0].tensors()[-6:])}
    numbers |= {name: value for name, value, *_ in records} | {"total": total}
    assert {name: number.dtype for name, number in numbers.items()} == dict.fromkeys(numbers, torch.float32)


def test_large_observations_are_evaluated_in_parts_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    networks, sizes = actor_critic(), list[int]()
    whole = ppo_numbers(networks, rollout())
    networks.policy.networks[0][0].register_forward_pre_hook(  # type: ignore[index]
        lambda module, inputs: sizes.append(len(inputs[0]["screen"]))
    )
    monkeypatch.setattr(act_parts, "MOST_ELEMENTS", 10 * 4 * 36 * 36)
    parts = ppo_numbers(networks, rollout())
    assert sizes == [8, 8, 8, 8, 32]  # without gradient for 32 acts, then with it for the minibatch
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_pixels_train_in_mixed_precision(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_envs=2", "--data.n_rollout_steps=32", "--data.epoch_length=2", "--trainer.max_epochs=2"]
    evaluator = ["--data.evaluators", '{"eval": {"n_episodes": 1}}']
    how = ["--trainer.precision", "bf16-mixed", "--trainer.accelerator", device, "--run_dir", "run"]
    types: list[Any] = []
    original = PPO.loss

    def loss(self: PPO, minibatch: Any) -> Tensor:
        (acts,) = minibatch.values()
        types.append(self.policy.action_logits(0, acts.observation)["action"].dtype)
        return original(self, minibatch)

    monkeypatch.setattr(PPO, "loss", loss)
    assert main(["fit", "--config", CATCH, *small, *evaluator, *how, "--model.batch_size=32"]) == 0
    assert set(types) == {torch.bfloat16}
    with Path("run", "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["128", "256"]
    losses = [
        float(row[f"train_ActorCriticEvents/{name}/substep_0"])
        for row in rows
        for name in ("policy_loss", "critic_value_loss", "policy_grad_norm")
    ]
    assert all(math.isfinite(value) for value in losses)
    agent, env = maze_pl.load("run"), maze_pl.load_env("run", trust=True)
    assert {parameter.dtype for parameter in agent.parameters()} == {torch.float32}
    assert env.action_space.contains(agent.act(env.reset(seed=0)[0]))

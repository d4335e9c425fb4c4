from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from maze_pl.core.batches import Rollout
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.modules import A2C, PPO, ParameterGroup
from maze_pl.modules.optimization import traced_loss
from maze_pl.schedules import Linear
from maze_pl.system.ranks import from_first_rank, gather_objects, mean_over_ranks, sum_over_ranks, world_size
from tests.modules.kit import KIT
from tests.modules.small_algorithms import DivergingCrew


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in module.parameters()])


def side_by_side(first: Rollout, second: Rollout) -> Rollout:
    """The environments of two flat rollouts in one."""

    def join(left: Any, right: Any) -> Any:
        if isinstance(left, torch.Tensor):
            return torch.cat([left, right], 1)
        if isinstance(left, dict):
            return {name: join(left[name], right[name]) for name in left}
        return left

    rows = Rows(**{name: join(value, getattr(second.rows, name)) for name, value in vars(first.rows).items()})
    one, two = first.segments[0], second.segments[0]
    segment = Segment(**{name: join(value, getattr(two, name)) for name, value in vars(one).items()})
    finals = first.finals[0], second.finals[0]
    row, env, slot, agent_id = (
        torch.cat([getattr(finals[0], name), getattr(finals[1], name) + shift])
        for name, shift in (("row", 0), ("env", first.n_envs), ("slot", 0), ("agent_id", 0))
    )
    observation = {"observation": torch.cat([final.observation["observation"] for final in finals])}
    final = FinalObservations(row, env, slot, agent_id, observation)
    return Rollout(rows, {0: segment}, {0: final}, first.n_rollout_steps, True)


def make_a2c(kit: Any) -> A2C:
    options: Any = {"optimizer": torch.optim.RMSprop, "value_loss_coef": Linear(1.0, 0.1), "lr": Linear(1e-2, 1e-3)}
    return A2C(actor_critic=kit.make_actor_critic(), normalize_advantage=True, max_grad_norm=0.5, **options)


def make_ppo(kit: Any) -> PPO:
    groups = {"critic.*": ParameterGroup(lr=3e-3, weight_decay=0.01)}
    options: Any = {"optimizer_groups": groups, "frozen": ["policy.*.0.bias"]}
    return PPO(
        actor_critic=kit.make_actor_critic(kit.team_spec, "step"), batch_size=6, lr=1e-2, target_kl=5e-3, **options
    )


def n_updates_until_divergence(kit: Any, rank: int, options: dict[str, Any]) -> int:
    """Updates with a target just below the divergence of a policy that acts in few minibatches of one rank."""

    def team(seed: int) -> Rollout:
        rollout: Rollout = kit.make_team_rollout(seed=2 * seed + rank, crew_acts=rank == 0)
        rollout.segments["crew"].active[1:] = False
        return rollout

    def divergences(target_kl: float) -> list[float | None]:
        networks = kit.make_actor_critic(kit.team_spec)
        settings: Any = {"batch_size": 2, "n_optimization_epochs": 2, "lr": 1e-2, "target_kl": target_kl}
        module = DivergingCrew(actor_critic=networks, **settings)
        torch.manual_seed(rank)
        kit.fit(module, team, length=1, **options)
        return module.divergences

    of_first_pass = [divergence for divergence in divergences(1e9)[:12] if divergence is not None]
    divergence = from_first_rank(sum(of_first_pass) / max(len(of_first_pass), 1))
    return len(divergences(0.8 * divergence))


def run_on_two_ranks(folder: Path) -> None:
    """What each of two ranks does: learn from different data, save, and resume."""
    kit = KIT
    traced_loss.N_UPDATES_BEFORE = 3  # so that the uneven minibatches of the team are traced, too
    os.environ.setdefault("PL_GLOBAL_SEED", "7")
    options: dict[str, Any] = dict(devices=2, strategy="ddp_find_unused_parameters_true", use_distributed_sampler=False)
    rank = int(os.environ.get("LOCAL_RANK", "0"))

    def team(seed: int) -> Rollout:
        rollout: Rollout = kit.make_team_rollout(seed=2 * seed + rank, crew_acts=rank == 0)
        rollout.summaries = [kit.summary(10.0 + rank, env_index=rank)] * (1 - rank)
        return rollout

    report: dict[str, Any] = {}
    a2c = make_a2c(kit)
    kit.fit(a2c, lambda seed: kit.make_flat_rollout(seed=seed + rank), length=3, **options)
    report["a2c"] = [flat(a2c).tolist()] if rank == 0 else []
    whole, half, resumed = make_ppo(kit), make_ppo(kit), make_ppo(kit)
    trainer = kit.fit(whole, team, epochs=4, **options)
    report["stopped_early"] = trainer.global_step < 4 * 2 * 16
    kit.fit(half, team, epochs=2, **options).save_checkpoint(folder / "half.ckpt")
    kit.fit(resumed, team, epochs=4, ckpt_path=folder / "half.ckpt", **options)
    parameters = gather_objects((flat(a2c).tolist(), flat(whole).tolist(), flat(resumed).tolist()))
    draws = gather_objects(torch.rand(4).tolist())
    tables = gather_objects({k: v for k, v in resumed.epoch_statistics["train"].items() if "/time_" not in k})
    report |= {
        "ranks_equal": parameters[0] == parameters[1],
        "resumed_equal": parameters[0][1] == parameters[0][2],
        "draws_differ": draws[0] != draws[1],
        "tables_equal": tables[0] == tables[1],
        "crew_learned": any(name.endswith("policy_loss/substep_crew") for name in tables[0]),
        "env_steps": resumed.env_steps,
        "train_return": tables[0]["BaseEnvEvents/reward/mean"],
        "n_updates": n_updates_until_divergence(kit, rank, options),
        "sum": sum_over_ranks(torch.tensor([1.0, float(rank)])).tolist(),
        "mean": mean_over_ranks(torch.tensor([1.0, float(rank)])).tolist(),
    }
    if rank == 0:
        (folder / "report.json").write_text(json.dumps(report))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
def test_two_ranks_learn_the_same_from_different_data(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path)]
    process = subprocess.run(command, timeout=240, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-5000:]
    report = json.loads((tmp_path / "report.json").read_text())
    kit = KIT
    single = make_a2c(kit)
    kit.fit(
        single,
        lambda seed: side_by_side(kit.make_flat_rollout(seed=seed), kit.make_flat_rollout(seed=seed + 1)),
        length=3,
    )
    torch.testing.assert_close(torch.tensor(report.pop("a2c")[0]), flat(single), rtol=0, atol=1e-5)
    assert report == {
        "ranks_equal": True,
        "resumed_equal": True,
        "draws_differ": True,
        "tables_equal": True,
        "crew_learned": True,
        "stopped_early": True,
        "env_steps": 4 * 2 * 2 * 24,
        "n_updates": 12,
        "train_return": 10.0,
        "sum": [2.0, 1.0],
        "mean": [1.0, 0.5],
    }
    checkpoint = torch.load(tmp_path / "half.ckpt", weights_only=True)
    assert len(checkpoint["maze_pl"]["ranks"]) == 2


def test_nothing_is_said_with_one_process() -> None:
    assert world_size() == 1
    x = torch.tensor([1.0, 2.0])
    assert sum_over_ranks(x).tolist() == [1.0, 2.0]
    assert mean_over_ranks(x).tolist() == [1.0, 2.0]
    assert gather_objects("x") == ["x"]
    assert not distributed.is_initialized()


if __name__ == "__main__":
    run_on_two_ranks(Path(sys.argv[1]))

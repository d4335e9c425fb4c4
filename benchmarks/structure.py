"""Flat against structured decisions: PPO on both forms of each problem, and MaskablePPO of sb3-contrib on the flat one.

    python benchmarks/structure.py                                   # everything that is missing, then the tables
    python benchmarks/structure.py --problems cutting_2d --seeds 0   # a part of it
    python benchmarks/structure.py --table                           # the tables only

Each run is a process that trains on random instances with a budget of decisions, and then plays 100 episodes with
the most likely actions, the same for all. Results are kept in docs/results/structure.json; those that are there are
not computed again. All use the same options of PPO. Dense networks have two layers of 64 tanh units per policy, and
as many in the critic; pointer networks are the shipped templates, which sb3-contrib cannot use without custom code.

Needs stable-baselines3 and sb3-contrib (`make bench` installs them).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import yaml

import maze_pl
from maze_pl.config.factories import Factory
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.runs.intervals import t_interval
from maze_pl.runs.rollout import rollout

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "structure.json"
N_SEEDS, N_EPISODES, FIRST_EPISODE_SEED = 5, 100, 1_000_000
N_ENVS, N_ROLLOUT_STEPS, N_OPTIMIZATION_EPOCHS, N_MINIBATCHES = 16, 100, 4, 8
LR, CLIP_RANGE, VALUE_LOSS_COEF, MAX_GRAD_NORM = 1e-3, 0.2, 0.5, 0.5
VARIANTS = {
    "flat": "flat, dense",
    "maskable_ppo": "flat, dense, MaskablePPO",
    "structured": "structured, dense",
    "flat_pointer": "flat, pointer",
    "structured_pointer": "structured, pointer",
}
MIXED = {
    "max_pieces_in_inventory": 100,
    "raw_piece_size": [10, 8],
    "static_demand": {"class_path": "maze_pl.envs.cutting_2d.UniformDemand", "init_args": {"max_size": [6, 5]}},
}


def shipped(name: str, class_path: str | None = None, **options: Any) -> dict[str, Any]:
    """Configuration of a shipped environment, with other options."""
    node: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    node["init_args"].update(options)
    return node if class_path is None else {**node, "class_path": class_path}


def discrete_stock(class_path: str) -> dict[str, Any]:
    """Configuration of the stock with discrete orders."""
    node = shipped("multi_echelon_stock", class_path)
    node["init_args"]["chain"]["init_args"]["orders"] = "discrete"
    return node


def pointer(head: str, mask: str, exists: str) -> dict[str, Any]:
    """Modality of items of which one is chosen."""
    chosen = {"mask_key": mask, "hidden_units": [64, 64], "score": "linear"}
    return {
        "block_type": "maze_pl.perception.DeepSetBlock",
        "block_params": {"mask_key": exists, "hidden_units": [48, 48]},
        "heads": {head: {"block_type": "maze_pl.perception.PointerBlock", "block_params": chosen}},
    }


def routing_pointers(**modalities: dict[str, Any]) -> dict[str, Any]:
    """Pointer networks for vehicle routing, in the sizes of those for the job shop."""
    node: dict[str, Any] = yaml.safe_load((ROOT / "configs/model/job_shop.yaml").read_text(encoding="utf-8"))
    options = node["init_args"]["model_builder"]["init_args"]
    shared = {name: options["modality_config"][name] for name in ("numbers", "hidden", "recurrence")}
    options["observation_modality_mapping"] = {**{items: items for items in modalities}, "summary": "numbers"}
    options["modality_config"] = {**modalities, **shared}
    return node


PROBLEMS: dict[str, dict[str, Any]] = {
    "cutting_2d": {
        "title": "cutting-2D, mixed orders: raw pieces",
        "flat": {"class_path": "maze_pl.envs.cutting_2d.masked_env_factory", "init_args": MIXED},
        "structured": {"class_path": "maze_pl.envs.cutting_2d.masked_struct_env_factory", "init_args": MIXED},
        "env_steps": {"flat": 128_000, "structured": 128_000},
        "time_limit": 200,
        "metric": "return",
        "sign": -1,
        "gamma": 0.98,
        "pointers": {},
    },
    "job_shop": {
        "title": "flexible job shop, 10 x 5: makespan above the bound, %",
        "flat": shipped("flexible_job_shop", "maze_pl.envs.job_shop.job_shop_factory"),
        "structured": shipped("flexible_job_shop"),
        "env_steps": {"flat": 128_000, "structured": 128_000},
        "metric": "bound_gap_percent",
        "gamma": 1.0,
        "pointers": {"flat": "model/job_shop", "structured": "model/flexible_job_shop"},
    },
    "vehicle_routing": {
        "title": "vehicle routing, 20 customers, 3 vehicles under way: distance",
        "flat": shipped(
            "structured_vehicle_routing",
            "maze_pl.envs.vehicle_routing.vehicle_routing_factory",
            instances=["random(20)"],
            advised=False,
        ),
        "structured": shipped("structured_vehicle_routing", instances=["random(20)"], advised=False),
        "env_steps": {"flat": 128_000, "structured": 128_000},
        "metric": "distance",
        "gamma": 1.0,
        "pointers": {
            "flat": routing_pointers(options=pointer("option", "option_mask", "exists")),
            "structured": routing_pointers(
                vehicles=pointer("vehicle", "vehicle_mask", "vehicle_mask"),
                nodes=pointer("node", "node_mask", "exists"),
            ),
        },
    },
    "multi_echelon_stock": {
        "title": "stock of four echelons: cost of a period",
        "flat": discrete_stock("maze_pl.envs.multi_echelon_stock.stock_factory"),
        "structured": discrete_stock("maze_pl.envs.multi_echelon_stock.structured_stock_factory"),
        "env_steps": {"flat": 256_000, "structured": 256_000},
        "metric": "cost_per_period",
        "gamma": 0.98,
        "each_agent": True,
        "pointers": {},
    },
    "ride_hailing": {
        "title": "ride hailing: return of a day",
        "flat": shipped("ride_hailing_central"),
        "structured": shipped("ride_hailing"),
        "env_steps": {"flat": 57_600, "structured": 24_000},  # equally many decisions
        "scale": 0.1,
        "metric": "return",
        "gamma": 0.98,
        "each_agent": True,
        "max_agents": {"vehicle": 16},
        "pointers": {"flat": "model/ride_hailing_central", "structured": "model/ride_hailing"},
    },
}


def wrappers_of(problem: dict[str, Any], training: bool) -> list[dict[str, Any]]:
    """Configuration of the wrappers of an environment."""
    found = []
    if "time_limit" in problem:
        options = {"max_episode_steps": problem["time_limit"]}
        found.append({"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": options})
    if training and "scale" in problem:
        options = {"scale": problem["scale"]}
        found.append({"class_path": "maze_pl.envs.wrappers.RewardScalingWrapper", "init_args": options})
    return found


def make_env(problem: dict[str, Any], form: str, training: bool = False) -> Any:
    """Make a single environment of a form."""
    node = deepcopy(problem[form])
    env = Factory(node["class_path"], node["init_args"])()
    for wrapper in wrappers_of(problem, training):
        env = Factory(wrapper["class_path"], wrapper["init_args"])(env)
    return env


def dense_networks(problem: dict[str, Any], form: str) -> dict[str, Any]:
    """Configuration of dense networks."""
    each_agent = form == "structured" and problem.get("each_agent", False)
    critic = "StepStateCriticComposer" if each_agent else "SharedStateCriticComposer"
    sizes = {"non_lin": "torch.nn.Tanh", "hidden_units": [64, 64]}
    policy_net = {"class_path": "maze_pl.perception.FlattenConcatPolicyNet", "init_args": sizes}
    critic_net = {"class_path": "maze_pl.perception.FlattenConcatStateValueNet", "init_args": sizes}
    options: dict[str, Any] = {
        "distribution_mapper_config": [],
        "policy": {
            "class_path": "maze_pl.perception.ProbabilisticPolicyComposer",
            "init_args": {"networks": networks_of(problem, form, policy_net)},
        },
        "critic": {
            "class_path": f"maze_pl.perception.{critic}",
            "init_args": {"networks": networks_of(problem, form, critic_net) if each_agent else [critic_net]},
        },
    }
    return {"class_path": "maze_pl.perception.CustomModelComposer", "init_args": options}


def networks_of(problem: dict[str, Any], form: str, network: dict[str, Any]) -> dict[Any, Any]:
    """The same network for each sub-step of a form."""
    return {key: network for key in make_env(problem, form).action_spaces_dict}


def configuration(problem: dict[str, Any], form: str, networks: Any, share: float) -> dict[str, Any]:
    """Configuration of a run of `maze-pl fit`."""
    n_rollouts = max(int(share * problem["env_steps"][form]) // (N_ENVS * N_ROLLOUT_STEPS), 1)
    model = {
        "networks": networks,
        "lr": LR,
        "lr_schedule": "linear",
        "gamma": problem["gamma"],
        "gae_lambda": 0.95,
        "policy_loss_coef": 1.0,
        "value_loss_coef": VALUE_LOSS_COEF,
        "entropy_coef": 1e-3,
        "max_grad_norm": MAX_GRAD_NORM,
        "batch_size": N_ENVS * N_ROLLOUT_STEPS // N_MINIBATCHES,
        "n_optimization_epochs": N_OPTIMIZATION_EPOCHS,
        "clip_range": CLIP_RANGE,
    }
    data = {
        "env": problem[form],
        "wrappers": wrappers_of(problem, training=True),
        "n_envs": N_ENVS,
        "n_rollout_steps": N_ROLLOUT_STEPS,
        "epoch_length": n_rollouts,
        "evaluators": {"eval": {"n_episodes": 1}},
    }
    if form == "structured" and "max_agents" in problem:
        data["max_agents"] = problem["max_agents"]
    return {
        "model": {"class_path": "maze_pl.modules.PPO", "init_args": model},
        "data": {"class_path": "maze_pl.datamodules.RolloutDataModule", "init_args": data},
        "trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": 1},
        "early_stopping": {"patience": 0},
    }


def play(problem: dict[str, Any], form: str, policy: Any) -> list[float]:
    """Values of the metric in the test episodes."""
    options: dict[str, Any] = {"episodes": N_EPISODES, "seed": FIRST_EPISODE_SEED, "deterministic": True}
    if form == "structured" and "max_agents" in problem:
        options["max_agents"] = problem["max_agents"]
    played = rollout(partial(make_env, problem, form), policy, max_steps=10_000, **options)
    summaries = [episode.summary for episode in played]
    metric, sign = problem["metric"], problem.get("sign", 1)
    return [sign * float(one.reward if metric == "return" else one.kpis[metric]) for one in summaries]


def train_maze_pl(problem: dict[str, Any], form: str, networks: Any, seed: int, share: float) -> dict[str, Any]:
    """Train with maze_pl; returns the result."""
    with tempfile.TemporaryDirectory() as folder:
        file, run_dir = Path(folder, "run.yaml"), Path(folder, "run")
        settings = configuration(problem, form, networks, share)
        file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "maze_pl", "fit", "--config", str(file), "--seed_everything", str(seed)]
        done = subprocess.run([*command, "--run_dir", str(run_dir)], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        agent = maze_pl.load(run_dir / "checkpoints" / "last.ckpt")
        return {"seconds": usage.ru_utime + usage.ru_stime, "values": play(problem, form, agent.policy)}


class FlatGymEnv(gymnasium.Env[Any, Any]):
    """A flat environment for stable-baselines3: the action is the only head, the mask is a method."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = env.observation_space
        ((self.head, self.action_space),) = env.action_space.items()
        self.mask_name = env.action_masks_dict.get(0, {}).get(self.head)
        self.mask = np.ones(sum(getattr(self.action_space, "nvec", [0])), np.bool_)  # all, if there is none

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed)
        self._keep_mask(observation)
        return observation, info

    def step(self, action: Any) -> Any:
        """Perform an action."""
        observation, *rest = self.env.step({self.head: action})
        self._keep_mask(observation)
        return (observation, *rest)

    def action_masks(self) -> np.ndarray:
        """Mask of the next action."""
        return self.mask

    def _keep_mask(self, observation: dict[str, np.ndarray]) -> None:
        if self.mask_name is not None:
            self.mask = observation[self.mask_name] > 0


class MaskablePolicy:
    """Policy of a model of sb3-contrib, for rollouts of maze_pl."""

    def __init__(self, model: Any, env: FlatGymEnv) -> None:
        self.model = model
        self.head, self.mask_name, self.mask = env.head, env.mask_name, env.mask

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Most likely actions."""
        n = len(batch.observation[next(iter(batch.observation))])
        masks = np.tile(self.mask, (n, 1)) if self.mask_name is None else batch.observation[self.mask_name] > 0
        actions, _ = self.model.predict(dict(batch.observation), deterministic=True, action_masks=masks)
        return PolicyStep({self.head: actions})


def train_maskable_ppo(problem: dict[str, Any], seed: int, share: float) -> dict[str, Any]:
    """Train with sb3-contrib; returns the result."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> FlatGymEnv:
        return FlatGymEnv(make_env(problem, "flat", training=True))

    model = MaskablePPO(
        "MultiInputPolicy",
        DummyVecEnv([make] * N_ENVS),
        learning_rate=lambda left: LR * left,
        n_steps=N_ROLLOUT_STEPS,
        batch_size=N_ENVS * N_ROLLOUT_STEPS // N_MINIBATCHES,
        n_epochs=N_OPTIMIZATION_EPOCHS,
        gamma=problem["gamma"],
        gae_lambda=0.95,
        clip_range=CLIP_RANGE,
        ent_coef=1e-3,
        vf_coef=VALUE_LOSS_COEF,
        max_grad_norm=MAX_GRAD_NORM,
        seed=seed,
        device="cpu",
    )
    start = time.process_time()
    model.learn(max(int(share * problem["env_steps"]["flat"]), 1))
    seconds = time.process_time() - start
    return {"seconds": seconds, "values": play(problem, "flat", MaskablePolicy(model, make()))}


def compute(name: str, variant: str, seed: int, share: float) -> dict[str, Any]:
    """Train and test one variant."""
    torch.set_num_threads(1)
    problem = PROBLEMS[name]
    if variant == "maskable_ppo":
        result = train_maskable_ppo(problem, seed, share)
    else:
        form, _, kind = variant.partition("_")
        networks = problem["pointers"][form] if kind == "pointer" else dense_networks(problem, form)
        result = train_maze_pl(problem, form, networks, seed, share)
    return {"seconds": round(result["seconds"], 1), "values": [round(value, 4) for value in result["values"]]}


def variants_of(name: str) -> list[str]:
    """Variants that a problem has."""
    forms = PROBLEMS[name]["pointers"]
    return [variant for variant in VARIANTS if not variant.endswith("pointer") or variant.split("_")[0] in forms]


def compute_missing(arguments: argparse.Namespace) -> None:
    """Compute all results that are not there yet, each in a separate process."""
    results = read_results(arguments.results)
    tasks: list[tuple[str, str, int]] = []
    for seed in arguments.seeds:
        for name in arguments.problems:
            wanted = [variant for variant in variants_of(name) if variant in arguments.variants]
            tasks += [(name, variant, seed) for variant in wanted if key_of(name, variant, seed) not in results]

    def compute_in_process(task: tuple[str, str, int]) -> str | None:
        command = [sys.executable, __file__, "--share", str(arguments.share), "--one", *map(str, task)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            print(*task, "failed:\n" + done.stderr[-3000:], flush=True)
            return None
        return done.stdout.strip().splitlines()[-1]

    with ThreadPoolExecutor(arguments.workers) as pool:
        for task, line in zip(tasks, pool.map(compute_in_process, tasks), strict=True):
            if line is not None:
                results = {**read_results(arguments.results), key_of(*task): json.loads(line)}
                write_results(arguments.results, results)
                print(*task, f"{np.mean(results[key_of(*task)]['values']):.3f}", flush=True)


def key_of(name: str, variant: str, seed: int) -> str:
    """Name of a result."""
    return f"{name}/{variant}/{seed}"


def read_results(file: Path) -> dict[str, Any]:
    """All results that are there."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def write_results(file: Path, results: dict[str, Any]) -> None:
    """Write results, one per line, by way of a temporary file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(results[key])}" for key in sorted(results)]
    part = file.with_name(file.name + ".part")
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(part, file)


def interval(values: list[float]) -> str:
    """Mean with its 95% interval over seeds (Student's t)."""
    mean = float(np.mean(values))
    digits = 1 if abs(mean) >= 100 else 2
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = t_interval(values)[1] - mean
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def table(file: Path) -> str:
    """The results in Markdown."""
    results = read_results(file)
    head = ["problem: metric", *VARIANTS.values()]
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * len(VARIANTS)}"]
    for name, problem in PROBLEMS.items():
        cells = []
        for variant in VARIANTS:
            keys = [key_of(name, variant, seed) for seed in range(N_SEEDS)]
            found = [results[key] for key in keys if key in results]
            means = [float(np.mean(result["values"])) for result in found]
            minutes = np.mean([result["seconds"] for result in found]) / 60 if found else 0
            seeds = f"{len(found)} seed{'s' * (len(found) > 1)}"
            cells.append(f"{interval(means)} ({seeds}, {minutes:.1f} min)" if found else "")
        lines.append(f"| {problem['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Compute what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(N_SEEDS)))
    parser.add_argument("--workers", type=int, default=1, help="runs at the same time")
    parser.add_argument("--table", action="store_true", help="print the tables of the results that are there")
    parser.add_argument("--share", type=float, default=1.0, help="of the budget, to try this out")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--one", nargs=3, metavar=("PROBLEM", "VARIANT", "SEED"), help="compute one result")
    arguments = parser.parse_args()
    if arguments.one:
        name, variant, seed = arguments.one
        print(json.dumps(compute(name, variant, int(seed), arguments.share)))
        return 0
    if not arguments.table:
        compute_missing(arguments)
    print(table(arguments.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trains the shipped configurations with several seeds and writes their results to docs/results.md.

A policy is evaluated in episodes that are used neither in training nor in selecting best.ckpt. Each run leaves a
result in outputs/learn/<config>/<seed>/result.json and is not repeated unless its configuration or a version changes,
so that an interrupted `make learn` continues where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import maze_pl

ROOT = Path(__file__).resolve().parent.parent
RUNS, DOCS = ROOT / "outputs" / "learn", ROOT / "docs"
N_SEEDS, N_EPISODES, FIRST_EPISODE_SEED = 3, 20, 1000
THRESHOLDS = {  # minimum of the mean over the seeds
    "ppo_cartpole": 490,
    "ppo_acrobot": -90,
    "ppo_pendulum": -200,
    "ppo_lunar_lander": 220,
    "ppo_lunar_lander_continuous": 220,
    "ppo_bipedal_walker": 280,
    "ppo_hopper": 2000,
    "ppo_half_cheetah": 2500,
    "ppo_cartpole_arrays": 490,
    "ppo_cartpole_recurrent": 400,
    "sac_pendulum": -170,
    "sac_cartpole": 450,
    "sac_lunar_lander_continuous": 220,
    "sac_half_cheetah": 5000,
    "dqn_cartpole": 475,
    "dqn_lunar_lander": 200,
    "dqn_pong": 15,
    "td3_pendulum": -170,
    "td3_lunar_lander_continuous": 220,
    "impala_cartpole": 450,
    "es_cartpole": 475,
    "examples/catch/configs/ppo_catch.yaml": 4.75,
}
A2C = [name.replace("ppo", "a2c") for name in THRESHOLDS if name.startswith("ppo")]
CONFIGS = [*THRESHOLDS, *(name for name in A2C if (ROOT / "configs" / f"{name}.yaml").is_file())]
DEMONSTRATED = 200, "sac_lunar_lander_continuous", "sacfd_lunar_lander_continuous"
"""A return, a configuration, and one with demonstrations that must reach it in fewer env steps with each seed."""
DEMONSTRATIONS = ["--env", "env/gym_env", "--env.name", "LunarLanderContinuous-v3", "--policy", "heuristic"]
DEMONSTRATIONS += ["--n_episodes", "50", "--max_steps", "0", "--trajectories", "spaces", "--event_logs", "false"]
PACKAGES = ("maze-pl", "torch", "pytorch-lightning", "gymnasium", "numpy")
Result = dict[str, Any]

HEAD = """# Results of the shipped configurations

Written by `make learn`, which trains each configuration with the seeds {seeds} by

    maze-pl fit --config NAME --seed_everything SEED

and then plays {n_episodes} deterministic episodes, the same for all, with the policies of `best.ckpt` and \
`last.ckpt`. These episodes are used neither in training nor in the evaluations that select `best.ckpt`. Numbers are \
undiscounted returns of the environment, without the reward scaling that some configurations use in training.

**Best** is the mean over the seeds for `best.ckpt`, **last** the same for `last.ckpt`; the next column has the mean \
of each seed. **Required** is the minimum for **best**. Env steps per second are the median over the seeds for the \
whole command on one core, including all evaluations, in processor time.

| configuration | env steps | best | seeds {seeds} | last | seeds {seeds} | required | env steps/s |
|---|--:|--:|:--|--:|:--|--:|--:|
"""


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def episode_returns(checkpoint: Path) -> list[float]:
    """Returns of the episodes in which a policy is evaluated."""
    agent, env = maze_pl.load(checkpoint), maze_pl.load_env(checkpoint)
    for episode in range(N_EPISODES):
        observation, _ = env.reset(seed=FIRST_EPISODE_SEED + episode)
        policy_state: dict[Any, Any] = {}
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(agent.act(observation, policy_state=policy_state))
            ended = terminated or truncated
    env.close()
    return [summary.reward for summary in env.drain_episode_summaries()]


def curve(metrics: Path) -> list[tuple[int, float]]:
    """Env steps and mean return of the evaluations during training."""
    with metrics.open(encoding="utf-8") as file:
        return [(int(row["step"]), float(row["eval_BaseEnvEvents/reward/mean"])) for row in csv.DictReader(file)]


def write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def child_seconds() -> float:
    """Processor time of all child processes that have ended, regardless of other work on the machine."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def judge_returns(run_dir: Path) -> Result:
    """Returns of the saved policies of a run."""
    return {name: episode_returns(run_dir / "checkpoints" / f"{name}.ckpt") for name in ("best", "last")}


def train(
    config: str,
    seed: int,
    again: bool,
    options: Sequence[str] = (),
    judge: Callable[[Path], Result] = judge_returns,
) -> Result:
    """The result of a run, from its file if there is one.

    Args:
        config: Name of the configuration, or its file.
        seed: Value of `seed_everything`.
        again: Repeat the run in any case.
        options: Further options of the command.
        judge: Computes further entries of the result from the run directory.
    """
    run_dir = RUNS / "-".join([Path(config).stem, *map(slug, options)]) / str(seed)
    file = config if config.endswith(".yaml") else f"configs/{config}.yaml"
    text = (ROOT / file).read_text(encoding="utf-8")
    settings = "".join(line.partition("#")[0].rstrip() + "\n" for line in text.splitlines())  # comments may change
    settings += "".join(f"{option}\n" for option in options)
    made_with = {"settings": settings, "versions": versions()}
    result_file = run_dir / "result.json"
    if result_file.is_file() and not again:
        result: Result = json.loads(result_file.read_text(encoding="utf-8"))
        if all(result[key] == value for key, value in made_with.items()):
            return result
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    began = child_seconds()
    run("fit", "--config", config, "--seed_everything", str(seed), "--run_dir", str(run_dir), *options)
    seconds = child_seconds() - began
    points = curve(run_dir / "metrics.csv")
    result = {
        **made_with,
        **{"date": date.today().isoformat(), "cpu_seconds": seconds, "env_steps": points[-1][0], "curve": points},
        **judge(run_dir),
    }
    write(result_file, json.dumps(result))
    return result


def run(*command: str) -> None:
    """Run a command of maze-pl."""
    environment, process = {**os.environ, "OMP_NUM_THREADS": "1"}, [sys.executable, "-m", "maze_pl", *command]
    done = subprocess.run(process, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"maze-pl {' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")


def steps_to(result: Result, wanted: float) -> float:
    """Env steps of the first evaluation that reached a return; infinite if none did."""
    return next((float(step) for step, mean_return in result["curve"] if mean_return >= wanted), math.inf)


def demonstrated(again: bool) -> tuple[str, list[str]]:
    """The section on the effect of demonstrations, and the results that were not reached."""
    wanted, plain, shown = DEMONSTRATED
    recorded = RUNS / "demonstrations"
    if again or not recorded.is_dir():
        shutil.rmtree(recorded, ignore_errors=True)
        run("rollout", *DEMONSTRATIONS, "--output_dir", str(recorded))
    options = ["--data.demonstrations.input_data", str((recorded / "trajectories").relative_to(ROOT))]
    results = {plain: [train(plain, seed, False) for seed in range(N_SEEDS)]}
    results[shown] = [train(shown, seed, again, options) for seed in range(N_SEEDS)]
    steps = {config: [steps_to(result, wanted) for result in own] for config, own in results.items()}
    rows = [f"| `{name}` | {' | '.join(f'{count:,.0f}' for count in own)} |" for name, own in steps.items()]
    for name, own in steps.items():
        print(f"{name}: {own} env steps to {wanted}", flush=True)
    seeds = " | ".join(f"seed {seed}" for seed in range(N_SEEDS))
    text = (
        "## Effect of demonstrations\n\n"
        f"Env steps until an evaluation during training first reached {wanted}, without and with demonstrations: "
        "50 episodes of the heuristic, which make up a quarter of each minibatch, recorded by `maze-pl rollout "
        f"{' '.join(DEMONSTRATIONS)}`.\n\n"
        f"| configuration | {seeds} |\n|---|{'--:|' * N_SEEDS}\n" + "\n".join(rows) + "\n"
    )
    fewer = all(own < other for own, other in zip(steps[shown], steps[plain], strict=True))
    return text, [] if fewer else [shown]


def slug(option: str) -> str:
    """An option as part of a folder's name."""
    return "".join(letter if letter.isalnum() else "_" for letter in option).strip("_")


def mean(results: list[Result], kind: str) -> float:
    return statistics.fmean(statistics.fmean(result[kind]) for result in results)


def row(config: str, results: list[Result]) -> str:
    cells = [f"`{config}`", f"{results[0]['env_steps']:,}"]
    for kind in ("best", "last"):
        seeds = ", ".join(f"{statistics.fmean(result[kind]):.1f}" for result in results)
        cells += [f"{mean(results, kind):.1f}", seeds]
    speed = statistics.median(result["env_steps"] / result["cpu_seconds"] for result in results)
    return f"| {' | '.join([*cells, str(THRESHOLDS.get(config, '')), f'{speed:,.0f}'])} |"


def draw(table: dict[str, list[Result]], path: Path) -> None:
    """Small multiples: the evaluations of all seeds during training, by configuration."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    n_rows = -(-len(table) // 4)
    figure, axes = pyplot.subplots(n_rows, 4, squeeze=False, figsize=(15, 2.7 * n_rows), layout="constrained")
    for axis in axes.flat[len(table) :]:
        axis.axis("off")
    for axis, (config, results) in zip(axes.flat, table.items(), strict=False):
        for seed, result in enumerate(results):
            steps, returns = zip(*result["curve"], strict=True)
            axis.plot([step / 1000 for step in steps], returns, linewidth=1.3, label=f"seed {seed}")
        if config in THRESHOLDS:
            axis.axhline(THRESHOLDS[config], color="black", linewidth=0.8, linestyle="--", label="required")
        axis.set_title(Path(config).stem, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel("thousand env steps", fontsize=9)
    figure.supylabel(f"return, mean of {N_EPISODES} evaluation episodes", fontsize=9)
    part = path.with_name(path.name + ".part")
    figure.savefig(part, format="png", dpi=110)
    os.replace(part, path)


def report(table: dict[str, list[Result]]) -> str:
    seeds = ", ".join(str(seed) for seed in range(N_SEEDS))
    rows = "\n".join(row(config, results) for config, results in table.items())
    dates = sorted({result["date"] for results in table.values() for result in results})
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    return (
        HEAD.format(seeds=seeds, n_episodes=N_EPISODES)
        + f"{rows}\n\nRun on {' to '.join(dict.fromkeys((dates[0], dates[-1])))} with {used}.\n\n"
        + "The evaluations during training, which select `best.ckpt`:\n\n"
        + "![Return over env steps, for each configuration and seed](results/curves.png)\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", help="Train only these, and write nothing.")
    parser.add_argument(
        "--demonstrations", action="store_true", help="Only compare SAC with and without demonstrations."
    )
    parser.add_argument("--again", action="store_true", help="Repeat runs that have been made before.")
    options = parser.parse_args()
    if unknown := set(options.configs) - set(CONFIGS):
        parser.error(f"no such configurations: {', '.join(sorted(unknown))}; there are {', '.join(CONFIGS)}")
    torch.set_num_threads(1)
    if options.demonstrations:
        raise SystemExit(bool(demonstrated(options.again)[1]))
    table: dict[str, list[Result]] = {}
    for config in options.configs or CONFIGS:
        for seed in range(N_SEEDS):
            result = train(config, seed, options.again)
            table.setdefault(config, []).append(result)
            reached = ", ".join(f"{kind} {statistics.fmean(result[kind]):.1f}" for kind in ("best", "last"))
            print(f"{config} seed {seed}: {reached} after {result['env_steps']:,} env steps", flush=True)
    missed: list[str] = []
    if not options.configs:
        (DOCS / "results").mkdir(parents=True, exist_ok=True)
        from cutting_2d import section  # which imports this file

        text, missed = section(options.again)
        more, not_fewer = demonstrated(options.again)
        text, missed = f"{text}\n{more}", missed + not_fewer
        draw(table, DOCS / "results" / "curves.png")
        write(DOCS / "results.md", f"{report(table)}\n{text}")
        print(f"written: {DOCS / 'results.md'}")
    missed += [name for name in table if name in THRESHOLDS and mean(table[name], "best") < THRESHOLDS[name]]
    if missed:
        raise SystemExit("not reached: " + ", ".join(missed))


if __name__ == "__main__":
    main()

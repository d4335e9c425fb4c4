"""Results on cutting-2D: raw pieces used by masked, structured, flat and greedy policies, and learning curves.

Policies are evaluated with sampled actions in new episodes, the same for all. Runs are stored in outputs/learn/ like
those of `learn.py`, which writes the section to docs/results.md.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learn import DOCS, N_SEEDS, Result, train

import maze_pl
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.cutting_2d import GreedyCuttingPolicy

N_EPISODES, FIRST_EPISODE_SEED = 100, 5000
KPI = "eval_BaseEnvEvents/kpi/mean/raw_piece_usage_per_step"
CONSTANT = ["--data.env.static_demand", "[1, 2]", "--trainer.max_epochs", "10"]
VARIANTS = {  # instance -> variant -> configuration and options
    "documented": {
        "masked": ("ppo_cutting_2d", []),
        "masked, pointer network": ("ppo_cutting_2d_pointer", []),
        "structured": ("ppo_cutting_2d_struct", []),
        "flat": ("ppo_cutting_2d_flat", []),
    },
    "constant": {
        "masked": ("ppo_cutting_2d_constant", []),
        "structured": ("ppo_cutting_2d_struct", CONSTANT),
        "flat": ("ppo_cutting_2d_flat", CONSTANT),
    },
}
RANDOM = {"documented": 34.5, "constant": 35.8, "mixed": 36.7}  # raw pieces of random valid cuts
MIXED = {  # variant -> configuration
    "masked": "examples/cutting_2d_mixed/configs/ppo_cutting_2d_mixed.yaml",
    "masked, pointer network": "examples/cutting_2d_mixed/configs/ppo_cutting_2d_mixed_pointer.yaml",
}
REQUIRED = {"documented": 31.3, "constant": 32.0}  # raw pieces of the masked agent, at most
AREA_BOUND = 26.8  # mixed: the ordered area in raw pieces, plus one that is partly used


def raw_pieces(env: Any, choose: Callable[[dict[str, Any], Any], dict[str, Any]]) -> list[float]:
    """Number of raw pieces used in each of the episodes in which policies are evaluated."""
    for episode in range(N_EPISODES):
        observation, _ = env.reset(seed=FIRST_EPISODE_SEED + episode)
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(choose(observation, env.actor_id().step_key))
            ended = terminated or truncated
    return [one.kpis["raw_piece_usage_per_step"] * one.env_steps for one in env.drain_episode_summaries()]


def of_checkpoint(checkpoint: Path) -> list[float]:
    """Raw pieces of a trained policy that samples its actions."""
    agent, env = maze_pl.load(checkpoint, trust=True), maze_pl.load_env(checkpoint, trust=True)
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        return raw_pieces(env, lambda seen, key: agent.act(seen, key, deterministic=False, generator=generator))


def of_greedy(checkpoint: Path) -> list[float]:
    """Raw pieces of the greedy policy in the environment that a policy was trained in."""
    env = maze_pl.load_env(checkpoint, trust=True)
    policy = GreedyCuttingPolicy(env.action_spaces_dict)

    def choose(observation: dict[str, Any], step_key: Any) -> dict[str, Any]:
        batch = {name: np.asarray(value)[np.newaxis] for name, value in observation.items()}
        states = [env.get_simulation_state()]
        action = policy.act(PolicyBatch(step_key, batch, np.zeros(1, np.int64), maze_state=states)).action
        return {head: int(value[0]) for head, value in action.items()}

    return raw_pieces(env, choose)


def judge(run_dir: Path) -> Result:
    """Raw pieces of the saved policies of a run, of the greedy policy in the same episodes, and during training."""
    checkpoints = run_dir / "checkpoints"
    policies = {name: of_checkpoint(checkpoints / f"{name}.ckpt") for name in ("best", "last")}
    with (run_dir / "metrics.csv").open(encoding="utf-8") as file:
        pieces = [(int(row["step"]), float(row[KPI])) for row in csv.DictReader(file)]
    return {**policies, "greedy": of_greedy(checkpoints / "last.ckpt"), "pieces": pieces}


def difference(results: list[Result], kind: str) -> tuple[float, float]:
    """Mean of the differences from greedy, and half the width of its 95% interval, over episodes of the seeds' mean."""
    policies = np.mean([result[kind] for result in results], axis=0)
    paired = (policies - np.array(results[0]["greedy"])).tolist()
    return statistics.fmean(paired), 1.96 * statistics.stdev(paired) / math.sqrt(len(paired))


def draw(table: dict[str, dict[str, list[Result]]], path: Path) -> None:
    """One panel for each instance: the returns of evaluations during training, mean and range over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(VARIANTS), figsize=(11, 4.2), layout="constrained")
    colors = {
        "masked": "tab:blue",
        "masked, pointer network": "tab:green",
        "structured": "tab:orange",
        "flat": "tab:red",
    }
    for axis, instance in zip(axes, VARIANTS, strict=True):
        for variant, results in table[instance].items():
            steps = [step / 1000 for step, _ in results[0]["curve"]]
            returns = np.array([[value for _, value in result["curve"]] for result in results])
            axis.plot(steps, returns.mean(0), color=colors[variant], label=variant, marker="o", markersize=3)
            axis.fill_between(steps, returns.min(0), returns.max(0), color=colors[variant], alpha=0.2, linewidth=0)
        greedy = greedy_mean(table[instance]["masked"])
        axis.axhline(-31, color="black", linewidth=0.8, linestyle="--", label="optimum")
        axis.axhline(-greedy, color="gray", linewidth=0.8, linestyle=":", label="greedy")
        axis.set_yscale("symlog", linthresh=30)
        ticks = [-30, -40, -50, -70, -100, -150, -200, -300]
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.set_ylim(-300, -28)
        axis.minorticks_off()
        axis.set_title(instance)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.supxlabel("thousand env steps")
    figure.supylabel("return of sampled actions")
    figure.savefig(path, format="png", dpi=110)
    pyplot.close(figure)


def section(again: bool) -> tuple[str, list[str]]:
    """The section of docs/results.md, and the results that were not reached; trains missing runs."""
    table: dict[str, dict[str, list[Result]]] = {}
    for instance, variants in VARIANTS.items():
        for variant, (config, options) in variants.items():
            runs = [train(config, seed, again, options, judge) for seed in range(N_SEEDS)]
            table.setdefault(instance, {})[variant] = runs
            print(f"cutting-2D, {instance}, {variant}: {means(runs, 'best')} raw pieces", flush=True)
    of_mixed: dict[str, list[Result]] = {}
    for variant, config in MIXED.items():
        of_mixed[variant] = [train(config, seed, again, [], judge) for seed in range(N_SEEDS)]
    mixed = of_mixed["masked"]
    draw(table, DOCS / "results" / "cutting_2d.png")
    rows, missed = [], []
    for instance, variants in {**table, "mixed": of_mixed}.items():
        for variant, runs in variants.items():
            required = REQUIRED.get(instance) if variant.startswith("masked") else None
            reached = statistics.fmean(statistics.fmean(run["best"]) for run in runs)
            if required is not None and reached > required:
                missed.append(f"cutting-2D {instance}: {reached:.2f} raw pieces, at most {required}")
            cells = [instance, variant, f"{runs[0]['env_steps']:,}", f"{reached:.2f}", means(runs, "best")]
            cells += [means(runs, "last"), str(RANDOM[instance]), f"{greedy_mean(runs):.1f}", str(required or "")]
            rows.append(f"| {' | '.join(cells)} |")
    mean, half = difference(mixed, "best")
    if mean + half >= 0:
        missed.append(f"cutting-2D mixed: {mean:+.2f} raw pieces to greedy, 95% interval of +-{half:.2f}")
    each = ", ".join("{:+.2f} ± {:.2f}".format(*difference([run], "best")) for run in mixed)
    text = TEXT.format(
        rows="\n".join(rows), n=N_EPISODES, mean=mean, half=half, greedy=greedy_mean(mixed), bound=AREA_BOUND, each=each
    )
    return text, missed


def greedy_mean(runs: list[Result]) -> float:
    return statistics.fmean(runs[0]["greedy"])


def means(runs: list[Result], kind: str) -> str:
    return ", ".join(f"{statistics.fmean(run[kind]):.2f}" for run in runs)


TEXT = """## Cutting-2D

Number of raw pieces that a policy uses in an episode with sampled actions: the mean of {n} episodes, the same for \
all. **Best** is the mean over the seeds for `best.ckpt`; then follow the means of each seed for `best.ckpt` and \
`last.ckpt`. An invalid cut serves no order, so variants without masks may use few pieces and still be bad; their \
returns are shown in the figure below.

| instance | variant | env steps | best | seeds | last, seeds | random valid cuts | greedy | at most |
|---|---|--:|--:|:--|:--|--:|--:|--:|
{rows}

On *mixed* the greedy policy uses {greedy:.2f} in these episodes, and the area bound is about {bound}. The \
difference from greedy in the same episodes, with its 95% interval: **{mean:+.2f} ± {half:.2f}** (each seed: {each}).

![Return over env steps for the masked, structured and flat variants](results/cutting_2d.png)

Experiments on *mixed*: [results/cutting_2d.md](results/cutting_2d.md).
"""


def main() -> None:
    text, missed = section(again=False)
    print(text)
    if missed:
        raise SystemExit("not reached: " + ", ".join(missed))


if __name__ == "__main__":
    main()

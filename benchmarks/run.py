"""Comparison of maze_pl with other libraries on the same workloads, as medians and ratios over interleaved runs.

The machine's speed changes from minute to minute: only ratios of interleaved runs are meaningful. Each run is a
separate process, with one thread unless stated otherwise. By default the main workloads are measured against
stable-baselines3 and printed, which takes about 25 minutes; `--all` measures every workload against every library and
writes docs/benchmarks.md, which takes about 55; `--only` names parts of it. Sections of that page that are not measured
stay, such as those on GPUs.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REPORT = FOLDER.parent / "docs" / "benchmarks.md"
PEERS = ("stable-baselines3", "tianshou", "torchrl")
VERSIONS = ("maze-pl", *PEERS, "torch", "pytorch-lightning", "gymnasium", "numpy")


@dataclass(frozen=True)
class Contender:
    """Implementation of a workload by a library."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload:
    """The same work, done by several contenders."""

    name: str
    contenders: tuple[Contender, ...]
    arguments: tuple[str, ...] = ()
    env_steps: dict[str, int] = field(default_factory=dict)  # of contenders with less work than the others
    is_short: bool = False  # measured by default


def _peers() -> tuple[Contender, ...]:
    return tuple(Contender(name, f"{name.replace('-', '_')}_cartpole.py") for name in PEERS)


OURS = "maze_pl_cartpole.py"
REFERENCE = "stable-baselines3"
SLOW = {"tianshou": 40_000, "torchrl": 40_000}
WORKLOADS = (
    Workload(
        "W1: PPO, CartPole-v1, 8 environments x 100 steps, 4 epochs of minibatches of 100",
        (
            Contender("maze_pl", OURS),
            Contender("maze_pl, custom modules, capture off", OURS, ("--networks", "user", "--capture", "off")),
            *_peers(),
        ),
        ("--algorithm", "ppo", "--env_steps", "400000"),
        {"stable-baselines3": 100_000, **SLOW},
        is_short=True,
    ),
    Workload(
        "W2: A2C, CartPole-v1, 8 environments x 100 steps",
        (Contender("maze_pl", OURS), Contender("maze_pl, custom modules", OURS, ("--networks", "user")), *_peers()),
        ("--algorithm", "a2c", "--env_steps", "400000"),
        {"stable-baselines3": 200_000, **SLOW},
        is_short=True,
    ),
    Workload(
        "W2: A2C, CartPole-v1, 8 environments x 5 steps",
        (Contender("maze_pl", OURS), Contender("maze_pl, custom modules", OURS, ("--networks", "user")), *_peers()),
        ("--algorithm", "a2c", "--n_rollout_steps", "5", "--env_steps", "200000"),
        {"stable-baselines3": 100_000, "tianshou": 10_000, "torchrl": 10_000},
        is_short=True,
    ),
    Workload(
        "W4: IMPALA, CartPole-v1, batches of 8 trajectories of 100 steps; compared to W1 of stable-baselines3",
        (
            Contender("maze_pl", "impala.py"),
            Contender("maze_pl, two local processes", "impala.py", ("--n_workers", "2")),
            Contender(REFERENCE, "stable_baselines3_cartpole.py", ("--algorithm", "ppo", "--env_steps", "100000")),
        ),
    ),
    Workload(
        "W5: evolution strategies, CartPole-v1, 10 rollouts per update; compared to W1 of stable-baselines3",
        (
            Contender("maze_pl", "evolution.py"),
            Contender(
                "maze_pl, 1,024 rollouts per update in arrays",
                "evolution.py",
                ("--arrays", "--n_rollouts", "1024", "--updates", "20"),
            ),
            Contender(REFERENCE, "stable_baselines3_cartpole.py", ("--algorithm", "ppo", "--env_steps", "100000")),
        ),
    ),
    Workload(
        "W7: PPO with its defaults, cutting-2D masked, 8 environments; compared to W1 of stable-baselines3",
        (
            Contender("maze_pl", "maze_pl_cutting_2d.py", ("--env_steps", "200000")),
            Contender("maze_pl, capture off", "maze_pl_cutting_2d.py", ("--env_steps", "100000", "--capture", "off")),
            Contender(REFERENCE, "stable_baselines3_cartpole.py", ("--algorithm", "ppo", "--env_steps", "100000")),
        ),
        is_short=True,
    ),
    Workload(
        "W8: rollouts of a random policy, CartPole-v1, one process; compared to W1 of stable-baselines3",
        (
            Contender("maze_pl", "rollouts.py"),
            Contender("maze_pl, event logs", "rollouts.py", ("--record", "events")),
            Contender("maze_pl, trajectories (states, one file)", "rollouts.py", ("--record", "states")),
            Contender("maze_pl, trajectories (spaces, one file)", "rollouts.py", ("--record", "spaces")),
            Contender(REFERENCE, "stable_baselines3_cartpole.py", ("--algorithm", "ppo", "--env_steps", "100000")),
        ),
    ),
)


def measure(contender: Contender, workload: Workload, seed: int) -> dict[str, float]:
    """Printed result of one run."""
    command = [sys.executable, "-W", "ignore", str(FOLDER / contender.script), *workload.arguments]
    command += [*contender.arguments, "--seed", str(seed)]
    if contender.name in workload.env_steps:
        command += ["--env_steps", str(workload.env_steps[contender.name])]
    return last_line(command)


def last_line(command: list[str]) -> dict[str, float]:
    """The line of JSON with which a command ends."""
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return dict(json.loads(result.stdout.strip().splitlines()[-1]))


def first_training_step(networks: str) -> float:
    """Seconds from the start of a `maze-pl fit` to the end of its first training step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "maze_pl", "fit", "--config", networks, "--run_dir", f"{folder}/run"]
        command += ["--trainer.callbacks+=first_step.FirstStep", "--trainer.max_epochs", "1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER)}
        began = time.time()
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        said = [line for line in result.stdout.splitlines() if line.startswith("first training step at ")]
        if not said:
            raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
        return float(said[0].rpartition(" ")[2]) - began


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])], *rows]
    text = []
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def training(repetitions: int, is_short: bool) -> str:
    """Sections on training, one for each workload.

    Args:
        repetitions: Number of runs of each contender.
        is_short: Leave out workloads that are not marked as short, and libraries other than the reference.
    """
    sections = []
    for workload in WORKLOADS:
        if is_short and not workload.is_short:
            continue
        left_out = set(PEERS) - {REFERENCE} if is_short else set()
        contenders = [contender for contender in workload.contenders if contender.name not in left_out]
        results: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in contenders}
        for seed in range(repetitions):
            for contender in contenders:
                progress(f"{workload.name}: {contender.name}, {seed + 1} of {repetitions}")
                results[contender.name].append(measure(contender, workload, seed))
        rows = []
        for name, runs in results.items():
            row = [name]
            for key, form in (("env_steps_per_second", "{:,.0f}"), ("peak_megabytes", "{:.0f}")):
                ratios = [run[key] / other[key] for run, other in zip(runs, results[REFERENCE], strict=True)]
                row += [form.format(statistics.median(run[key] for run in runs)), f"{statistics.median(ratios):.2f}"]
            rows.append(row)
        header = ["", "env steps/s", "ratio", "peak memory in MB", "ratio"]
        sections.append(f"## {workload.name}\n\n{table(header, rows)}")
    return "\n\n".join(sections)


def outputs(script: str, repetitions: int) -> list[dict[str, float]]:
    """Measurements of several runs of a script of this folder."""
    runs = []
    for repetition in range(repetitions):
        progress(f"{script}, {repetition + 1} of {repetitions}")
        runs.append(last_line([sys.executable, "-W", "ignore", str(FOLDER / script)]))
    return runs


def environments(repetitions: int) -> str:
    """The section on environment steps."""
    runs = outputs("env_step.py", repetitions)
    names = list(runs[0])
    rows = []
    for name in names:
        microseconds = statistics.median(run[name] for run in runs)
        ratio = statistics.median(run[name] / run[names[0]] for run in runs)
        rows.append([name, f"{microseconds:.2f}", f"{ratio:.2f}"])
    header = ["", "microseconds", "ratio to bare"]
    return f"## W0: one environment step, CartPole-v1\n\n{table(header, rows)}"


def events(repetitions: int) -> str:
    """The section on events."""
    runs = outputs("events.py", repetitions)
    rows = [[name, f"{statistics.median(run[name] for run in runs):.2f}"] for name in runs[0]]
    return f"## Events and statistics, processor time\n\n{table(['', 'microseconds'], rows)}"


def wrappers(repetitions: int) -> str:
    """The section on wrappers."""
    runs = outputs("wrappers.py", repetitions)
    rows = []
    for name in (names := list(runs[0])):
        more = statistics.median(run[name] - run[names[0]] for run in runs)
        rows.append([name, f"{statistics.median(run[name] for run in runs):.2f}", f"{more:.2f}"])
    header = ["", "microseconds", "more than bare"]
    return f"## Wrappers: one environment step, CartPole-v1, processor time\n\n{table(header, rows)}"


def networks(repetitions: int) -> str:
    """The section on networks."""
    runs = outputs("networks.py", repetitions)
    rows = []
    for name in runs[0]:
        blocks, by_hand, ratio = (
            statistics.median(column) for column in zip(*(run[name] for run in runs), strict=True)
        )
        rows.append([name, f"{blocks:,.0f}", f"{by_hand:,.0f}", f"{ratio:.2f}"])
    header = ["", "graph of blocks", "by hand", "ratio"]
    title = "## Networks: graphs of blocks and the same in plain PyTorch, microseconds of processor time"
    return f"{title}\n\n{table(header, rows)}"


def decisions(repetitions: int) -> str:
    """The section on decisions in deployment."""
    runs = outputs("decisions.py", repetitions)
    rows = [[name, f"{statistics.median(run[name] for run in runs):.2f}"] for name in runs[0]]
    title = "## W13: one decision in deployment, CartPole-v1, networks of 64 x 64"
    note = "Quotients are what `AgentDeployment.act` takes without its wrappers, over `act` of the agent."
    return f"{title}\n\n{note}\n\n{table(['', 'microseconds'], rows)}"


def bundles(repetitions: int) -> str:
    """The section on decisions of bundles."""
    runs = outputs("bundles.py", repetitions)
    rows = [[name, f"{statistics.median(run[name] for run in runs):.1f}"] for name in runs[0]]
    title = "## W14: one decision of a bundle, CartPole-v1, networks of 64 x 64, processor time"
    return f"{title}\n\n{table(['', 'microseconds'], rows)}"


def engines(repetitions: int) -> str:
    """The section on local processes."""
    runs = outputs("engines.py", repetitions)
    rows = [[name, f"{statistics.median(run[name] for run in runs):.2f}"] for name in runs[0]]
    title = "## Engines: A2C in 8 environments whose steps take 2 ms of the processor's time, env steps/s"
    return f"{title}\n\n{table(['', 'env steps/s'], rows)}"


def trajectories(repetitions: int) -> str:
    """The section on loading recorded episodes."""
    runs = outputs("trajectories.py", repetitions)
    rows = []
    for name in runs[0]:
        ours, numpy, ratio = (statistics.median(column) for column in zip(*(run[name] for run in runs), strict=True))
        rows.append([name, f"{ours:.1f}", f"{numpy:.1f}", f"{ratio:.2f}"])
    title = "## Loading 1,000 episodes of 500 steps of LunarLander, milliseconds of processor time"
    return f"{title}\n\n{table(['', 'InMemoryDataset', 'numpy.fromfile', 'ratio'], rows)}"


def cloning(repetitions: int) -> str:
    """The section on behavioural cloning; the other library is left out where it could not be installed."""
    contenders = {"maze_pl": (sys.executable, "maze_pl_cloning.py")}
    if (python := FOLDER.parent / ".venv-imitation" / "bin" / "python").exists():
        contenders["imitation"] = (str(python), "imitation_cloning.py")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as folder:
        last_line([sys.executable, "-W", "ignore", str(FOLDER / "maze_pl_cloning.py"), folder, "--record"])
        for seed in range(repetitions):
            for name, (python_of, script) in contenders.items():
                progress(f"W6: {name}, {seed + 1} of {repetitions}")
                command = [python_of, "-W", "ignore", str(FOLDER / script), folder, "--seed", str(seed)]
                runs[name].append(last_line(command))
    rows = []
    for name, own in runs.items():
        row = [name]
        for key in ("samples_per_second", "peak_megabytes"):
            ratios = [run[key] / other[key] for run, other in zip(own, list(runs.values())[-1], strict=True)]
            row += [f"{statistics.median(run[key] for run in own):,.0f}", f"{statistics.median(ratios):.2f}"]
        rows.append(row)
    header = ["", "samples/s", "ratio", "peak memory in MB", "ratio"]
    title = "## W6: behavioural cloning, CartPole-v1, 25,000 steps, 4 epochs of batches of 100, loading included"
    return f"{title}\n\nProcessor time; ratios to {list(runs)[-1]}.\n\n{table(header, rows)}"


def soft_actor_critic(repetitions: int, n_threads: tuple[int, ...]) -> str:
    """Section on SAC, with one update or 32 after as many steps.

    Args:
        repetitions: Number of runs of each contender.
        n_threads: Numbers of threads to measure with.
    """
    command, rows = [sys.executable, "-W", "ignore", str(FOLDER / "soft_actor_critic.py")], []
    for threads in n_threads:
        for updates in (1, 32):
            runs: dict[str, list[dict[str, float]]] = {"maze_pl": [], REFERENCE: []}
            for seed in range(repetitions):
                for library, own in runs.items():
                    progress(f"W3: {library}, {updates} updates, {threads} threads, {seed + 1} of {repetitions}")
                    options = {"library": library, "updates": updates, "threads": threads, "seed": seed}
                    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
                    own.append(last_line([*command, *given]))
            ours, theirs = ([run["updates_per_second"] for run in own] for own in runs.values())
            ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
            share = statistics.median(run["lightning_share"] for run in runs["maze_pl"])
            rates = [f"{statistics.median(one):.1f}" for one in (ours, theirs)]
            name = f"{updates} update{'s' * (updates > 1)} a batch, {threads} thread{'s' * (threads > 1)}"
            rows.append([name, *rates, f"{ratio:.2f}", f"{share:.2f}"])
    header = ["", "maze_pl", REFERENCE, "ratio", "to a bare loop"]
    title = "## W3: SAC, Pendulum-v1, batches of 256, networks of 256 x 256, updates/s"
    text = (
        "The last column is the time of a batch in the Trainer, relative to a bare loop that only collects, samples "
        "and updates."
    )
    return f"{title}\n\n{text}\n\n{table(header, rows)}"


def deep_q(repetitions: int) -> str:
    """Section on DQN and TD3, with one update or 32 after as many steps.

    Args:
        repetitions: Number of runs of each contender.
    """
    command, rows = [sys.executable, "-W", "ignore", str(FOLDER / "deep_q.py")], []
    for algorithm in ("dqn", "td3"):
        for updates in (1, 32):
            runs: dict[str, list[float]] = {"maze_pl": [], REFERENCE: []}
            for seed in range(repetitions):
                for library, own in runs.items():
                    progress(f"W9: {algorithm}, {library}, {updates} updates, {seed + 1} of {repetitions}")
                    options = {"algorithm": algorithm, "library": library, "updates": updates, "seed": seed}
                    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
                    own.append(last_line([*command, *given])["updates_per_second"])
            ours, theirs = runs.values()
            ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
            rates = [f"{statistics.median(one):.1f}" for one in (ours, theirs)]
            rows.append([f"{algorithm.upper()}, {updates} update{'s' * (updates > 1)} a batch", *rates, f"{ratio:.2f}"])
    title = "## W9: DQN, CartPole-v1, 64 x 64, batches of 64; TD3, Pendulum-v1, 256 x 256, batches of 256; updates/s"
    text = (
        "Per second of processor time. With one update a batch, half of the time of DQN goes into the Trainer's "
        f"loop and into a rollout of a single step, which {REFERENCE} does with less code; TD3's larger networks "
        "hide it."
    )
    return f"{title}\n\n{text}\n\n{table(['', 'maze_pl', REFERENCE, 'ratio'], rows)}"


def uneven_acts(repetitions: int) -> str:
    """Section on traced updates where minibatches have different numbers of acts of each sub-step.

    Args:
        repetitions: Number of runs of each contender.
    """
    rows = []
    for env, name in {"inspection": "episodes that end between two sub-steps", "cutting_2d": "cutting-2D"}.items():
        progress(f"W16: updates of PPO, {env}")
        command = [sys.executable, "-W", "ignore", str(FOLDER / "uneven_acts.py")]
        figures = last_line([*command, "--env", env, "--rounds", str(repetitions)])
        rows.append([name, *(f"{figures[column]:.2f}" for column in ("auto", "off", "ratio"))])
    header = ["", "traced", "eager", "ratio"]
    title = "## W16: PPO with two sub-steps, 8 environments x 100 steps, milliseconds of an update"
    text = (
        "Processor time. The first environment ends most episodes between two sub-steps, so that numbers of acts "
        "differ between minibatches; those of cutting-2D are even. Ratios are those of eager to traced updates."
    )
    return f"{title}\n\n{text}\n\n{table(header, rows)}"


def arrays(repetitions: int) -> str:
    """Sections on environments in arrays.

    Args:
        repetitions: Number of runs of each contender.
    """
    sequential = ("--form", "sequential", "--n_envs", "8", "--n_rollout_steps", "100", "--rollouts", "26")
    large = ("--n_envs", "4096", "--n_rollout_steps", "32", "--units", "256", "--rollouts", "4")
    groups = {
        "W11: PPO, CartPole in arrays, 1,024 environments x 64 steps, 4 epochs of 8 minibatches": (
            Contender("maze_pl", "array_cartpole.py"),
            Contender("plain PyTorch loop", "array_cartpole.py", ("--contender", "plain")),
            Contender(f"{REFERENCE}, W1", "stable_baselines3_cartpole.py", ("--env_steps", "30000")),
        ),
        "W11 with large matrices: 4,096 environments x 32 steps, networks of 256 x 256": (
            Contender("two threads", "array_cartpole.py", (*large, "--threads", "2")),
            Contender("one thread", "array_cartpole.py", large),
        ),
        "W12: PPO, cutting-2D masked and structured, 256 environments x 64 steps, 4 epochs of 8 minibatches": (
            Contender("in arrays", "array_cutting_2d.py"),
            Contender("one after the other", "array_cutting_2d.py", ("--form", "sequential", "--rollouts", "4")),
            Contender("one after the other, 8 x 100 (W7)", "array_cutting_2d.py", sequential),
        ),
    }
    text = (
        "The last column divides the figure of the first row by that of the row. maze_pl runs with all statistics, and "
        "makes the C library keep freed memory."
    )
    sections = []
    for title, contenders in groups.items():
        runs: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for seed in range(repetitions):
            for contender in contenders:
                progress(f"{title}: {contender.name}, {seed + 1} of {repetitions}")
                command = [sys.executable, "-W", "ignore", str(FOLDER / contender.script), *contender.arguments]
                runs[contender.name].append(last_line([*command, "--seed", str(seed)])["env_steps_per_second"])
        ours = runs[contenders[0].name]
        rows = []
        for name, own in runs.items():
            ratio = statistics.median(one / other for one, other in zip(ours, own, strict=True))
            rows.append([name, f"{statistics.median(own):,.0f}", f"{ratio:.2f}"])
        sections.append(f"## {title}\n\n{text}\n\n{table(['', 'env steps/s', 'first row to this one'], rows)}")
    return "\n\n".join([*sections, array_steps(repetitions)])


def array_steps(repetitions: int) -> str:
    """Section on single steps of environments in arrays."""
    steps = outputs("array_step.py", repetitions)
    rows = [[f"{int(n):,}", f"{statistics.median(run[n] for run in steps):.2f}"] for n in steps[0]]
    title = "## A step of CartPole in arrays, with checks and statistics, relative to the bare one, processor time"
    text = (
        "Episodes end and start in both. The bare environment hashes the seeds of the episodes that start in a step, "
        "while data modules hash those of many episodes at once."
    )
    return f"{title}\n\n{text}\n\n{table(['environments', 'ratio'], rows)}"


def start(repetitions: int) -> str:
    """The section on the start-up time of a command."""
    progress("W10: from the command line to the first training step")
    seconds = [first_training_step("ppo_cartpole") for _ in range(repetitions + 1)][1:]  # the first one reads the disk
    return (
        "## W10: from the command line to the end of the first training step\n\n"
        f"`maze-pl fit --config ppo_cartpole`: {statistics.median(seconds):.1f} s"
    )


def progress(text: str) -> None:
    """Print progress to the standard error."""
    print(text, file=sys.stderr, flush=True)


def header(repetitions: int, command: str) -> str:
    """Title, method and versions."""
    cores, python = os.cpu_count(), platform.python_version()
    names = [name for name in VERSIONS if importlib.util.find_spec(name.replace("-", "_"))]
    installed = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return (
        "# Benchmarks\n\n"
        f"Measured by `{command}`. Medians of {repetitions} interleaved runs each, one thread each; ratios to "
        f"{REFERENCE} are medians over the repetitions. maze_pl runs through its public API with all statistics "
        "enabled. Sections have the dates of their last measurements.\n\n"
        f"The last one was on {cores} virtual cores with Python {python}; {installed}."
    )


SHORT_REPORT: dict[str, Callable[[int], str]] = {
    "training": partial(training, is_short=True),
    "environments": environments,
    "decisions": decisions,
    "bundles": bundles,
    "soft_actor_critic": partial(soft_actor_critic, n_threads=(1,)),
    "arrays": arrays,
    "start": start,
}
WHOLE_REPORT: dict[str, Callable[[int], str]] = {
    "training": partial(training, is_short=False),
    "environments": environments,
    "decisions": decisions,
    "bundles": bundles,
    "events": events,
    "wrappers": wrappers,
    "networks": networks,
    "trajectories": trajectories,
    "engines": engines,
    "cloning": cloning,
    "soft_actor_critic": partial(soft_actor_critic, n_threads=(1, 2)),
    "deep_q": deep_q,
    "start": start,
    "uneven_acts": uneven_acts,
    "arrays": arrays,
}


def sections_of(text: str) -> dict[str, str]:
    """Title -> section, for the sections of a text."""
    parts = f"\n{text}".split("\n## ")[1:]
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in parts}


def dated(section: str) -> str:
    """A section with the date of today below its title."""
    title, _, rest = section.partition("\n\n")
    version = importlib.metadata.version("maze-pl")
    return f"{title}\n\nMeasured on {datetime.date.today()} with maze-pl {version}.\n\n{rest}"


def write_report(new_header: str, sections: dict[str, str]) -> None:
    """Write docs/benchmarks.md; sections that it has besides the given ones stay."""
    known = sections_of(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    merged = {**known, **{title: dated(section) for title, section in sections.items()}}
    REPORT.parent.mkdir(exist_ok=True)
    temporary = REPORT.with_suffix(".part")
    temporary.write_text("\n\n".join([new_header, *merged.values()]) + "\n", encoding="utf-8")
    temporary.replace(REPORT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each contender (default: 3)")
    parser.add_argument("--all", action="store_true", help="every workload and library; writes docs/benchmarks.md")
    parser.add_argument("--only", nargs="+", choices=list(WHOLE_REPORT), help="parts to measure (default: all of them)")
    options = parser.parse_args()
    parts = WHOLE_REPORT if options.all else SHORT_REPORT
    print(new_header := header(options.repetitions, "make bench-all" if options.all else "make bench"))
    for name, part in parts.items():
        if options.only and name not in options.only:
            continue
        text = part(options.repetitions)
        print(f"\n{text}", flush=True)
        if options.all:  # at once, so that a later failure loses nothing
            write_report(new_header, sections_of(text))


if __name__ == "__main__":
    main()

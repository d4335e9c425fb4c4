"""Trains the four agents that the tutorial's last page compares, and writes its table and its picture (ten minutes).

python docs/tutorial/compare.py [FOLDER]     FOLDER keeps the project and its runs; what is there is not repeated
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas
from matplotlib.figure import Figure

TUTORIAL = Path(__file__).parent
sys.path.insert(0, str(TUTORIAL.parents[1]))

from tests.documentation import write_files  # noqa: E402

STEPS = (20_000, 40_000, 60_000, 100_000, 200_000)
AGENTS = {
    "one decision": "env/cutting",
    "two decisions": "env/cutting_struct",
    "two decisions, masks": "env/cutting_masked",
    "two decisions, masks, a network that fits": (
        "env/cutting_masked --model.networks model/tutorial_cutting_2d_struct_masked"
    ),
}


def main(folder: Path) -> None:
    """Train what is missing, and write both."""
    for page in sorted(TUTORIAL.glob("*.md")):
        write_files(page.read_text(encoding="utf-8"), folder)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    rows = []
    for index, (agent, options) in enumerate(AGENTS.items()):
        run = folder / "outputs" / f"agent_{index}"
        if not (run / "metrics.csv").exists():
            command = f"maze-pl fit --config ppo_cutting --run_dir {run} --data.env {options}"
            subprocess.run(
                [sys.executable, "-m", *command.replace("maze-pl", "maze_pl").split()], cwd=folder, check=True
            )
        table = pandas.read_csv(run / "metrics.csv").set_index("step")
        returns = table["eval_BaseEnvEvents/reward/mean"].dropna()
        axes.plot(returns.index / 1000, returns, label=agent, marker=".")
        rows.append(f"| {agent} | {' | '.join(f'{returns[step]:.1f}' for step in STEPS)} |\n")
    axes.axhline(-31, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="thousand environment steps", ylabel="return of 20 episodes", ylim=(-85, -28))
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(TUTORIAL / "curves.png", dpi=90)
    head = f"| agent | after {' | '.join(f'{step:,}' for step in STEPS)} |\n|---|{'--:|' * len(STEPS)}\n"
    page = TUTORIAL / "10_results.md"
    text = re.sub(
        r"^\| agent \|.*\n(\|.*\n)+", head + "".join(rows), page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())

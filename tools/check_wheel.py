"""Installs the wheel into empty environments with the newest and the lowest allowed dependencies, and uses it.

    python tools/check_wheel.py --python python3.11 python3.13 --versions lowest newest

Each environment is made in a temporary folder and removed afterwards. The commands run in an empty folder, from which
nothing of the checkout can be imported. The exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import email.parser
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "maze-pl --version --verbose",
    "maze-pl list",
    "maze-pl fit --config ppo_cartpole --trainer.max_epochs 2 --run_dir trained",
    "maze-pl fit --resume trained --trainer.max_epochs 3",
    "maze-pl validate trained",
    "maze-pl rollout trained --n_episodes 2 --output_dir played",
    "maze-pl rollout --env env/gym_env --env.name CartPole-v1 --policy random --n_episodes 2 --output_dir random",
    "maze-pl show trained",
    "maze-pl fit --config sac_pendulum --trainer.max_epochs 1 --data.epoch_length 2 --data.initial_buffer_size 300",
    "maze-pl new shop",
)


@dataclass
class Check:
    """Outcome of one environment.

    Attributes:
        python: Version of Python.
        versions: "newest" or "lowest".
        installed: Versions of the direct dependencies.
        failure: The step that failed with the end of its output; empty if all worked.
        seconds: Duration.
    """

    python: str
    versions: str
    installed: str
    failure: str
    seconds: float


def lowest_versions(wheel: Path, python: str) -> list[str]:
    """Constraints that pin each direct dependency to its lower bound, such as `torch==2.6`.

    Args:
        wheel: The wheel, whose metadata names the dependencies.
        python: Version of Python such as `3.11`, for requirements that depend on it.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    lowest: dict[str, Version] = {}
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"python_version": python, "extra": ""}):
            continue
        bounds = [Version(bound.version) for bound in requirement.specifier if bound.operator == ">="]
        lowest[requirement.name] = max([*bounds, lowest.get(requirement.name, Version("0"))])
    return [f"{name}=={version}" for name, version in lowest.items()]


def run(command: list[str], folder: Path) -> str:
    """Run a command to its end, and return its output.

    Raises:
        RuntimeError: It failed; the message ends with its output.
    """
    result = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}\nexit status {result.returncode}\n{result.stdout[-3000:]}")
    return result.stdout


def check(python: str, versions: str, wheel: Path, folder: Path) -> Check:
    """Install the wheel into a new environment in a folder, and run the commands there."""
    began = time.monotonic()
    number = run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], folder).strip()
    binaries, work = folder / "environment" / "bin", folder / "work"
    work.mkdir()
    installed = failure = ""
    try:
        run([python, "-m", "venv", str(folder / "environment")], folder)
        pins = lowest_versions(wheel, number) if versions == "lowest" else []
        run([str(binaries / "python"), "-m", "pip", "install", "--quiet", str(wheel), *pins], work)
        run([str(binaries / "python"), "-m", "pip", "check"], work)
        for command in COMMANDS:
            name, *options = command.split()
            print(f"  {command}", flush=True)
            output = run([str(binaries / name), *options], work)
            if "--version" in options:
                listed = output.partition("extra ")[0].splitlines()[2:]
                installed = ", ".join(line.strip() for line in listed)
        run([str(binaries / "maze-pl"), "fit", "--config", "ppo_stock", "--trainer.max_epochs", "1"], work / "shop")
    except RuntimeError as error:
        failure = str(error)
        print(failure, flush=True)
    return Check(number, versions, installed, failure, time.monotonic() - began)


def build(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], CHECKOUT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Check all combinations, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters: names or paths")
    parser.add_argument("--versions", nargs="+", default=["lowest", "newest"], choices=["lowest", "newest"])
    options = parser.parse_args()
    missing = [python for python in options.python if not shutil.which(python)]
    if missing:
        parser.error(f"no such interpreter: {', '.join(missing)}; give names on the PATH or paths")
    checks = []
    with tempfile.TemporaryDirectory() as base:
        wheel = build(Path(base))
        for python in options.python:
            for versions in options.versions:
                print(f"{python}, {versions} versions", flush=True)
                with tempfile.TemporaryDirectory(dir=base) as folder:
                    checks.append(check(python, versions, wheel, Path(folder)))
    for done in checks:
        outcome = "failed" if done.failure else "works"
        print(f"Python {done.python}, {done.versions}: {outcome} after {done.seconds:.0f} s; {done.installed}")
    return int(any(done.failure for done in checks))


if __name__ == "__main__":
    sys.exit(main())

"""Runs what pages of documentation show: files are written, programs and commands run, outputs compared or renewed.

A page is Markdown. Of its fenced blocks

- one whose first line is `# file: PATH` is written there, in the folder in which the page is run; a ```diff block says
  what to change in a file that is there, with parts separated by lines that begin with `@@`;
- the other ```python blocks run one after the other, in one namespace;
- of ```console blocks the lines that start with `maze-pl`, `maze-run`, `python` or `cd` run, in a shell;
- a ```text block that directly follows a program or commands is their output. `...` stands for anything, alone on a
  line for any lines. After `<!-- numbers vary -->` (before it, or before the program) numbers may differ, such as
  times, or what training reaches.

Pages with blocks after `<!-- slow -->` are left to the slow tests. Of trainings after `<!-- long -->` only the
configuration is assembled, in the slow tests too.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType

COMMANDS = ("maze-pl ", "maze-run ", "cd ", "python ")
_FENCE = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# file: (\S+)\n")
_NUMBER = re.compile(r"(?<!epoch )[-+]?\b\d[\d,_]*(\.\d+)?(e[-+]?\d+)?(?![|\d])")  # but those of epochs


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: The word after the fence.
        text: What it holds.
        start: Where `text` starts in the page.
        end: Where the block ends, with its closing fence.
        marks: Comments before it.
    """

    kind: str
    text: str
    start: int
    end: int
    marks: str

    @property
    def file(self) -> str | None:
        """Path of the file that the block is the content of."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def content(self) -> str:
        """The file's content: all but the line that names it."""
        return _FILE.sub("", self.text, count=1)

    @property
    def is_run(self) -> bool:
        """Whether the block is a program or commands."""
        return self.file is None and self.kind in ("python", "console")

    @property
    def is_slow(self) -> bool:
        """Whether the block leaves its page to the slow tests."""
        return "slow" in self.marks or self.is_long

    @property
    def is_long(self) -> bool:
        """Whether the block is a training that takes too long for any test."""
        return "long" in self.marks


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(m[2], m[3], m.start(3), m.end(), m[1]) for m in _FENCE.finditer(page)]


def output_of(page: str, found: list[Block], index: int) -> Block | None:
    """The block that shows the output of another one, if any does."""
    following = found[index + 1] if index + 1 < len(found) else None
    if following is None or following.kind != "text" or not found[index].is_run:
        return None
    between = page[found[index].end : following.start].removesuffix("```text\n").removesuffix(following.marks)
    return following if not between.strip() else None


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page shows, without running anything."""
    for block in blocks(page):
        if block.file:
            _write(block, folder)


def _write(block: Block, folder: Path) -> None:
    assert block.file is not None
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".py":
        (path.parent / "__init__.py").touch()
    text = _changed(path, block.content) if block.kind == "diff" else block.content
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)  # which may be as new, and of a file as long
    forget_modules(folder)


def _changed(path: Path, diff: str) -> str:
    """A file with a change that a page shows."""
    text = path.read_text(encoding="utf-8")
    for part in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        before = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
        after = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
        assert text.count(before) == 1, f"{text.count(before)} places in {path.name} read\n{before}"
        text = text.replace(before, after)
    return text


def forget_modules(folder: Path) -> None:
    """Let the modules of a folder be imported anew."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
            del sys.modules[name]


def run_page(path: Path, folder: Path, *, renew: bool = False) -> list[str]:
    """Do what a page shows, in a folder that is the current one and from which Python imports.

    Args:
        path: The page.
        folder: Where its files go.
        renew: Write what really came into the page, where it differs.

    Returns:
        For each output that is not what the page shows, what came and where.
    """
    page = path.read_text(encoding="utf-8")
    found, namespace, wrong, renewed = blocks(page), ModuleType("page"), [], []
    sys.modules["page"] = namespace  # dataclasses look themselves up there
    for index, block in enumerate(found):
        if block.file:
            _write(block, folder)
        if not block.is_run:
            continue
        line = page.count("\n", 0, block.start) + 1
        if block.kind == "python":
            output = _program(block.text, namespace, f"{path}", line)
        else:
            ending = " --print_config" if block.is_long else ""
            output = shell("\n".join(command + ending for command in commands(block.text)), Path.cwd())
        shown = output_of(page, found, index)
        if shown is None:
            continue
        numbers_vary = "numbers vary" in shown.marks + block.marks
        if renew:
            renewed.append((shown, renew_output(shown.text, output)))
        if not matches(renewed[-1][1] if renew else shown.text, output, numbers_vary):
            wrong.append(f"{path.name}, line {page.count(chr(10), 0, shown.start) + 1}: in truth it is\n{output}")
    for shown, text in reversed(renewed):
        page = page[: shown.start] + text + page[shown.start + len(shown.text) :]
    if renewed:
        path.write_text(page, encoding="utf-8")
    return wrong


def _program(text: str, namespace: ModuleType, page: str, line: int) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * (line - 1) + text, page, "exec"), vars(namespace))
    return output.getvalue()


def commands(text: str) -> list[str]:
    """The commands of a block that are run."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in (line.partition(" # ")[0].rstrip() for line in lines) if line.startswith(COMMANDS)]


@functools.cache
def warm_maze_pl() -> tuple[str, subprocess.Popen[str]]:
    """The folder of a `maze-pl` that need not import anything, and who serves it as long as this process lives."""
    folder = tempfile.mkdtemp()
    command = [sys.executable, "-P", str(Path(__file__).with_name("warm_maze_pl.py")), folder]
    kinds = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, cwd=folder, env=environment, text=True, **kinds)
    assert server.stdout is not None and server.stdout.readline() == "serving\n"
    return folder, server


def shell(script: str, folder: Path) -> str:
    """Run a shell script as a user does who has installed maze_pl, and return all that it says.

    Raises:
        AssertionError: A command of it failed.
    """
    path = os.pathsep.join([warm_maze_pl()[0], str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    kinds = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    result = subprocess.run(["bash", "-ec", script], cwd=folder, env=environment, text=True, check=False, **kinds)
    assert result.returncode == 0, f"{script}\nended with {result.returncode}:\n{result.stdout[-5000:]}"
    return str(result.stdout)


def _without_numbers(text: str) -> str:
    """What is left of a text when numbers, and the widths of columns, may be others."""
    return re.sub(r"([ =])\1+", r"\1", re.sub(r" +\|", "|", _NUMBER.sub("0", text)))


def matches(shown: str, output: str, numbers_vary: bool = False) -> bool:
    """Whether an output is as the page shows it."""
    pattern = ""
    if numbers_vary:
        shown, output = _without_numbers(shown), _without_numbers(output)
    for line in shown.splitlines():
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else _line(line) + r"\n"
    output = "".join(f"{line.rstrip()}\n" for line in output.rstrip().splitlines())
    return re.fullmatch(pattern, output) is not None


def _line(line: str) -> str:
    return re.escape(line.rstrip()).replace(re.escape("..."), ".*?")


def renew_output(shown: str, output: str) -> str:
    """What a page ought to show: of a selection of lines the same ones as far as they are there, otherwise all."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    if "..." not in shown:
        return "".join(f"{line}\n" for line in lines)
    renewed, position = [], 0
    for line in shown.splitlines():
        wanted = re.compile(_line(_without_numbers(line)))
        places = (i for i in range(position, len(lines)) if wanted.fullmatch(_without_numbers(lines[i])))
        place = None if line.strip() == "..." else next(places, None)
        if place is not None:
            position, line = place + 1, line if "..." in line else lines[place]
        renewed.append(f"{line}\n")
    return "".join(renewed)

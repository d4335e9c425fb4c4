"""`maze-pl serve`: answers requests for decisions over HTTP."""

import contextlib
import ipaddress
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from maze_pl.cli.command_options import OptionParser
from maze_pl.cli.served_source import TOKEN_VARIABLE, ServedSource, needs_export
from maze_pl.config.assembling import Prepared
from maze_pl.config.search_path import ConfigurationError
from maze_pl_runtime import BundleError


def run(arguments: Prepared, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.
        command: The command line as the user gave it.

    Returns:
        The exit status: 0, or 130 if INT ended it.

    Raises:
        ConfigurationError: There is nothing to serve, or options are wrong.
    """
    options = _parsed(command)
    token = _token(options.token_file)
    if token is None and not options.without_token and not _is_loopback(options.host):
        remedy = f"set {TOKEN_VARIABLE}, give --token_file FILE, or allow it by --without_token"
        raise ConfigurationError(f"--host {options.host} can be reached by others, but there is no token: {remedy}")
    with _noted_hangups() as hangups:
        return _served(options, token, hangups, debug=arguments.is_debugged)


@contextlib.contextmanager
def _noted_hangups() -> Iterator[list[int]]:
    """Note HUP signals during the start, which would otherwise end the process."""
    received: list[int] = []
    previous = signal.signal(signal.SIGHUP, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        signal.signal(signal.SIGHUP, previous)


def _served(options: Any, token: str | None, hangups: list[int], *, debug: bool) -> int:
    """Load what is to be served, serve it, and return the exit status.

    Args:
        options: Options of the command.
        token: Secret that requests must send; None for none.
        hangups: HUP signals so far; more may follow until the server is ready.
        debug: Whether an export that fails prints the traceback.
    """
    try:
        import onnxruntime  # noqa: F401  # which computes all policies

        from maze_pl.serving.app import DecisionServer, ServerOptions
        from maze_pl.serving.server import serve
    except ImportError as error:
        raise ConfigurationError(f"{error}; install the extras: pip install 'maze-pl[onnx,serve]'") from error
    server_options = ServerOptions(
        token,
        options.max_request_bytes,
        options.body_seconds,
        options.max_batch,
        options.max_episodes,
        options.episode_seconds,
        options.max_state_bytes,
    )
    source = ServedSource(
        options.source,
        options.max_batch,
        checkpoint=options.checkpoint or "best",
        trust=options.trust,
        debug=debug,
    )
    try:
        server = DecisionServer(source.load, server_options)
    except BundleError as error:
        raise ConfigurationError(str(error)) from error
    number = serve(server, options.host, options.port, hangups, source.stop)
    return 130 if number == signal.SIGINT else 0


def _parsed(command: Sequence[str]) -> Any:
    """Parse the options, and refuse invalid numbers."""
    parser = OptionParser("serve", "Answer requests for decisions over HTTP.")
    parser.add_paths("source", "file of `maze-pl export`, run directory, or checkpoint")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port, 0 for a free one (default: 8000)")
    secret = f"file with the token that requests must send (default: the variable {TOKEN_VARIABLE})"
    parser.add_argument("--token_file", type=Path, metavar="FILE", help=secret)
    parser.add_argument("--without_token", action="store_true", help="listen on other interfaces without a token")
    limits: dict[str, tuple[float, str]] = {
        "max_request_bytes": (2**20, "largest body of a request"),
        "max_batch": (1024, "largest number of observations of a request"),
        "max_episodes": (10_000, "largest number of episodes on the server"),
        "episode_seconds": (3600.0, "seconds without a request after which an episode is forgotten"),
        "max_state_bytes": (2**30, "largest memory of the policy states of all episodes"),
        "body_seconds": (
            10.0,
            "longest wait for a client: for the head of a request, for its body, for 16 KiB of answers to be read",
        ),
    }
    for name, (default, meaning) in limits.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{meaning} (default: {default})")
    which = "checkpoint of a run: best (the default), last, or a file"
    parser.add_argument("--checkpoint", metavar="NAME", help=which)
    parser.add_argument("--trust", action="store_true", help="let the run name any class")
    options = parser.parse(command[1:])
    if not needs_export(options.source):
        option = "--trust" if options.checkpoint is None else "--checkpoint"
        if options.trust or options.checkpoint is not None:
            fault = f"{options.source} is not a run or a checkpoint"
            raise ConfigurationError(f"{fault}, which {option} is for: omit it")
    for name in limits:
        value = getattr(options, name)
        if not 0 < value < 2**53:
            raise ConfigurationError(f"--{name} {value} must be a number greater than 0")
    if not 0 <= options.port < 2**16:
        raise ConfigurationError(f"--port {options.port} must be from 0 to 65535")
    return options


def _token(file: Path | None) -> str | None:
    """Return the token, None if there is none.

    Raises:
        ConfigurationError: It is empty, or its file cannot be read.
    """
    if file is None:
        given = os.environ.get(TOKEN_VARIABLE)
        if given is not None and not given.strip():
            raise ConfigurationError(f"{TOKEN_VARIABLE} is empty: write the token into it, or unset it")
        return None if given is None else given.strip()
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token_file {file} cannot be read: {error}") from error
    if not token:
        raise ConfigurationError(f"--token_file {file} is empty: write the token into it")
    return token


def _is_loopback(host: str) -> bool:
    """True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

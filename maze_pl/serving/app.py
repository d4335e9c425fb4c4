"""The ASGI application of a server."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from maze_pl.config.search_path import ConfigurationError
from maze_pl.serving.batcher import Batcher
from maze_pl.serving.decoding import JSON, NPZ, decoded, encoded
from maze_pl.serving.episode_store import EpisodeStore
from maze_pl.serving.openapi import description_of
from maze_pl.serving.request_error import RequestError
from maze_pl.serving.served_policy import CheckedRequest, ServedPolicy
from maze_pl.serving.server_metrics import ServerMetrics
from maze_pl_runtime import BundleError, Decision

_LOGGER: Final = logging.getLogger(__name__)
LOAD_ERRORS: Final = (BundleError, ConfigurationError)
"""Errors of a file that is not a bundle, and of a policy that cannot be exported or whose states are too large."""
_CLIENT_GONE: Final = 499  # the client has closed the connection

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server.

    Attributes:
        token: Secret that requests must send; None for none.
        max_request_bytes: Largest body of a request.
        body_seconds: Longest wait for a client, in seconds: for the head of a request, then for its body, and
            for each 16 KiB of its answers to be read.
        max_batch: Largest number of observations of a request, and of those decided together.
        max_episodes: Largest number of episodes on the server.
        episode_seconds: Seconds without a request after which an episode is forgotten.
        max_state_bytes: Largest memory of the policy states of all episodes.
    """

    token: str | None = None
    max_request_bytes: int = 2**20
    body_seconds: float = 10.0
    max_batch: int = 1024
    max_episodes: int = 10_000
    episode_seconds: float = 3600.0
    max_state_bytes: int = 2**30


class DecisionServer:
    """Answers requests for decisions.

    Args:
        load: Loads the bundle, at the start and for each reload; raises one of `LOAD_ERRORS`.
        options: Options.

    Attributes:
        app: The ASGI application.
        options: As given.
        served: The policy that decides.
    """

    def __init__(self, load: Callable[[], ServedPolicy], options: ServerOptions) -> None:
        self._load = load
        self.options = options
        self._metrics = ServerMetrics()
        self._episodes = EpisodeStore(options.max_episodes, options.episode_seconds, options.max_state_bytes)
        self._batcher = Batcher(options.max_batch, self._metrics.count_batch)
        self._reloading = asyncio.Lock()
        self.served = self._loaded()
        self._metrics.name_policy(self.served.digest)
        routes = [
            self._route("/act", "POST", self._act),
            self._route("/episodes", "POST", self._begin_episode),
            self._route("/episodes/{episode}", "DELETE", self._end_episode),
            self._route("/episodes/{episode}/act", "POST", self._act_in_episode),
            self._route("/health", "GET", self._health, is_open=True),
            self._route("/spec", "GET", self._spec),
            self._route("/openapi.json", "GET", self._openapi),
            self._route("/metrics", "GET", self._metrics_text),
            self._route("/reload", "POST", self._reload),
        ]
        self.app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _unknown_path},
        )
        self.app.router.redirect_slashes = False  # other paths are unknown ones

    def _loaded(self) -> ServedPolicy:
        """Load the bundle, or export the run; see `reload` for the errors."""
        served = self._load()
        self._episodes.require_room(served.state_shapes)
        return served

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._batcher.close()

    def _route(self, path: str, method: str, handler: Handler, *, is_open: bool = False) -> Route:
        """Make a route whose errors are answers, and which is counted.

        Args:
            path: The path.
            method: Its method.
            handler: Answers a request.
            is_open: Whether anyone may use it.
        """

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            status = 500
            try:
                if not is_open:
                    self._require_access(request)
                response = await handler(request)
                status = response.status_code
            except RequestError as error:
                status = error.status
                response = _json(error.content(), status)
                if status == 401:
                    response.headers["WWW-Authenticate"] = "Bearer"
            except ClientDisconnect:
                status = _CLIENT_GONE
                response = Response(status_code=400)
            except Exception as error:  # a fault of the policy or of this server; details stay in its log
                _LOGGER.exception("a request to %s failed", path)
                response = _json({"error": f"the request failed: {type(error).__name__}", "field": ""}, status)
            finally:
                self._metrics.count_request(path, status, time.perf_counter() - began)
            return response

        return Route(path, endpoint, methods=[method])

    def _require_access(self, request: Request) -> None:
        """Raise RequestError if the request does not have the token, or is one of a web page if there is none.

        Browsers let any page send some requests to this machine, and name its origin. They do not give it a token.
        """
        if self.options.token is None:
            origin = request.headers.get("origin")
            host = request.headers.get("host", "")
            if origin is not None and origin.partition("://")[2].lower() != host.lower():
                fault = f"a web page of {origin[:80]!r} has no access to this server, which has no token"
                raise RequestError(fault, "origin", 403)
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = self.options.token.encode()
        came = given.strip(" \t").encode("latin-1")  # the bytes of the header, which Starlette reads as Latin-1
        if scheme.lower() != "bearer" or not hmac.compare_digest(came, expected):
            raise RequestError("send the header `Authorization: Bearer TOKEN` with the server's token", status=401)

    # --------------------------------------------------------------------------------------------- decisions

    async def _act(self, request: Request) -> Response:
        has_left = _departure(request)
        served = self.served
        content = decoded(await self._body(request), request.headers.get("content-type", ""), served.n_arrays)
        checked = served.checked(content)
        decision = await self._batcher.decide(served, checked, has_left)
        return self._answer(request, served, checked, decision)

    async def _act_in_episode(self, request: Request) -> Response:
        has_left = _departure(request)
        body = await self._body(request)
        name = request.path_params["episode"]
        episode = self._episodes.find(name)
        async with episode.lock:
            if has_left():
                raise ClientDisconnect
            served = self.served
            if episode.state_shapes != served.state_shapes:  # while the request waited for its turn
                fault = "the bundle was replaced by one with other states"
                raise RequestError(f"{fault}; begin a new episode", "episode", 404)
            content = decoded(body, request.headers.get("content-type", ""), served.n_arrays)
            if "state" in content:
                raise RequestError("an episode has its state on the server; leave out state", "state")
            checked = served.checked(content)
            if checked.is_batch:
                raise RequestError("an episode takes one observation at a time", "observation")
            actor = (checked.step_key, int(checked.agent_id[0]))
            state = episode.state_of(*actor)
            if state:
                of_batch = {part: array[None] for part, array in state.items()}
                checked = replace(checked, state=of_batch)
            decision = await self._batcher.decide(served, checked, has_left)
            self._episodes.keep(name, *actor, decision.state)
            return self._answer(request, served, checked, decision, with_state=False)

    def _answer(
        self,
        request: Request,
        served: ServedPolicy,
        checked: CheckedRequest,
        decision: Decision,
        with_state: bool = True,
    ) -> Response:
        """Answer with a decision, in the form that the request accepts."""
        spaces = served.policy.spec[checked.step_key]["actions"]
        self._metrics.count_decisions(checked.step_key, spaces, decision.action)
        content: dict[str, Any] = {"action": decision.action}
        if with_state and decision.state:
            content["state"] = decision.state
        if checked.with_parameters:
            content["parameters"] = decision.parameters
        if not checked.is_batch:
            for name, arrays in content.items():
                content[name] = {key: array[0] for key, array in arrays.items()}
        accepted = request.headers.get("accept", "")
        kind = NPZ if NPZ in accepted else JSON
        return Response(encoded(content, kind), media_type=kind)

    async def _body(self, request: Request) -> bytes:
        """Read the body of a request, within the limits of size and time."""
        limit = self.options.max_request_bytes
        fault = f"the body is larger than {limit} bytes, the limit of this server"
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise RequestError(fault, status=413)
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise RequestError(fault, status=413)
        except TimeoutError:
            raise RequestError(f"the body did not arrive within {self.options.body_seconds:g} s", status=408) from None
        return bytes(body)

    # ---------------------------------------------------------------------------------------------- episodes

    async def _begin_episode(self, _: Request) -> Response:
        name = self._episodes.begin(self.served.state_shapes)
        return _json({"episode": name, "max_age": self.options.episode_seconds}, 201)

    async def _end_episode(self, request: Request) -> Response:
        self._episodes.end(request.path_params["episode"])
        return Response(status_code=204)

    # -------------------------------------------------------------------------------------------- the server

    async def _health(self, _: Request) -> Response:
        return _json({"status": "ok", "sha256": self.served.digest})

    async def _spec(self, _: Request) -> Response:
        return _json(self.served.policy.manifest)

    async def _openapi(self, _: Request) -> Response:
        options = self.options
        return _json(description_of(self.served.policy.manifest, options.max_batch, options.token is not None))

    async def _metrics_text(self, _: Request) -> Response:
        return Response(self._metrics.text(len(self._episodes)), media_type=self._metrics.content_type)

    async def _reload(self, _: Request) -> Response:
        if self.options.token is None:
            raise RequestError("this server has no token, so only SIGHUP reloads its bundle", status=403)
        try:
            return _json(await self.reload())
        except LOAD_ERRORS as error:
            raise RequestError(f"the bundle in use stays: {error}", status=409) from None

    async def reload(self) -> dict[str, Any]:
        """Load the bundle, or export the run, again.

        Requests under way are answered by the previous bundle.

        Returns:
            The hash of the bundle that decides now, and the number of episodes that it cannot continue.

        Raises:
            BundleError: The file is not a valid bundle; the previous bundle stays in place after all errors.
            ConfigurationError: The run or checkpoint cannot be exported, or policy states are too large.
        """
        async with self._reloading:
            try:
                served = await asyncio.to_thread(self._loaded)
            except Exception:
                self._metrics.count_reload(False)
                raise
            self.served = served
            n_ended = self._episodes.forget_incompatible(served.state_shapes)
            self._metrics.name_policy(served.digest)
            self._metrics.count_reload(True)
            return {"sha256": served.digest, "ended_episodes": n_ended}


def _departure(request: Request) -> Callable[[], bool]:
    """Return a function that tells whether the client of a request has closed the connection.

    Starlette's `is_disconnected` would take 0.1 ms of the event loop for each request.
    """
    connection = getattr(request.state, "connection", None)  # of `maze_pl.serving.connections`
    return lambda: connection is not None and connection.is_closed


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(encoded(content, JSON), status, media_type=JSON)


async def _unknown_path(_: Request, error: Exception) -> Response:
    """Answer requests for unknown paths and methods."""
    assert isinstance(error, HTTPException)
    response = _json({"error": error.detail, "field": ""}, error.status_code)
    response.headers.update(error.headers or {})
    return response

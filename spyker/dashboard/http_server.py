"""The page's server: what a browser asks for, and who may ask."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spyker.dashboard.bundle import KINDS, STATIC
from spyker.dashboard.run_list import RunList
from spyker.dashboard.watched_run import EVENTS, WatchedRun

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOK_SECONDS, TELL_SECONDS, ALIVE_SECONDS = 0.25, 0.25, 10.0
COOKIE = "spyker-page"
LOOPBACK = ["127.0.0.1", "localhost", "[::1]", "::1"]


class AccessControl:
    """Adds the headers to every answer and, where there is a token, lets only those in who know it."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the page answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        app = self.app if self.token is None else self._judge(Request(scope), self.token)
        await app(scope, receive, with_headers)

    def _judge(self, request: HTTPConnection, token: str) -> ASGIApp:
        """A browser comes with the token in the address once, and with a cookie from then on."""
        said = request.query_params.get("token")
        if said is not None and same(said, token):
            answer = RedirectResponse(request.url.path, 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if same(request.cookies.get(COOKIE, ""), token) or same(bearer, token):
            return self.app
        return PlainTextResponse("This page asks for its token: add ?token=… to the address.\n", 401)


def same(said: str, token: str) -> bool:
    """Whether a token is the right one, in a time that does not tell how much of it is."""
    return hmac.compare_digest(said.encode(), token.encode())


class DashboardApp:
    """Runs, read on by a thread of their own, and the answers about them."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.run_list = RunList(folders)
        self.life = secrets.token_hex(4)  # of this server: a browser that meets another begins anew
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="spyker-page", daemon=True)
        self.problem: str | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def end(self) -> None:
        """Read no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                self.run_list.look()
                while self.run_list.advance() and not self._ended.is_set():
                    pass
                self.problem = None
            except Exception as error:  # a record that is being replaced, or cannot be read: the page says so
                self.problem = f"{type(error).__name__}: {error}"
            self._ended.wait(LOOK_SECONDS)

    # --- Answers -----------------------------------------------------------------------------------------------------

    def runs(self, request: Request) -> Response:
        """Which runs there are."""
        return JSONResponse({"life": self.life, "changes": self.run_list.changes, "runs": self.run_list.payload()})

    def timeline(self, request: Request) -> Response:
        """A whole run, thinned."""
        return self._of_run(request, lambda run: run.timeline() | {"state": run.present()})

    def state(self, request: Request) -> Response:
        """A run at a time."""
        return self._of_run(request, lambda run: run.at(number(request, "t", 0.0)))

    def window(self, request: Request) -> Response:
        """What happened in a stretch of time; in the last events before a time; or in the next ones after it."""

        def answer(run: WatchedRun) -> dict[str, Any]:
            limit = int(number(request, "limit", EVENTS))
            if "before" in request.query_params:
                return run.before(number(request, "before", 0.0), limit)
            end = number(request, "to", 0.0) if "to" in request.query_params else None
            return run.window(number(request, "from", 0.0), end, limit)

        return self._of_run(request, answer)

    def _of_run(self, request: Request, answer: Callable[[WatchedRun], dict[str, Any]]) -> Response:
        run = self.run_list.runs.get(request.path_params["run"])
        if run is None:
            return PlainTextResponse("There is no such run.\n", 404)
        try:
            return JSONResponse(answer(run))
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)

    async def events(self, request: Request) -> Response:
        """Tell a browser, as long as it listens, how far each run is."""
        return StreamingResponse(self._news(request), media_type="text/event-stream")

    async def _news(self, request: Request) -> AsyncIterator[str]:
        before, silent = "", 0.0
        yield "retry: 1000\n\n"
        while not self._ended.is_set() and not await request.is_disconnected():
            runs = {
                number: [run.changes, round(run.state.t, 6), run.finished]
                for number, run in list(self.run_list.runs.items())
            }
            news = json.dumps(
                {"life": self.life, "changes": self.run_list.changes, "runs": runs, "problem": self.problem},
                separators=(",", ":"),
            )
            silent += TELL_SECONDS
            if news != before:
                yield f"data: {news}\n\n"
                before, silent = news, 0.0
            elif silent >= ALIVE_SECONDS:
                yield ": still here\n\n"
                silent = 0.0
            await asyncio.sleep(TELL_SECONDS)


def number(request: Request, key: str, default: float) -> float:
    """A number that a browser asks with."""
    try:
        found = float(request.query_params.get(key, default))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{key} is not a number")
    return found


def static(request: Request) -> Response:
    """A file of the page."""
    name = request.path_params.get("name", "index.html")
    if name not in STATIC:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(
        files("spyker.dashboard").joinpath("static", name).read_bytes(), media_type=KINDS[name.split(".")[-1]]
    )


def application(page: DashboardApp, host: str, token: str | None) -> Starlette:
    """The page as an application. On a loopback address it answers to its own names only, whoever sends browsers."""
    guards = [Middleware(AccessControl, token=token), Middleware(GZipMiddleware, minimum_size=1000)]
    if host in LOOPBACK:
        guards.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK))
    return Starlette(
        routes=[
            Route("/", static),
            Route("/static/{name}", static),
            Route("/api/runs", page.runs),
            Route("/api/runs/{run:int}/timeline", page.timeline),
            Route("/api/runs/{run:int}/state", page.state),
            Route("/api/runs/{run:int}/window", page.window),
            Route("/api/events", page.events),
        ],
        middleware=guards,
    )


class DashboardServer:
    """A page on a port, served by a thread of its own, as a context."""

    def __init__(self, folders: Sequence[Path], host: str, port: int, token: str | None = None) -> None:
        self.page = DashboardApp(folders)
        config = uvicorn.Config(
            application(self.page, host, token),
            host=host,
            port=port,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
            ws="none",
        )
        self._server = uvicorn.Server(config)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/"

    def __enter__(self) -> DashboardServer:
        self.page.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.page.end()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

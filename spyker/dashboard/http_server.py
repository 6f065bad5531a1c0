"""The HTTP server of the dashboard, with access control."""

from __future__ import annotations

import asyncio
import hmac
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
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spyker.dashboard.bundle import KINDS, STATIC, json_text
from spyker.dashboard.run_list import RunList
from spyker.dashboard.watched_run import EVENTS, WatchedRun

JSON = "application/json"

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
POLL_SECONDS, PUSH_SECONDS, KEEPALIVE_SECONDS = 0.25, 0.25, 10.0
COOKIE = "spyker-page"
LOOPBACK = ["127.0.0.1", "localhost", "[::1]", "::1"]


class AccessControl:
    """Middleware that adds security headers and, if there is a token, requires it."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        app = self.app if self.token is None else self._authorize(Request(scope), self.token)
        await app(scope, receive, with_headers)

    def _authorize(self, request: HTTPConnection, token: str) -> ASGIApp:
        """Check the token: in the URL, which sets a cookie, in the cookie, or as a bearer token."""
        given = request.query_params.get("token")
        if given is not None and same(given, token):
            redirect = RedirectResponse(request.url.path, 303)
            redirect.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return redirect
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if same(request.cookies.get(COOKIE, ""), token) or same(bearer, token):
            return self.app
        return PlainTextResponse("Access token required: add ?token=… to the address.\n", 401)


def same(given: str, token: str) -> bool:
    """Compare tokens in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


class DashboardApp:
    """The request handlers, and a thread that reads the records."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.run_list = RunList(folders)
        self.life = secrets.token_hex(4)  # identifies this server: a browser reloads its data after a restart
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="spyker-page", daemon=True)
        self.problem: str | None = None

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ended.is_set():
            try:
                self.run_list.refresh()
                while self.run_list.advance() and not self._ended.is_set():
                    pass
                self.problem = None
            except Exception as error:  # such as a record that is being replaced; shown on the page
                self.problem = f"{type(error).__name__}: {error}"
            self._ended.wait(POLL_SECONDS)

    # --- Request handlers --------------------------------------------------------------------------------------------
    def runs(self, request: Request) -> Response:
        """Return the list of runs."""
        found = {"life": self.life, "changes": self.run_list.changes, "runs": self.run_list.payload()}
        return Response(json_text(found), media_type=JSON)

    def timeline(self, request: Request) -> Response:
        """Return the thinned series of a run and its latest state."""
        return self._of_run(request, lambda run: run.timeline() | {"state": run.present()})

    def state(self, request: Request) -> Response:
        """Return the state of a run at a time."""
        return self._of_run(request, lambda run: run.at(number(request, "t", 0.0)))

    def window(self, request: Request) -> Response:
        """Return the events of an interval, or a number of events before or after a time."""

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
            return PlainTextResponse("Run not found.\n", 404)
        try:
            return Response(json_text(answer(run)), media_type=JSON)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)

    async def events(self, request: Request) -> Response:
        """Stream the progress of all runs as server-sent events."""
        return StreamingResponse(self._changes(request), media_type="text/event-stream")

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        before, silent = "", 0.0
        yield "retry: 1000\n\n"
        while not self._ended.is_set() and not await request.is_disconnected():
            runs = {
                number: [run.changes, round(run.state.t, 6), run.finished]
                for number, run in list(self.run_list.runs.items())
            }
            message = json_text(
                {"life": self.life, "changes": self.run_list.changes, "runs": runs, "problem": self.problem}
            )
            silent += PUSH_SECONDS
            if message != before:
                yield f"data: {message}\n\n"
                before, silent = message, 0.0
            elif silent >= KEEPALIVE_SECONDS:
                yield ": keepalive\n\n"
                silent = 0.0
            await asyncio.sleep(PUSH_SECONDS)


def number(request: Request, key: str, default: float) -> float:
    """Return a numeric query parameter."""
    try:
        found = float(request.query_params.get(key, default))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{key} is not a number")
    return found


def static(request: Request) -> Response:
    """Return a static file."""
    name = request.path_params.get("name", "index.html")
    if name not in STATIC:
        return PlainTextResponse("File not found.\n", 404)
    return Response(
        files("spyker.dashboard").joinpath("static", name).read_bytes(), media_type=KINDS[name.split(".")[-1]]
    )


def application(page: DashboardApp, host: str, token: str | None) -> Starlette:
    """Return the ASGI application. On a loopback address it checks the Host header, against DNS rebinding."""
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
    """The dashboard on a port, served by a thread, as a context manager."""

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
        """The URL of the dashboard."""
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

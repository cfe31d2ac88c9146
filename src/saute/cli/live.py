"""`saute report --live`: the page of runs that train, served on this machine only; it updates itself."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Callable, Iterator

from saute.core.errors import UserError
from saute.core.text import say
from saute.evidence.web import as_data, page
from saute.runs.facts import Facts

__all__ = ["HOST", "Live", "serving"]

EVERY = 2000
"""Milliseconds between two questions of the page, and between two looks at the policies."""
HOST = "127.0.0.1"


@dataclasses.dataclass
class Live:
    """What the page shows now: what the runs say of themselves, and what the last test of their policies came to."""

    what: Callable[[], str]
    """What there is to test; if it is something else than before, it is tested anew."""
    now: Callable[[], Facts]
    """Names, status and curves."""
    test: Callable[[], Facts]
    """All the rest, of the policies as they are; it takes a while."""
    tested: Facts = dataclasses.field(default_factory=dict)
    _known: str = ""

    def facts(self) -> Facts:
        now, tested = self.now(), self.tested
        known = tested.get("runs") or [{}] * len(now["runs"])
        runs = [{**old, **new} for old, new in zip(known, now["runs"], strict=True)]
        return {**tested, **now, "runs": runs, "live": EVERY, "tested": tested.get("tested", "")}

    def look(self) -> None:
        """Test the policies if they are not those that were tested last; what cannot be tested now is tried again."""
        try:
            what = self.what()
            if what != self._known:
                self.tested, self._known = self.test() | {"tested": what}, what
        except (OSError, UserError) as problem:
            if self.tested:
                say(f"note: not tested ({problem})")


@contextlib.contextmanager
def serving(live: Live, port: int) -> Iterator[http.server.ThreadingHTTPServer]:
    """A server on the loopback that answers in threads of its own, and tests in another one."""
    ended = threading.Event()

    def test() -> None:
        while not ended.wait(EVERY / 1000):
            live.look()

    try:
        server = http.server.ThreadingHTTPServer((HOST, port), _handler(live))
    except (OSError, OverflowError) as problem:
        raise UserError(f"--port {port} cannot be used ({problem}); leave it out for a free one") from problem
    answering = [threading.Thread(target=one, daemon=True) for one in (server.serve_forever, test)]
    for thread in answering:
        thread.start()
    try:
        yield server
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def _handler(live: Live) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """The page and its facts, for this machine's own browser: a page of another site is not answered."""

        def do_GET(self) -> None:
            asked = self.headers.get("Host", "").rpartition(":")[0]
            answers = {"/": ("text/html", page), "/facts.json": ("application/json", as_data)}
            if asked not in (HOST, "localhost") or self.path not in answers:
                return self.send_error(404)
            kind, written = answers[self.path]
            try:
                content = written(live.facts()).encode()
            except UserError as problem:
                return self.send_error(503, explain=str(problem))
            self.send_response(200)
            told = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content)), "Cache-Control": "no-store"}
            for name, value in {**told, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: every question of the page would be a line."""

    return Handler

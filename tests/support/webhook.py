"""A web address on this computer that takes JSON as chat programs' webhooks do, and keeps what it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer


@dataclass
class Told:
    """Its address, and every text with the moment at which it came; ``broken``: it answers 500 and keeps nothing."""

    url: str = ""
    heard: list[tuple[float, str]] = field(default_factory=list)
    broken: bool = False

    def heard_about(self, words: str) -> list[tuple[float, str]]:
        """What has these words."""
        return [(moment, text) for moment, text in self.heard if words in text]

    def about(self, words: str) -> list[str]:
        """The texts that have these words."""
        return [text for _, text in self.heard_about(words)]


@contextmanager
def listen(handler: type[BaseHTTPRequestHandler]) -> Iterator[HTTPServer]:
    """A web server at a free port of this machine, until the end of the block."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def webhook() -> Iterator[Told]:
    """One that listens until the end of the block."""
    told = Told()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not told.broken:
                told.heard.append((time.time(), content["text"]))
            self.send_response(500 if told.broken else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with listen(Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}/hooks/secret-token"
        yield told

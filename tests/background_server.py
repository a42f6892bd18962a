"""Run a server of http.server in a thread."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import HTTPServer


@contextlib.contextmanager
def running(server: HTTPServer) -> Iterator[int]:
    """Serve until the block ends; yield the port."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

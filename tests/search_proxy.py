"""A proxy before a search service that fails as services do: busy, cut off, or behind TLS and a password."""

import base64
import contextlib
import http.client
import ssl
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from background_server import running

# Given method and path, returns a status in place of the service's answer, None for its answer, or raises OSError to
# close the connection.
Fault = Callable[[str, str], int | None]


@contextlib.contextmanager
def search_proxy(
    url: str, fault: Fault = lambda method, path: None, password: str = "", context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Run a proxy before url; yield host and port. password: USER:PASSWORD that requests need."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            wanted = f"Basic {base64.b64encode(password.encode()).decode()}"
            try:
                status = 401 if password and self.headers["Authorization"] != wanted else fault(self.command, self.path)
                if status is None:
                    service = http.client.HTTPConnection(urlsplit(url).netloc)
                    service.request(self.command, self.path, content, {"Content-Type": self.headers["Content-Type"]})
                    answer = service.getresponse()
                    status, kind, body = answer.status, answer.getheader("Content-Type"), answer.read()
                    service.close()
                else:
                    kind, body = "text/plain", http.client.responses[status].encode()
            except OSError:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server) as port:
        yield f"127.0.0.1:{port}"

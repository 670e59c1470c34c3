"""A server on this machine that can be told to misbehave."""

import contextlib
import hashlib
import http.server
import threading


def md5(content):
    return hashlib.md5(content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.files`` as ``server.how`` says: codes, cuts, to, hang, no_length, encoded."""

    def do_GET(self):
        server, how = self.server, self.server.how
        server.requests.append((self.path, dict(self.headers)))
        if how.get("hang"):
            server.released.wait(10)
            return
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", how.get("to", self.path.removeprefix("/moved")))
            self.end_headers()
            return
        if how.get("codes"):
            self.send_error(how["codes"].pop(0))
            return
        content = server.files[self.path]
        self.send_response(200)
        if how.get("encoded"):
            self.send_header("Content-Encoding", "gzip")
        if not how.get("no_length"):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: how["cuts"].pop(0) if how.get("cuts") else None])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(files):
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.files, running.how, running.requests = files, {}, []
    running.released = threading.Event()
    running.address = f"http://127.0.0.1:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    running.server_close()
    thread.join()

"""A server on this machine that can be told to misbehave."""

import contextlib
import hashlib
import http.server
import re
import threading


def md5(content):
    return hashlib.md5(content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.files`` with ranges and tags, as ``server.how`` says."""

    def do_GET(self):
        server, how = self.server, self.server.how
        server.requests.append((self.path, dict(self.headers)))
        if how.get("hang"):
            server.released.wait(10)
            return
        if self.path.startswith("/moved/"):
            self.send_response(302)
            to = how.get("to", self.path.removeprefix("/moved"))
            self.send_header("Location", to.pop(0) if isinstance(to, list) else to)
            self.end_headers()
            return
        if how.get("codes"):
            self.send_error(how["codes"].pop(0))
            return
        content = server.files[self.path]
        tag = None if how.get("no_tag") else f'{"W/" if how.get("weak") else ""}"{md5(content)[:8]}"'
        start = self.start(content, tag)
        if start is not None and start >= len(content):
            self.send_error(416)
            return
        self.send_response(200 if start is None else 206)
        rest = content[start or 0 :]
        if start is not None and how.get("spoil_rest"):
            rest = bytes(len(rest))
        if start is not None:
            said = start + how.get("shift", 0)
            self.send_header("Content-Range", f"bytes {said}-{len(content) - 1}/{len(content)}")
        if tag:
            self.send_header("ETag", tag)
        if how.get("encoded"):
            self.send_header("Content-Encoding", "gzip")
        if not how.get("no_length"):
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        cut = how["cuts"].pop(0) if how.get("cuts") else len(rest)
        cut = how.get("cut_whole", cut) if start is None else cut
        server.sent.append(min(cut, len(rest)))  # before the client can see the last of it
        self.wfile.write(rest[:cut])
        if how.get("pauses") and how["pauses"].pop(0):
            self.wfile.flush()
            server.released.wait(10)

    def start(self, content, tag):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked is None or self.server.how.get("no_range"):
            return None
        if "If-Range" in self.headers and self.headers["If-Range"] != tag:
            return None
        return int(asked.group(1))

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(files):
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.files, running.how, running.requests, running.sent = files, {}, [], []
    running.released = threading.Event()
    running.address = f"http://127.0.0.1:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    running.server_close()
    thread.join()

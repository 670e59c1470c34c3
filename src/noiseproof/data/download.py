"""Download one file over HTTP: resumed after an interruption, renamed into place only if its checksum is the published one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urljoin, urlsplit

from noiseproof.data.examples import DataError
from noiseproof.io.files import flush

if TYPE_CHECKING:
    import requests

__all__ = ["Download", "Progress", "UnreachableError"]

Progress = Callable[[str, int, int | None], object]
"""Called with what is done (a file's name, or that it is unpacked), the bytes done so far, and the total if it is known."""
CONNECT_TIMEOUT = 15.0
SILENCE_TIMEOUT = 60.0  # seconds without a single byte after which a connection is given up
ATTEMPTS = 4
AT_MOST = 2**32  # the largest file that is accepted: a server that never stops must not fill the disk
CHUNK = 2**14  # bytes written at a time
BUSY = (429, 500, 502, 503, 504)
TAG = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")  # what can be a tag


class UnreachableError(DataError):
    """A file could not be downloaded; the message says why, the caller adds what to do."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again  # whether asking again may help


@dataclass
class Download:
    """``download(url, path)`` puts the file there once it is whole and ``fault`` finds nothing wrong with it.

    Received bytes are kept in ``part``, beside the final file, and the server's ETag in ``part.tag``. A later attempt requests
    the rest only, on condition of the same ETag. If bytes of two responses fail the checksum, the whole is requested again.
    Neither file is written or read through a link, and a damaged tag counts as none.
    """

    part: Path
    fault: Callable[[Path], str | None]
    """What is wrong with a whole file, if anything"""
    progress: Progress | None = None
    timeout: tuple[float, float] = (CONNECT_TIMEOUT, SILENCE_TIMEOUT)
    pause: float = 1.0  # seconds before the second attempt; twice as many before each further one
    _joined: bool = field(default=False, init=False)  # whether ``part`` has bytes of more than one response
    _ends: set[int] = field(default_factory=set, init=False)  # sizes of ``part`` after responses of unknown length

    def __call__(self, url: str, path: Path) -> None:
        for last in (False, True):
            self._joined = False
            self._ends.clear()
            if not self._size() or self.fault(self.part):
                self._download(url)
            fault = self.fault(self.part)
            if fault is None:
                flush(self.part)
                os.replace(self.part, path)
                self.discard()
                return
            self.discard()
            if last or not self._joined:
                raise DataError(
                    f"{url}: {fault}; what came was removed: run the same command again, "
                    "and if it stays so, the server or a proxy sends another file"
                )

    def _download(self, url: str) -> None:
        """Try a few times, each from where the one before stopped."""
        import requests

        cause: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                if self._transfer(url):
                    return
            except requests.RequestException as error:
                fault, cause = self._fault(url, error), error
            else:
                fault = UnreachableError(f"{_host(url)} did not send the whole of {url}: {self._size()} bytes came")
            if not fault.again:
                break
        raise fault from cause

    def _transfer(self, url: str) -> bool:
        """Request the missing bytes and write them; true if the file is complete."""
        have = self._size()
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if tag := self._known_tag():
                headers["If-Range"] = tag
        with _session() as session, session.get(url, headers=headers, stream=True, timeout=self.timeout) as response:
            if response.status_code == 416:  # nothing follows
                if have in self._ends:
                    return True
                self.discard()  # longer than the file there: not a part of it
                return False
            response.raise_for_status()
            start = _start(response)
            if start not in (0, have):
                self.discard()
                return False
            self._joined = start > 0
            return self._write(response, start)

    def _write(self, response: requests.Response, have: int) -> bool:
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
        try:
            with self._open(have) as file:
                if not have:
                    self._keep_tag(response)
                for piece in _pieces(response):
                    have += file.write(piece)
                    file.flush()  # what has come is kept, though the process be killed
                    if have > AT_MOST:
                        raise DataError(f"{response.url}: more than {AT_MOST} bytes; that is not the file")
                    if self.progress is not None:
                        self.progress(self.part.stem, have, total)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            more = "" if total is None else f"; {total} bytes are needed for it"
            way = "free some and run the same command again, it continues"
            raise DataError(f"{self.part}: no space left on the disk{more}: {way}") from error
        if total is not None:
            return have == total
        # A response of unknown length was complete if the checksum is right, or another one ended at the same size.
        complete = have in self._ends or self.fault(self.part) is None
        self._ends.add(have)
        return complete

    @property
    def _tag(self) -> Path:
        return self.part.with_name(f"{self.part.name}.tag")

    def _size(self) -> int:
        """How many bytes have come. A link by that name, or whatever else is no file of ours, is removed."""
        try:
            found = os.lstat(self.part)
        except FileNotFoundError:
            return 0
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return found.st_size
        self.part.unlink()
        return 0

    def _open(self, have: int) -> BinaryIO:
        """The part, to be continued, or a new one."""
        if have:
            return open(self.part, "ab", opener=_not_through_links)
        self.part.unlink(missing_ok=True)
        return open(self.part, "xb")

    def _known_tag(self) -> str | None:
        try:
            with open(self._tag, "rb", opener=_not_through_links) as file:
                tag = file.read(2**10).decode("latin-1")
        except OSError:
            return None
        return tag if TAG.fullmatch(tag) else None

    def _keep_tag(self, response: requests.Response) -> None:
        """Keep the ETag of this version, if it is a strong one: weak ones (W/...) do not promise the same bytes."""
        tag = response.headers.get("ETag", "")
        tag = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
        with contextlib.suppress(OSError):  # it can be done without
            self._tag.unlink(missing_ok=True)
            if TAG.fullmatch(tag):
                with open(self._tag, "x", encoding="latin-1") as file:
                    file.write(tag)

    def discard(self) -> None:
        """Remove what came so far."""
        self.part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._tag.unlink(missing_ok=True)

    def _fault(self, url: str, error: requests.RequestException) -> UnreachableError:
        import requests

        host = _host(url)
        if isinstance(error, requests.TooManyRedirects):
            return UnreachableError(f"{host} sends {url} on from address to address without end", again=False)
        if isinstance(error, requests.HTTPError) and error.response is not None:
            code = error.response.status_code
            text = f"{url} is gone ({code})" if code in (404, 410) else f"{host} answered {code} for {url}"
            return UnreachableError(text, again=code in BUSY)
        reason = _reason(error)
        if size := self._size():
            return UnreachableError(
                f"the connection to {host} broke ({reason}); {size} bytes are kept, and the next call continues"
            )
        return UnreachableError(f"could not reach {host} ({reason})")


def _not_through_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))  # nor waiting for a fifo's writer


def _session() -> requests.Session:
    """A session that follows redirections, but from https only to https."""
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            target: str | None = super().get_redirect_target(resp)
            if target is not None:
                _check_redirection(resp.url, urljoin(resp.url, target))
            return target

    return Session()


def _check_redirection(url: str, target: str) -> None:
    allowed = ("https",) if urlsplit(url).scheme == "https" else ("http", "https")
    if urlsplit(target).scheme not in allowed:
        which = "not https" if len(allowed) == 1 else "neither http nor https"
        raise UnreachableError(f"{_host(url)} sends {url} on to {target!r}, which is {which}", again=False)


def _start(response: requests.Response) -> int:
    """The offset of a response's first byte; -1 if its header is malformed."""
    if response.status_code != 206:
        return 0
    found = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("Content-Range", ""))
    return int(found.group(1)) if found else -1


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The bytes as sent: a .gz that the server declares as encoded would be decoded, and fail its checksum."""
    import requests
    from urllib3 import exceptions

    try:
        yield from response.raw.stream(CHUNK, decode_content=False)
    except exceptions.ProtocolError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    except exceptions.ReadTimeoutError as error:
        raise requests.ReadTimeout(error) from error
    except exceptions.SSLError as error:
        raise requests.exceptions.SSLError(error) from error


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(error: BaseException) -> str:
    """The innermost cause with a message of the system, instead of the chain of pools and retries around it."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate could not be verified"
    reason = "it was closed early" if isinstance(error, requests.exceptions.ChunkedEncodingError) else type(error).__name__
    seen = error
    while seen.__cause__ or seen.__context__:
        seen = seen.__cause__ or seen.__context__ or seen
        reason = getattr(seen, "strerror", None) or reason
    return reason

"""Download one file over HTTP: resumed after an interruption, renamed into place only if its checksum is the published one."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noiseproof.data.examples import DataError
from noiseproof.files import checksum

if TYPE_CHECKING:
    import requests

__all__ = ["Download", "Progress", "UnreachableError"]

Progress = Callable[[str, int, int | None], object]
"""Called with a file's name, the bytes received, and the total if the server gives it."""
CONNECT_TIMEOUT = 15.0
SILENCE_TIMEOUT = 60.0  # seconds without a single byte after which a connection is given up
ATTEMPTS = 4
AT_MOST = 2**32  # the largest file that is accepted: a server that never stops must not fill the disk
CHUNK = 2**14  # bytes written at a time
BUSY = (429, 500, 502, 503, 504)


class UnreachableError(DataError):
    """A file could not be downloaded; the message says why, the caller adds what to do."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again  # whether asking again may help


@dataclass
class Download:
    """A downloader as pooch takes them: ``download(url, output_file, pooch)``.

    Received bytes are kept in ``part``, beside the final file, and the server's ETag in ``part.tag``. A later attempt requests
    the rest only, on condition of the same ETag. If bytes of two responses fail the checksum, the whole is requested again.
    """

    part: Path
    md5: str
    progress: Progress | None = None
    timeout: tuple[float, float] = (CONNECT_TIMEOUT, SILENCE_TIMEOUT)
    pause: float = 1.0  # seconds before the second attempt; twice as many before each further one
    _joined: bool = field(default=False, init=False)  # whether ``part`` has bytes of more than one response
    _ends: set[int] = field(default_factory=set, init=False)  # sizes of ``part`` after responses of unknown length

    def __call__(self, url: str, output_file: str, pooch: object = None, check_only: bool = False) -> None:
        for last in (False, True):
            self._joined = False
            self._ends.clear()
            if not self._size() or checksum(self.part, "md5") != self.md5:
                self._download(url)
            found = checksum(self.part, "md5")
            if found == self.md5:
                os.replace(self.part, output_file)
                self._discard()
                return
            self._discard()
            if last or not self._joined:
                raise DataError(
                    f"{url}: MD5 {self.md5} expected, found {found}; what came was removed: run the same command again, "
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
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if self._tag.is_file():
                headers["If-Range"] = self._tag.read_text(encoding="latin-1")
        with requests.get(url, headers=headers, stream=True, timeout=self.timeout) as response:
            if response.status_code == 416:  # nothing follows
                if have in self._ends:
                    return True
                self._discard()  # longer than the file there: not a part of it
                return False
            response.raise_for_status()
            start = _start(response)
            if start not in (0, have):
                self._discard()
                return False
            self._joined = start > 0
            return self._write(response, start)

    def _write(self, response: requests.Response, have: int) -> bool:
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        try:
            with self.part.open("ab" if have else "wb") as file:
                if not have:
                    self._keep_tag(response)
                for piece in _pieces(response):
                    have += file.write(piece)
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
        complete = have in self._ends or checksum(self.part, "md5") == self.md5
        self._ends.add(have)
        return complete

    @property
    def _tag(self) -> Path:
        return self.part.with_name(f"{self.part.name}.tag")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _keep_tag(self, response: requests.Response) -> None:
        """Keep the ETag of this version, if it is a strong one: weak ones (W/...) do not promise the same bytes."""
        tag = response.headers.get("ETag", "")
        tag = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
        if tag:
            self._tag.write_text(tag, encoding="latin-1")
        else:
            self._tag.unlink(missing_ok=True)

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self._tag.unlink(missing_ok=True)

    def _fault(self, url: str, error: requests.RequestException) -> UnreachableError:
        import requests

        host = _host(url)
        if isinstance(error, requests.exceptions.InvalidSchema):
            target = str(error).rpartition(" for ")[2]
            return UnreachableError(f"{host} sends {url} on to {target}, which is neither http nor https", again=False)
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


def _start(response: requests.Response) -> int:
    """The offset of a response's first byte; -1 if its header is malformed."""
    if response.status_code != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
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

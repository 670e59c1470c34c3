"""Fetching a data set from a server on this machine that can be told to misbehave."""

import os
import re
import socket
import subprocess
import sys
import tarfile
import threading

import pytest

from noiseproof.data import DataError, fetch
from noiseproof.data.registry import all_datasets
from noiseproof.paper import datasets as download
from noiseproof.paper.datasets import CHECKSUMS, DownloadSource, RemoteFile
from noiseproof.paper.plugin import BINARY_CIFAR, SOURCES
from tests.helpers.misbehaving import serving, sha256
from tests.helpers.tiny import CONTENT, DONE, MEMBER, PAGE, get, names, packed, source


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "RETRIES", 0)
    with serving({"/tiny.tar.gz": CONTENT}) as running:
        yield running


def test_a_data_set_is_downloaded_verified_and_unpacked(server, tmp_path):
    told = []
    folder = get(server, tmp_path / "new" / "root", progress=lambda *now: told.append(now))
    assert folder == tmp_path / "new" / "root" / "tiny-bin"
    assert (folder / "data.bin").read_bytes() == MEMBER
    assert names(folder.parent) == DONE
    assert {(name, total) for name, _, total in told} == {("tiny.tar.gz", len(CONTENT))}
    counts = [count for _, count, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == len(CONTENT)


def test_a_second_call_verifies_and_downloads_nothing(server, tmp_path):
    get(server, tmp_path)
    (tmp_path / "tiny.tar.gz").unlink()  # the unpacked files are enough
    del server.requests[:]
    assert get(server, tmp_path) == tmp_path / "tiny-bin"
    assert server.requests == []
    (tmp_path / "tiny-bin" / "data.bin").write_bytes(b"changed")
    with pytest.raises(
        DataError, match=r"data\.bin: checksum [0-9a-f]{32} expected, found [0-9a-f]{32}; remove .*tiny-bin and"
    ):
        get(server, tmp_path)
    (tmp_path / "tiny-bin" / "data.bin").unlink()
    with pytest.raises(DataError, match="expected, found no such file"):
        get(server, tmp_path)


def test_a_process_that_is_killed_leaves_nothing_that_the_next_one_keeps(server, tmp_path):
    """No handler of ours runs when a process is killed: what is on the disk must do."""
    script = f"""
import os
from pathlib import Path
from noiseproof.paper.datasets import *
file = RemoteFile("{server.address}/tiny.tar.gz", "{sha256(CONTENT)}")
end = lambda name, count, total: count >= 100_000 and os._exit(9)
fetch(DownloadSource((file,), "tiny-bin", "", {{"data.bin": "0" * 64}}), Path("{tmp_path}"), end)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=600, check=False).returncode == 9
    assert len(names(tmp_path)) == 1
    assert names(tmp_path)[0].startswith(".fetching-")
    get(server, tmp_path)
    assert names(tmp_path) == DONE


def test_an_interrupted_download_is_tried_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server.how["cuts"] = [1000]
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    assert len(server.requests) == 2


def test_a_truncated_download_is_refused_and_leaves_nothing(server, tmp_path):
    server.how["cuts"] = [1000]
    with pytest.raises(DataError, match=r"could not download http\S+ from 127.* by hand"):
        get(server, tmp_path)
    assert names(tmp_path) == []
    server.how |= {"cuts": [1000], "no_length": True}  # nothing tells that it is not whole but the checksum
    with pytest.raises(DataError, match=f"its SHA-256 is not the published one, {sha256(CONTENT)}; what came was removed"):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_another_file_is_refused_before_it_is_unpacked(server, tmp_path):
    server.files["/tiny.tar.gz"] = packed(("tiny-bin/data.bin", b"another"))
    with pytest.raises(DataError, match="its SHA-256 is not the published one"):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_a_wrong_file_put_there_by_hand_is_replaced(server, tmp_path):
    (tmp_path / "tiny.tar.gz").write_bytes(b"wrong")
    get(server, tmp_path)
    assert names(tmp_path) == DONE


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_where_the_archive_should_be_is_named(server, tmp_path, put):
    put(tmp_path / "tiny.tar.gz")
    with pytest.raises(DataError, match=r"tiny\.tar\.gz: not a regular file; move it away and run the same command again"):
        get(server, tmp_path)


def test_offline_the_way_by_hand_is_told_and_works(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "RETRIES", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DataError) as caught:
        download.fetch(source(address), tmp_path)
    assert str(caught.value) == (
        f"could not download {address}/tiny.tar.gz from {address.removeprefix('http://')} (Connection refused); on another "
        f"machine, download {address}/tiny.tar.gz by hand (described at {PAGE}), put it in {tmp_path}, then run the same "
        "command again"
    )
    assert names(tmp_path) == []
    (tmp_path / "tiny.tar.gz").write_bytes(CONTENT)
    assert (download.fetch(source(address), tmp_path) / "data.bin").read_bytes() == MEMBER


@pytest.mark.parametrize(("code", "message"), [(404, r"tiny\.tar\.gz is gone \(404\)"), (503, "answered 503 for http")])
def test_what_a_server_answers_is_said(server, tmp_path, code, message):
    server.how["codes"] = [code]
    with pytest.raises(DataError, match=message):
        get(server, tmp_path)


def test_a_silent_server_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", (0.5, 0.5))
    server.how["hang"] = True
    with pytest.raises(DataError, match=r"\(no answer in time\)|timed out"):
        get(server, tmp_path)


def test_a_server_that_never_stops_does_not_fill_the_disk(server, tmp_path):
    with pytest.raises(DataError, match=r"more than 200000 bytes; that is not the file"):
        get(server, tmp_path, source(server.address, max_bytes=200_000))
    assert names(tmp_path) == []


def test_a_redirection_is_followed_but_not_from_https_to_http(server, tmp_path):
    get(server, tmp_path, source(server.address, path="/moved/tiny.tar.gz"))
    assert names(tmp_path) == DONE

    class Response:
        is_redirect, url, headers = True, "https://example.org/a", {"location": "http://example.org/a"}

    with pytest.raises(download._RefusedError, match=r"redirected to 'http://example\.org/a', which is not https"):
        download._check_redirection(Response)
    for target in ("https://example.org/b", "/b"):
        Response.headers = {"location": target}
        download._check_redirection(Response)
    for target in ("https://example:99999x/", "https://[::1", "https://*.example"):
        Response.headers = {"location": target}
        with pytest.raises(download._RefusedError, match=r"redirected to 'https://.*', which is no address"):
            download._check_redirection(Response)


def test_a_redirection_to_where_nothing_answers_names_that_address(server, tmp_path):
    server.how["to"] = "http://127.0.0.1:1/x"
    message = r"could not download \S+/moved/tiny\.tar\.gz from http://127\.0\.0\.1:1/x, where it redirects \("
    with pytest.raises(DataError, match=message):
        get(server, tmp_path, source(server.address, path="/moved/tiny.tar.gz"))


def test_a_file_that_is_declared_as_encoded_is_kept_as_it_is_or_refused(server, tmp_path):
    assert get(server, tmp_path)
    assert server.requests[0][1]["Accept-Encoding"] == "identity"


def test_a_data_set_of_several_files_asks_for_what_is_missing(server, tmp_path):
    files = {f"/{name}.gz": name.encode() * 100 for name in ("images", "labels")}
    server.files |= files
    several = DownloadSource(tuple(RemoteFile(server.address + path, sha256(raw)) for path, raw in files.items()), "tiny", PAGE)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "images.gz").write_bytes(files["/images.gz"])
    assert get(server, tmp_path, several) == tmp_path / "tiny"
    assert [path for path, _ in server.requests] == ["/labels.gz"]
    assert names(tmp_path / "tiny") == ["images.gz", "labels.gz"]
    server.how["codes"] = [404]
    with pytest.raises(DataError, match=r"download \S+/images.gz and \S+/labels.gz by hand .*, put them in .*other/tiny"):
        get(server, tmp_path / "other", several)


def test_several_at_once_download_once(server, tmp_path):
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(get(server, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [tmp_path / "tiny-bin"] * 4
    assert len(server.requests) == 1


def entry(name, **facts):
    made = tarfile.TarInfo(name)
    for key, value in facts.items():
        setattr(made, key, value)
    return made


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("tiny-bin/../../evil", b"1")], "outside the destination|would be written elsewhere"),
        ([("/tmp/evil-noiseproof", b"1")], r"tiny-bin/data\.bin: checksum .* found no such file"),
        ([entry("tiny-bin/data.bin", **LINK)], "member 'tiny-bin/data.bin' is a link or a device"),
        ([entry("tiny-bin/data.bin", type=tarfile.LNKTYPE, linkname="x")], "is a link or a device"),
        ([entry("tiny-bin/data.bin", type=tarfile.CHRTYPE)], "is a link or a device"),
        ([("tiny-bin/data.bin", b"another")], "checksum .* expected, found .*; remove .*tiny.tar.gz"),
        ([("other/data.bin", MEMBER)], "found no such file"),
        ([], "found no such file"),
    ],
    ids=["parent", "absolute", "symlink", "hardlink", "device", "content", "folder", "empty"],
)
def test_a_published_archive_is_still_not_trusted(server, tmp_path, members, message):
    """The checksum says the archive is the published one; what it holds must be as well."""
    evil = server.files["/tiny.tar.gz"] = packed(*members)
    with pytest.raises(DataError, match=message):
        get(server, tmp_path / "root", source(server.address, evil))
    assert names(tmp_path / "root") == ["tiny.tar.gz"]
    assert names(tmp_path) == ["root"]
    assert not os.path.exists("/tmp/evil-noiseproof")


def test_an_archive_unpacks_to_no_more_than_its_source_allows(server, tmp_path):
    bomb = server.files["/tiny.tar.gz"] = packed(("tiny-bin/data.bin", bytes(2**24)))
    assert len(bomb) < 2**16
    with pytest.raises(DataError, match=f"unpacks to more than the {2**20} bytes it may"):
        get(server, tmp_path, source(server.address, bomb, max_bytes=2**20))
    assert names(tmp_path) == ["tiny.tar.gz"]


@pytest.mark.parametrize("spoilt", [b"no archive", CONTENT[:-1000], CONTENT[:200_000] + b"x" + CONTENT[200_001:]])
def test_a_damaged_archive_is_refused(server, tmp_path, spoilt):
    server.files["/tiny.tar.gz"] = spoilt
    with pytest.raises(DataError, match=r"damaged or not an archive|checksum .* expected"):
        get(server, tmp_path, source(server.address, spoilt))


def test_without_pooch_the_error_says_what_to_install(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"downloading needs pooch: pip install '.\[lab\]' in noiseproof's repository"):
        get(server, tmp_path)


def test_an_unknown_name_gets_a_hint(tmp_path):
    with pytest.raises(DataError, match=r"unknown data set 'cifar1O'; did you mean 'cifar10'\? these can be fetched: cifar10"):
        fetch("cifar1O", tmp_path)
    for name in ("digits", "webvision", "clothing1m", "cifar10n", "cifar100n"):
        with pytest.raises(DataError, match=f"{name} cannot be fetched: "):
            fetch(name, tmp_path)
    with pytest.raises(DataError, match=r"data/CIFAR-10_human\.pt from https://github.com/UCSC-REAL/cifar-10-100n"):
        fetch("cifar10n", tmp_path)


def test_the_official_sources_are_well_formed():
    for name, found in SOURCES.items():
        assert bool(found.holds) == name.startswith("cifar")
        assert len(found.files) == (1 if found.holds else 4)
        for file in found.files:
            assert file.url.startswith(("https://", "http://fashion-mnist."))
            assert file.name.endswith((".tar.gz", "ubyte.gz"))
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert {len(checksum) for checksum in found.holds.values()} <= ({32} if "python" in name else {64})
    every = [file.sha256 for found in SOURCES.values() for file in found.files]
    assert len(set(every)) == len(every) == 12
    for folder, holds in BINARY_CIFAR.items():
        assert list(holds) == list(CHECKSUMS[folder])


def test_what_is_fetched_is_what_is_looked_for():
    named = all_datasets()
    for name, found in SOURCES.items():
        opened = named[name.removesuffix("-python")]
        assert found.folder in opened.folders
        assert opened.fetch
        assert not found.holds or set(opened.markers) & set(found.holds)
    assert all(known.fetch or known.by_hand for known in named.values())


def test_a_system_without_locks_fetches_all_the_same(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert get(server, tmp_path) == tmp_path / "tiny-bin"

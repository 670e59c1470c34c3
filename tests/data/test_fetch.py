"""Fetching a data set: what is downloaded, checked, unpacked and left in its place. test_download.py has one file's way."""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading

import pytest

from noiseproof.data.examples import DataError
from noiseproof.data.fetch import fetch
from noiseproof.data.known import BINARY_CIFAR, ELSEWHERE, SOURCES, RemoteFile, Source
from noiseproof.data.official import CHECKSUMS
from tests.helpers.misbehaving import md5, sha256
from tests.helpers.tiny import CONTENT, CUT, DONE, MEMBER, PAGE, get, names, sources


def test_a_data_set_is_downloaded_checked_and_unpacked(server, tmp_path):
    told = []
    folder = get(server, tmp_path / "new" / "root", progress=lambda *now: told.append(now))
    assert folder == tmp_path / "new" / "root" / "tiny-bin"
    assert (folder / "data.bin").read_bytes() == MEMBER
    assert names(folder.parent) == DONE
    for name in ("tiny.tar.gz", "unpacking tiny.tar.gz"):
        counts = [count for about, count, total in told if about == name and total == len(CONTENT)]
        assert len(counts) > 4
        assert counts == sorted(counts)
        assert counts[-1] == len(CONTENT)
    assert {name for name, _, _ in told} == {"tiny.tar.gz", "unpacking tiny.tar.gz"}


def test_a_second_call_checks_and_asks_for_nothing(server, tmp_path):
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


@pytest.mark.parametrize("when", ["tiny.tar.gz", "unpacking tiny.tar.gz"], ids=["downloading", "unpacking"])
def test_a_process_that_is_killed_leaves_what_the_next_one_continues_and_no_litter(server, tmp_path, when):
    """No handler of ours runs when a process is killed: what is on the disk must do."""
    script = f"""
import os
import random
from noiseproof.data.fetch import *
from noiseproof.data.known import *
file = RemoteFile("{server.address}/tiny.tar.gz", "{md5(CONTENT)}", "{sha256(CONTENT)}")
sources = {{"tiny": Source((file,), "tiny-bin", "", {{"data.bin": "0" * 64}})}}
end = lambda name, count, total: name == "{when}" and count >= {CUT} and os._exit(9)
fetch("tiny", "{tmp_path}", sources=sources, progress=end)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 9
    unpacking = when.startswith("unpacking")
    assert names(tmp_path) == ([".fetching", "tiny.tar.gz"] if unpacking else ["tiny.tar.gz.part", "tiny.tar.gz.part.tag"])
    get(server, tmp_path)
    assert (tmp_path / "tiny-bin" / "data.bin").read_bytes() == MEMBER
    assert names(tmp_path) == DONE
    asked = [headers.get("Range") for _, headers in server.requests]
    assert asked == ([None] if unpacking else [None, f"bytes={CUT}-"])


def test_what_a_killed_process_left_is_removed_though_all_is_there(server, tmp_path):
    get(server, tmp_path)
    (tmp_path / ".fetching" / "tmp1").mkdir(parents=True)
    (tmp_path / ".fetching" / "tmp1" / "half").write_bytes(b"1")
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    (tmp_path / "tiny.tar.gz.part.tag").write_text("left after the rename")
    shutil.rmtree(tmp_path / "tiny-bin")
    get(server, tmp_path)
    assert names(tmp_path) == DONE


@pytest.mark.parametrize("locks", [True, False])
def test_what_is_under_way_is_not_written_through_a_link(server, tmp_path, monkeypatch, locks):
    if not locks:  # nothing is cleaned up first: another process may be at work
        monkeypatch.setitem(sys.modules, "fcntl", None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".fetching").symlink_to(elsewhere)
    get(server, tmp_path / "root")
    assert names(tmp_path / "root") == DONE
    assert names(elsewhere) == ["mine"]
    assert (tmp_path / "root" / "tiny-bin" / "data.bin").read_bytes() == MEMBER


def test_a_wrong_file_put_there_by_hand_is_set_aside(server, tmp_path):
    (tmp_path / "tiny.tar.gz").write_bytes(b"wrong")
    with pytest.raises(
        DataError, match=rf"MD5 {md5(CONTENT)} expected, found {md5(b'wrong')}; it was set aside as tiny.tar.gz.w"
    ):
        get(server, tmp_path)
    assert names(tmp_path) == ["tiny.tar.gz.wrong"]
    get(server, tmp_path)
    assert (tmp_path / "tiny-bin" / "data.bin").read_bytes() == MEMBER


def test_a_file_with_the_right_md5_alone_is_refused(server, tmp_path):
    file = RemoteFile(f"{server.address}/tiny.tar.gz", md5(CONTENT), sha256(b"another"))
    source = {"tiny": Source((file,), "tiny-bin", PAGE, {"data.bin": md5(MEMBER)})}
    with pytest.raises(
        DataError, match=f"SHA-256 {sha256(b'another')} expected, found {sha256(CONTENT)}; what came was removed"
    ):
        get(server, tmp_path, sources=source)
    (tmp_path / "tiny.tar.gz").write_bytes(CONTENT)
    with pytest.raises(DataError, match=f"SHA-256 {sha256(b'another')} expected, .*; it was set aside as tiny.tar.gz.wrong"):
        get(server, tmp_path, sources=source)


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_where_the_archive_should_be_is_named(server, tmp_path, put):
    put(tmp_path / "tiny.tar.gz")
    with pytest.raises(DataError, match=r"tiny\.tar\.gz: not a regular file; move it away and run the same command again"):
        get(server, tmp_path)


def test_offline_the_way_by_hand_is_told_and_works(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    options = {"sources": sources(address), "pause": 0.0}
    with pytest.raises(DataError) as caught:
        fetch("tiny", tmp_path, **options)
    assert str(caught.value) == (
        f"could not reach {address.removeprefix('http://')} (Connection refused); on another machine, download "
        f"{address}/tiny.tar.gz by hand (described at {PAGE}), put it in {tmp_path}, then run the same command again"
    )
    assert names(tmp_path) == []
    (tmp_path / "tiny.tar.gz").write_bytes(CONTENT)
    assert (fetch("tiny", tmp_path, **options) / "data.bin").read_bytes() == MEMBER


def test_a_data_set_of_several_files_is_kept_as_it_is_and_asks_for_what_is_missing(server, tmp_path):
    files = {f"/{name}.gz": name.encode() * 100 for name in ("images", "labels")}
    server.files |= files
    remote = (RemoteFile(server.address + path, md5(content), sha256(content)) for path, content in files.items())
    source = Source(tuple(remote), "tiny", PAGE)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "images.gz").write_bytes(files["/images.gz"])
    assert get(server, tmp_path, sources={"tiny": source}) == tmp_path / "tiny"
    assert [path for path, _ in server.requests] == ["/labels.gz"]
    assert names(tmp_path / "tiny") == ["images.gz", "labels.gz"]
    server.how["codes"] = [404] * 2
    with pytest.raises(
        DataError, match=r"download http\S+/images.gz and http\S+/labels.gz by hand .*, put them in .*other/tiny,"
    ):
        get(server, tmp_path / "other", sources={"tiny": source})


def test_several_at_once_download_once(server, tmp_path):
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(get(server, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [tmp_path / "tiny-bin"] * 4
    assert len(server.requests) == 1


def test_an_archive_with_another_content_is_refused_and_kept_for_inspection(server, tmp_path):
    """The checksum says the archive is the published one; its members are still not trusted."""
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w:gz") as tar:
        entry = tarfile.TarInfo("tiny-bin/../../evil")
        tar.addfile(entry)
    server.files["/tiny.tar.gz"] = evil.getvalue()
    with pytest.raises(DataError, match=r"must not have '\.\.'"):
        get(server, tmp_path / "root", sources=sources(server.address, evil.getvalue()))
    assert names(tmp_path / "root") == ["tiny.tar.gz"]
    assert names(tmp_path) == ["root"]


def test_an_archive_unpacks_to_no_more_than_its_source_allows(server, tmp_path):
    with pytest.raises(DataError, match=f"unpacks to more than the {len(MEMBER) - 1} bytes it may"):
        get(server, tmp_path, sources=sources(server.address, at_most=len(MEMBER) - 1))
    assert names(tmp_path) == ["tiny.tar.gz"]
    get(server, tmp_path, sources=sources(server.address, at_most=2 * len(MEMBER)))  # the archive has blocks of its own


def test_without_requests_the_error_says_what_to_install(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(DataError, match=r"downloading needs requests: pip install '.\[lab\]' in noiseproof's repository"):
        get(server, tmp_path)


def test_an_unknown_name_gets_a_hint(tmp_path):
    with pytest.raises(
        DataError, match=r"unknown data set 'cifar1O'; did you mean 'cifar10'\? these can be fetched: cifar10, cif"
    ):
        fetch("cifar1O", tmp_path)
    for name in ELSEWHERE:
        with pytest.raises(DataError, match=f"{name} cannot be fetched: "):
            fetch(name, tmp_path)
    with pytest.raises(DataError, match=r"data/CIFAR-10_human\.pt from https://github.com/UCSC-REAL/cifar-10-100n"):
        fetch("cifar10n", tmp_path)


def test_the_official_sources_are_well_formed():
    for name, source in SOURCES.items():
        assert source.archived == name.startswith("cifar")
        assert len(source.files) == (1 if source.archived else 4)
        for file in source.files:
            assert file.url.startswith(("https://", "http://fashion-mnist."))
            assert file.name.endswith((".tar.gz", "ubyte.gz"))
            assert re.fullmatch("[0-9a-f]{32}", file.md5)
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert {len(checksum) for checksum in source.holds.values()} <= ({32} if "python" in name else {64})
    for kind in ("md5", "sha256"):
        every = [getattr(file, kind) for source in SOURCES.values() for file in source.files]
        assert len(set(every)) == len(every) == 12
    for folder, holds in BINARY_CIFAR.items():
        assert list(holds) == list(CHECKSUMS[folder])


def test_a_system_without_locks_fetches_all_the_same(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert get(server, tmp_path) == tmp_path / "tiny-bin"

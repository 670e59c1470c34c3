"""Downloading one file, from a server on this machine that can be told to misbehave."""

import io
import os
import socket

import pytest
import requests

from noiseproof.data import download as downloads
from noiseproof.data.examples import DataError
from tests.helpers.misbehaving import md5
from tests.helpers.tiny import CONTENT, CUT, DONE, MEMBER, PAGE, get, names, sources


def test_an_interrupted_download_asks_for_the_rest_only(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.how["cuts"] = [CUT]
    with pytest.raises(DataError, match=rf"the connection to .* broke .*; {CUT} bytes are kept, and the next call continues"):
        get(server, tmp_path)
    assert names(tmp_path) == ["tiny.tar.gz.part", "tiny.tar.gz.part.tag"]
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    assert server.requests[1][1]["Range"] == f"bytes={CUT}-"
    assert server.requests[1][1]["If-Range"] == f'"{md5(CONTENT)[:8]}"'
    assert server.sent == [CUT, len(CONTENT) - CUT]


def test_one_call_goes_on_after_the_connection_breaks(server, tmp_path):
    server.how["cuts"] = [CUT, CUT]
    get(server, tmp_path)
    assert [headers.get("Range") for _, headers in server.requests] == [None, f"bytes={CUT}-", f"bytes={2 * CUT}-"]
    assert sum(server.sent) == len(CONTENT)


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_part_that_is_a_link_is_not_written_through(server, tmp_path, link):
    victim, part = tmp_path / "victim", tmp_path / "root" / "tiny.tar.gz.part"
    victim.write_bytes(CONTENT[:1000])
    part.parent.mkdir()
    link(victim, part)
    get(server, part.parent)
    assert victim.read_bytes() == CONTENT[:1000]
    assert names(part.parent) == DONE
    assert "Range" not in server.requests[0][1]  # what is behind the link does not count as received


def test_a_part_that_becomes_a_link_meanwhile_is_not_written_through(tmp_path):
    victim, part = tmp_path / "victim", tmp_path / "part"
    victim.write_bytes(b"mine")
    part.symlink_to(victim)
    download = downloads.Download(part, lambda path: None)
    with pytest.raises(OSError, match="symbolic links"):
        download._open(4)
    download._open(0).close()
    assert victim.read_bytes() == b"mine"
    assert not part.is_symlink()


def test_a_part_that_is_no_file_is_not_waited_for(server, tmp_path):
    os.mkfifo(tmp_path / "tiny.tar.gz.part")
    get(server, tmp_path)
    assert names(tmp_path) == DONE


def spoil_tag(tag, how):
    if how == "fifo":
        os.mkfifo(tag)
    elif how == "folder":
        tag.mkdir()
    elif how == "link":
        (tag.parent.parent / "victim").write_text('"mine"')
        tag.symlink_to(tag.parent.parent / "victim")
    else:
        tag.write_bytes(how)


@pytest.mark.parametrize("how", [b"", b'"a"\r\nX: 1', b"\0" * 8, b"\xff\xfe", b" x", b"x" * 100_000, "fifo", "folder", "link"])
def test_a_damaged_tag_does_not_stand_in_the_way(server, tmp_path, how):
    root = tmp_path / "root"
    root.mkdir()
    (root / "tiny.tar.gz.part").write_bytes(CONTENT[:1000])
    spoil_tag(root / "tiny.tar.gz.part.tag", how)
    get(server, root)
    assert [(headers.get("Range"), headers.get("If-Range")) for _, headers in server.requests] == [("bytes=1000-", None)]
    assert set(names(root)) - {"tiny.tar.gz.part.tag"} == set(DONE)
    assert how == "folder" or names(root) == DONE
    if how == "link":
        assert (tmp_path / "victim").read_text() == '"mine"'


def test_a_tag_of_the_server_that_cannot_be_one_is_not_kept(tmp_path):
    download, response = downloads.Download(tmp_path / "part", lambda path: None), requests.Response()
    for tag in ('"fine"', "x\x7f", "x" * 300):
        response.headers["ETag"] = tag
        download._keep_tag(response)
        assert download._known_tag() == (tag if tag == '"fine"' else None)
        assert (tmp_path / "part.tag").exists() == (tag == '"fine"')


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-5", "many"])
def test_a_length_that_is_no_number_is_not_believed(tmp_path, length):
    """A server's headers are as little trusted as its bytes."""
    response = requests.Response()
    response.headers["Content-Length"], response.raw = length, io.BytesIO()
    response.raw.stream = lambda size, decode_content: iter([CONTENT])
    told = []
    download = downloads.Download(tmp_path / "part", sources("")["tiny"].files[0].fault, lambda *now: told.append(now))
    assert download._write(response, 0)
    assert told == [("part", len(CONTENT), None)]
    response.status_code, response.headers["Content-Range"] = 206, f"bytes {length}-"
    assert downloads._start(response) == -1


def test_a_finished_part_is_used_without_asking(server, tmp_path):
    (tmp_path / "tiny.tar.gz.part").write_bytes(CONTENT)
    get(server, tmp_path)
    assert server.requests == []
    assert names(tmp_path) == DONE


@pytest.mark.parametrize("how", [{"no_range": True}, {"shift": 7}])
def test_a_server_without_ranges_is_asked_for_the_whole(server, tmp_path, how):
    server.how |= how | {"cuts": [CUT]}
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    assert server.sent[-1] == len(CONTENT)


@pytest.mark.parametrize("how", [{}, {"no_tag": True}, {"weak": True}])
def test_a_file_that_changed_between_two_calls_is_not_joined_from_both(server, tmp_path, monkeypatch, how):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.how |= how | {"cuts": [CUT]}
    server.files["/tiny.tar.gz"] = b"old" * 100_000
    with pytest.raises(DataError, match=f"{CUT} bytes are kept"):
        get(server, tmp_path)
    server.files["/tiny.tar.gz"] = CONTENT
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    asked = [(headers.get("Range"), headers.get("If-Range")) for _, headers in server.requests]
    if how:  # nothing to make it conditional: the checksum tells, and the whole is asked for
        assert asked == [(None, None), (f"bytes={CUT}-", None), (None, None)]
    else:
        assert asked == [(None, None), (f"bytes={CUT}-", f'"{md5(b"old" * 100_000)[:8]}"')]


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "tiny.tar.gz.part").write_bytes(CONTENT + b"more")
    get(server, tmp_path)
    assert names(tmp_path) == DONE


def test_wrong_bytes_are_named_and_removed_and_the_next_call_starts_anew(server, tmp_path):
    server.files["/tiny.tar.gz"] = b"<html>please log in</html>"
    with pytest.raises(
        DataError, match=rf"tiny\.tar\.gz: MD5 {md5(CONTENT)} expected, found {md5(b'<html>please log in</html>')}; what came"
    ):
        get(server, tmp_path)
    assert names(tmp_path) == []
    server.files["/tiny.tar.gz"] = CONTENT
    get(server, tmp_path)
    assert "Range" not in server.requests[-1][1]
    assert names(tmp_path) == DONE


def test_a_server_whose_rests_are_always_wrong_is_asked_for_the_whole_once_more(server, tmp_path):
    server.how |= {"cut_whole": CUT, "spoil_rest": True}
    with pytest.raises(DataError, match=rf"MD5 {md5(CONTENT)} expected, found [0-9a-f]{{32}}; what came was removed"):
        get(server, tmp_path, progress=lambda *_: len(server.requests) > 20 and pytest.fail("it asks for ever"))
    assert [headers.get("Range") for _, headers in server.requests] == [None, f"bytes={CUT}-"] * 2
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [404, 410, 403])
def test_a_file_that_is_gone_is_said_to_be_and_not_asked_for_again(server, tmp_path, code):
    server.how["codes"] = [code] * 9
    with pytest.raises(DataError, match=rf"is gone \({code}\)" if code != 403 else "answered 403 for") as caught:
        get(server, tmp_path)
    assert len(server.requests) == 1
    assert f"(described at {PAGE}), put it in {tmp_path}, then run the same command again" in str(caught.value)
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.how["codes"] = [503, 429]
    get(server, tmp_path)
    assert len(server.requests) == 3
    server.how["codes"] = [503] * 9
    with pytest.raises(DataError, match="answered 503 for"):
        get(server, tmp_path / "other")


def test_each_pause_is_twice_the_one_before(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(downloads.time, "sleep", pauses.append)
    server.how["codes"] = [503] * 9
    with pytest.raises(DataError, match="answered 503 for"):
        get(server, tmp_path, pause=1.5)
    assert pauses == [1.5, 3.0, 6.0]
    assert len(server.requests) == 4


def test_a_silent_server_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 2)
    server.how["hang"] = True
    with pytest.raises(DataError, match=r"could not reach 127\.0\.0\.1:\d+ \(no answer in time\)"):
        get(server, tmp_path, timeout=(0.2, 0.2))
    assert len(server.requests) == 2


def test_a_redirection_is_followed_with_its_range(server, tmp_path):
    (tmp_path / "tiny.tar.gz.part").write_bytes(CONTENT[:1000])
    get(server, tmp_path, sources=sources(server.address, path="/moved/tiny.tar.gz"))
    assert server.requests[-1][0] == "/tiny.tar.gz"
    assert server.requests[-1][1]["Range"] == "bytes=1000-"
    assert server.sent == [len(CONTENT) - 1000]


@pytest.mark.parametrize(
    ("to", "words", "requests"),
    [
        ("file:///etc/hostname", r"on to 'file:///etc/hostname', which is neither http nor https; on another machine", 1),
        ("/moved/tiny.tar.gz", "on from address to address without end; on another machine", 31),
    ],
)
def test_a_redirection_that_leads_nowhere_is_not_asked_for_again(server, tmp_path, to, words, requests):
    server.how["to"] = to
    with pytest.raises(DataError, match=rf"^127\.0\.0\.1:\d+ sends http\S+/moved/tiny\.tar\.gz {words}"):
        get(server, tmp_path, sources=sources(server.address, path="/moved/tiny.tar.gz"))
    assert len(server.requests) == requests
    assert names(tmp_path) == []


class Secure(requests.adapters.HTTPAdapter):
    """Answers what is asked of https://127.0.0.1 by the server without encryption."""

    def send(self, request, *arguments, **options):
        plain = request.copy()
        plain.url = request.url.replace("https://", "http://")
        response = super().send(plain, *arguments, **options)
        response.url = request.url
        return response


@pytest.mark.parametrize(
    ("to", "last"),
    [
        (["http://{}/tiny.tar.gz"], "/moved/tiny.tar.gz"),
        (["HTTP://{}/tiny.tar.gz"], "/moved/tiny.tar.gz"),
        (["ftp://{}/tiny.tar.gz"], "/moved/tiny.tar.gz"),
        (["https://{}/moved/again", "http://{}/tiny.tar.gz"], "/moved/again"),
        (["https://{}/tiny.tar.gz"], None),
        (["//{}/tiny.tar.gz"], None),
        (["/moved/again", "/tiny.tar.gz"], None),
    ],
)
def test_a_redirection_never_leaves_https(server, tmp_path, monkeypatch, to, last):
    """``last`` is what is asked for before it is refused; None if it is not."""
    host, plain = server.address.removeprefix("http://"), downloads._session

    def session():
        opened = plain()
        opened.mount("https://127.0.0.1", Secure())
        return opened

    monkeypatch.setattr(downloads, "_session", session)
    server.how["to"] = [target.format(host) for target in to]
    secure = sources(f"https://{host}", path="/moved/tiny.tar.gz")
    if last is None:
        get(server, tmp_path, sources=secure)
        assert names(tmp_path) == DONE
    else:
        with pytest.raises(DataError, match=r"^127\S+ sends https://\S+ on to '\w+://\S+', which is not https; on another"):
            get(server, tmp_path, sources=secure)
        assert names(tmp_path) == []
    assert server.requests[-1][0] == (last or "/tiny.tar.gz")


def test_a_redirection_may_go_from_http_to_https():
    downloads._check_redirection("http://a/x", "https://b/x")
    downloads._check_redirection("http://a/x", "http://b/x")


def test_a_server_that_does_not_say_how_long_the_file_is_will_do(server, tmp_path):
    server.how["no_length"] = True
    told = []
    get(server, tmp_path, progress=lambda *now: told.append(now))
    assert [now for now in told if now[0] == "tiny.tar.gz"][-1] == ("tiny.tar.gz", len(CONTENT), None)


@pytest.mark.parametrize("how", [{}, {"no_range": True}])
def test_without_a_length_a_connection_that_is_closed_early_is_continued(server, tmp_path, how):
    server.how |= how | {"no_length": True, "cuts": [CUT]}
    get(server, tmp_path)
    assert names(tmp_path) == DONE
    assert [headers.get("Range") for _, headers in server.requests] == [None, f"bytes={CUT}-"]


def test_without_a_length_what_came_is_kept_for_the_next_call(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.how |= {"no_length": True, "cuts": [CUT]}
    with pytest.raises(DataError, match=f"did not send the whole of http.*: {CUT} bytes came"):
        get(server, tmp_path)
    get(server, tmp_path)
    assert server.sent == [CUT, len(CONTENT) - CUT]


@pytest.mark.parametrize("how", [{}, {"no_range": True}])
def test_without_a_length_wrong_bytes_are_named_all_the_same(server, tmp_path, how):
    wrong = b"<html>please log in</html>"
    server.how |= how | {"no_length": True}
    server.files["/tiny.tar.gz"] = wrong
    with pytest.raises(DataError, match=rf"MD5 {md5(CONTENT)} expected, found {md5(wrong)}; what came was removed"):
        get(server, tmp_path)
    assert len(server.requests) == 2
    assert names(tmp_path) == []


def test_an_archive_that_the_server_calls_encoded_is_kept_as_it_was_sent(server, tmp_path):
    server.how |= {"encoded": True, "cuts": [CUT]}
    assert (get(server, tmp_path) / "data.bin").read_bytes() == MEMBER
    assert (tmp_path / "tiny.tar.gz").read_bytes() == CONTENT
    assert server.requests[1][1]["Range"] == f"bytes={CUT}-"
    assert {headers["Accept-Encoding"] for _, headers in server.requests} == {"identity"}  # it was not asked to encode


def test_without_a_length_the_whole_is_taken_anew_though_its_first_parts_were_spoilt(server, tmp_path):
    """Where the spoilt download ended says nothing of where the next one does."""
    server.how |= {"no_length": True, "cuts": [CUT, len(CONTENT), CUT], "spoil_rest": True}

    def mended(*_):
        server.how["spoil_rest"] = len(server.requests) < 4

    assert (get(server, tmp_path, progress=mended) / "data.bin").read_bytes() == MEMBER
    asked = [None, f"bytes={CUT}-", f"bytes={len(CONTENT)}-", None, f"bytes={CUT}-"]  # the third: whether anything follows
    assert [headers.get("Range") for _, headers in server.requests] == asked


def test_what_came_is_on_the_disk_before_it_has_the_name_of_the_whole(server, tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(downloads, "flush", lambda path: flushed.append((path.name, path.read_bytes(), names(tmp_path))))
    get(server, tmp_path)
    assert flushed == [("tiny.tar.gz.part", CONTENT, ["tiny.tar.gz.part", "tiny.tar.gz.part.tag"])]


def test_a_server_that_falls_silent_half_way_is_given_up_and_continued(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    server.how |= {"cuts": [CUT], "pauses": [True]}
    with pytest.raises(DataError, match=rf"broke \(no answer in time\); {CUT} bytes are kept"):
        get(server, tmp_path, timeout=(0.2, 0.2))
    server.released.set()
    get(server, tmp_path)
    assert server.requests[1][1]["Range"] == f"bytes={CUT}-"


def test_a_server_that_never_stops_is_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "AT_MOST", 100_000)
    with pytest.raises(DataError, match="more than 100000 bytes; that is not the file"):
        get(server, tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_named(server, tmp_path, monkeypatch):
    def full(self, have):
        return open("/dev/full", "wb")

    monkeypatch.setattr(downloads.Download, "_open", full)
    with pytest.raises(
        DataError, match=rf"\.part: no space left on the disk; {len(CONTENT)} bytes are needed for it: free some"
    ):
        get(server, tmp_path)


def test_certificates_and_names_that_fail_have_their_own_words():
    assert downloads._reason(requests.exceptions.SSLError("chain")) == "its certificate could not be verified"
    error = requests.ConnectionError("pool")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    assert downloads._reason(error) == "Name or service not known"

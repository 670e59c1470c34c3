"""Image files and folders that are hostile: what is no regular file, what costs more than it weighs, what is damaged."""

import contextlib
import io
import os
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from noiseproof.data import ImageLoader, load_image_folder, read_image
from noiseproof.data.operations import ResizeCenterCrop
from tests.hostile.harness import ACCEPTED, Case, command


def shown(path: Path) -> str:
    return command("data", "show", path.parents[1])


def trained(path: Path) -> object:
    files = load_image_folder(path.parents[1]).train
    loader = ImageLoader(files, ResizeCenterCrop(8, 8), batch_size=4, seed=0, shuffle=False, workers=0, device="cpu")
    return next(iter(loader.epoch(0))).images


ATTEMPTS = {
    "image": read_image,
    "folder": lambda path: load_image_folder(path.parents[1]),
    "show": shown,
    "loader": trained,
}
SMALL = Image.new("RGB", (9, 6), (200, 100, 50))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def file(content, name="odd.png"):
    """A file in a class of a folder of images whose other files are fine."""

    def make(folder: Path) -> Path:
        return beside(folder, name, lambda path: path.write_bytes(content()))

    return make


def special(put, name="odd.png"):
    return lambda folder: beside(folder, name, put)


def beside(folder: Path, name: str, put) -> Path:
    for kind in ("a", "b"):
        (folder / "set" / kind).mkdir(parents=True)
        SMALL.save(folder / "set" / kind / "fine.png")
    put(folder / "set" / "a" / name)
    return folder / "set" / "a" / name


def bound_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:  # a socket's address is short
        bound.bind(path.name)


def png(width: int, height: int, bits: int = 8, color: int = 2, data: bytes = b"", *chunks: tuple[bytes, bytes]) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def zeros_png(side: int, bits: int, color: int, samples: int) -> bytes:
    """A black image, whose rows are packed one by one: all of them at once would be large."""
    packer, row = zlib.compressobj(1), bytes(1 + side * samples * bits // 8)
    packed = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    plain = png(side, side, bits, color)
    empty = plain.index(b"IDAT") - 4
    return (
        plain[:empty]
        + struct.pack(">I", len(packed))
        + b"IDAT"
        + packed
        + struct.pack(">I", zlib.crc32(b"IDAT" + packed))
        + plain[-12:]
    )


def many_scans(side: int, scans: int) -> bytes:
    raw = encoded(Image.new("RGB", (side, side)), "JPEG", progressive=True)
    last = raw.rindex(b"\xff\xda")
    return raw[:-2] + raw[last:-2] * scans + raw[-2:]


def tiled(side: int) -> bytes:
    """A TIFF of 16 x 16 grey pixels in one tile of this side."""
    packed = zlib.compress(bytes(256))
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 134, 325: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + packed


def bmp_runs(width: int, height: int, runs: bytes) -> bytes:
    start = 54 + 1024
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start) + header + bytes(1024) + runs


def gif(width: int, height: int) -> bytes:
    raw = bytearray(encoded(SMALL.convert("P"), "GIF"))
    raw[6:10] = struct.pack("<HH", width, height)
    return bytes(raw)


def flat(result) -> bool:
    return result.shape == (6, 9, 3) and bool((result == (200, 100, 50)).all())


BIG, ODD = "pixels must be in", r"odd\.png"
KINDS = {
    "fifo": (os.mkfifo, "not a regular file"),
    "socket": (bound_socket, "not a regular file|No such device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "full": (lambda path: path.symlink_to("/dev/full"), "not a regular file"),
    "folder": (Path.mkdir, "a folder"),
    "dangling": (lambda path: path.symlink_to("gone.png"), "link to nothing|No such file"),
    "loop": (lambda path: path.symlink_to(path.name), "Too many levels"),
    "link-to-fifo": (lambda path: (os.mkfifo(path.with_name(".fifo")), path.symlink_to(".fifo")), "not a regular file"),
}
CASES = [
    *(
        Case(f"{kind}-{reader}", special(put), reader, f"(?=.*{ODD})(?=.*({message}))")
        for kind, (put, message) in KINDS.items()
        for reader in ("image", "folder")
    ),
    *(
        Case(f"{kind}-show", special(KINDS[kind][0]), "show", KINDS[kind][1])
        for kind in ("fifo", "device", "folder", "dangling")
    ),
    Case(
        "link-to-image",
        special(lambda path: path.symlink_to("fine.png")),
        "image",
        ACCEPTED,
        flat,
    ),
    Case("grey-16-large", file(lambda: zeros_png(8200, 16, 0, 1)), "image", BIG),
    Case(
        "grey-16-limit",
        file(lambda: zeros_png(8192, 16, 0, 1)),
        "image",
        ACCEPTED,
        lambda found: found.shape == (8192, 8192, 3),
    ),
    Case("rgba-16-large", file(lambda: png(9000, 9000, 16, 6)), "image", BIG),
    Case("bits-large", file(lambda: png(9400, 9400, 1, 0)), "image", BIG),
    Case(
        "webp-large",
        file(lambda: encoded(Image.new("1", (6000, 6000)).convert("RGB"), "WEBP", method=0), "odd.webp"),
        "image",
        BIG,
    ),
    Case("png-claims", file(lambda: png(2**31 - 1, 2**31 - 1)), "image", "exceeds limit"),
    Case("png-claims-limit", file(lambda: png(8192, 8192)), "image", "not a readable image"),
    Case("png-width-0", file(lambda: png(0, 5)), "image", "an image without pixels"),
    Case(
        "png-text",
        file(lambda: png(1, 1, 8, 2, bytes(4), *[(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**25)))] * 9)),
        "image",
        "odd.png",
    ),
    Case(
        "png-profile",
        file(lambda: png(1, 1, 8, 2, bytes(4), (b"iCCP", b"k\0\0" + zlib.compress(bytes(2**28))))),
        "image",
        "too large",
    ),
    Case(
        "png-profiles",
        file(lambda: png(1, 1, 8, 2, bytes(4), *[(b"iCCP", b"k\0\0" + zlib.compress(bytes(2**20 - 9)))] * 6000)),
        "image",
        "6000 colour profiles",
    ),
    Case(
        "png-profile-small",
        file(lambda: encoded(SMALL, "PNG", icc_profile=bytes(999))),
        "image",
        ACCEPTED,
        flat,
    ),
    Case("tiff-tiles", file(lambda: tiled(2**15), "odd.tiff"), "image", "tiles of 1073741824 pixels must be in"),
    Case("tiff-tiles-small", file(lambda: tiled(16), "odd.tiff"), "image", ACCEPTED, lambda found: found.shape == (16, 16, 3)),
    Case("scans", file(lambda: many_scans(2048, 3000), "odd.jpg"), "image", "3010 scans of 2048 x 2048 pixels"),
    Case("scans-loader", file(lambda: many_scans(2048, 3000), "odd.jpg"), "loader", "3010 scans"),
    Case("scans-few", file(lambda: many_scans(64, 20), "odd.jpg"), "image", ACCEPTED, lambda found: found.shape == (64, 64, 3)),
    Case(
        "ppm-odd-depth",
        file(lambda: b"P5 3000 3000 7\n" + bytes(9_000_000), "odd.pgm"),
        "image",
        "at most 2097152; save it as PNG",
    ),
    Case(
        "ppm-text",
        file(lambda: b"P3 1000 1000 255\n" + b"1 " * 3_000_000, "odd.ppm"),
        "image",
        "at most 2097152; save it as PNG",
    ),
    Case(
        "ppm-number",
        file(lambda: b"P5 " + b"9" * 5_000_000 + b" 1 255\n1", "odd.pgm"),
        "image",
        "odd.pgm: not an? (readable )?image",
    ),
    Case("ppm-width-0", file(lambda: b"P5 0 3 255\n", "odd.pgm"), "image", "odd.pgm: not an? (readable )?image"),
    Case("ppm-claims", file(lambda: b"P6 8192 8192 255\n" + bytes(9), "odd.ppm"), "image", "odd.ppm: not a readable image"),
    Case(
        "bmp-runs",
        file(lambda: bmp_runs(3000, 1500, b"\1\1" * 4_500_000), "odd.bmp"),
        "image",
        "at most 2097152; save it as PNG",
    ),
    Case(
        "bmp-steps",
        file(lambda: bmp_runs(8000, 8000, b"\0\2\xff\xff" * 500_000), "odd.bmp"),
        "image",
        ACCEPTED,
        lambda found: found.shape == (8000, 8000, 3),
    ),
    Case("bmp-claims", file(lambda: bmp_runs(60000, 60000, b""), "odd.bmp"), "image", "exceeds limit"),
    Case("gif-claims", file(lambda: gif(65535, 65535), "odd.gif"), "image", "exceeds limit"),
    Case("gif-size-0", file(lambda: gif(0, 0), "odd.gif"), "image", ACCEPTED, lambda found: found.shape == (6, 9, 3)),
    Case("line-loader", file(lambda: encoded(Image.new("L", (10_000_000, 1)), "PNG")), "loader", "1 x 10000000 pixels would"),
    Case(
        "postscript",
        file(lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nquit\n", "odd.jpg"),
        "image",
        "not an image",
    ),
    Case("empty", file(bytes), "image", "not an image"),
    Case("text", file(lambda: b"<html>"), "loader", "not an image"),
    Case("cut", file(lambda: encoded(Image.effect_noise((99, 99), 9), "PNG")[:-2000]), "loader", "not a readable image"),
    Case("other-format", file(lambda: encoded(SMALL, "BMP")), "image", ACCEPTED, flat),
    Case("other-name", special(lambda path: path.write_text("x"), "odd.txt"), "folder", "not an image's name"),
    Case(
        "name-bytes",
        lambda folder: beside(folder, os.fsdecode(b"odd\xff.png"), lambda path: SMALL.save(path, "PNG")),
        "image",
        ACCEPTED,
        flat,
    ),
    Case("array", file(lambda: np.zeros(3).tobytes(), "odd.tiff"), "image", "odd.tiff: not an image"),
]

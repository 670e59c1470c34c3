"""Folders of image files and the decoding of one: every mode, every kind of damage, and what a folder may hold."""

import errno
import hashlib
import io
import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from noiseproof.data import DataError, Dataset, ImageFiles, Split, in_memory, load_image_folder, read_image
from noiseproof.data import images as pictures
from noiseproof.data.images import decode
from noiseproof.io import limits


def picture(height=6, width=9, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path, pixels=None, mode=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(picture() if pixels is None else pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)
    return path


def folder_of(root, names):
    for name in names:
        save(root / name)
    return root


@pytest.mark.parametrize("extension", ["png", "bmp", "ppm", "tif", "tiff"])
def test_a_lossless_image_comes_back_exactly(tmp_path, extension):
    pixels = picture()
    found = read_image(save(tmp_path / f"x.{extension}", pixels))
    assert found.dtype == np.uint8
    assert found.flags.writeable
    assert np.array_equal(found, pixels)


@pytest.mark.parametrize("extension", ["jpg", "jpeg", "webp", "gif"])
def test_a_lossy_image_comes_back_in_colour_and_size(tmp_path, extension):
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, 30:] = 200, 100, 50
    found = read_image(save(tmp_path / f"x.{extension}", pixels)).astype(int)
    assert found.shape == (40, 60, 3)
    assert np.abs(found - pixels)[:, [5, 55]].max() < 12


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_grey_images_have_three_equal_channels(tmp_path, mode):
    pixels = picture()
    found = read_image(save(tmp_path / "x.png", pixels, mode))
    assert np.array_equal(found, np.repeat(np.asarray(Image.fromarray(pixels).convert(mode).convert("L"))[..., None], 3, 2))


def test_transparency_is_dropped(tmp_path):
    pixels = np.concatenate([picture(), picture(seed=1)[..., :1]], axis=2)
    assert np.array_equal(read_image(save(tmp_path / "x.png", pixels)), pixels[..., :3])


def test_a_palette_with_transparency_gives_its_colours_and_no_warning(tmp_path):
    image = Image.new("P", (4, 2))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "x.png", transparency=bytes([0, 128]))
    with pytest.warns(UserWarning, match="Transparency"):
        Image.open(tmp_path / "x.png").convert("RGB")
    with warnings.catch_warnings(record=True) as leaked:
        warnings.simplefilter("always")
        found = read_image(tmp_path / "x.png")
    assert not leaked
    assert found[0, :2].tolist() == [[10, 20, 30], [200, 100, 50]]


def test_cmyk_is_converted(tmp_path):
    path = save(tmp_path / "x.jpg", np.full((16, 16, 3), (200, 100, 50), np.uint8), "CMYK", quality=95)
    assert np.abs(read_image(path).astype(int) - (200, 100, 50)).max() < 8


@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.pgm"])
def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path, name):
    grey = np.arange(0, 65536, 37, dtype=np.uint16)[:1764].reshape(42, 42)
    Image.fromarray(grey).save(tmp_path / name)
    assert np.array_equal(read_image(tmp_path / name), np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, 2))


def test_grey_with_another_white_is_scaled_to_it(tmp_path):
    (tmp_path / "x.pgm").write_bytes(b"P5 3 1 1023\n" + np.array([0, 512, 1023], ">u2").tobytes())
    assert read_image(tmp_path / "x.pgm")[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_thirty_two_bits_are_refused_with_the_reason(tmp_path, dtype):
    Image.fromarray(np.ones((4, 4), dtype)).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif: not a readable image: 32 bits per pixel have no agreed white"):
        read_image(tmp_path / "x.tif")


def test_the_first_frame_is_read(tmp_path):
    frames = [Image.new("L", (5, 5), value) for value in (30, 200)]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "x.gif").max() == 30


def test_an_orientation_tag_is_ignored(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_image(save(tmp_path / "x.jpg", picture(6, 9), exif=exif)).shape == (6, 9, 3)


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.bmp", "x.webp", "x.gif", "x.tif"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.8])
def test_a_truncated_image_is_named(tmp_path, name, share):
    path = save(tmp_path / name, picture(80, 90))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(DataError, match=rf"x\.{name[2:]}: not a"):
        read_image(path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0\n"]
)
def test_what_is_no_image_is_named_whatever_it_is_called(tmp_path, content):
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.jpg: not an? (readable )?image"):
        read_image(tmp_path / "x.jpg")


@pytest.mark.parametrize("kind", ["EPS", "ICO", "PCX"])
def test_other_formats_are_refused_though_pillow_could_read_them(tmp_path, kind):
    save(tmp_path / "x.jpg", format=kind)
    with Image.open(tmp_path / "x.jpg") as image:
        assert image.format == kind
    with pytest.raises(DataError, match=r"x\.jpg: not an image; JPEG, PNG, .* are read"):
        read_image(tmp_path / "x.jpg")


def test_damage_anywhere_gives_an_image_or_a_data_error(tmp_path):
    source = np.random.default_rng(0)
    for name in ("x.jpg", "x.png", "x.gif", "x.webp", "x.tif", "x.bmp", "x.ppm"):
        raw = save(tmp_path / name, picture(20, 30)).read_bytes()
        for _ in range(60):
            damaged = bytearray(raw)
            for place in source.integers(0, len(raw), 6):
                damaged[place] = source.integers(0, 256)
            (tmp_path / name).write_bytes(damaged)
            try:
                assert read_image(tmp_path / name).shape[2] == 3
            except DataError as error:
                assert str(tmp_path / name) in str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("side", [9500, 30000], ids=["pillow warns", "pillow refuses"])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, side):
    Image.new("1", (side, side)).save(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x\.png: .*exceeds limit of \d+ pixels.*; make it smaller, or leave it out"):
        read_image(tmp_path / "x.png")


def test_the_scans_of_a_jpeg_are_bounded_by_its_pixels(tmp_path):
    """Each scan goes over all pixels: a hundred are fine, thousands of a large image are not."""
    path = save(tmp_path / "x.jpg", np.zeros((512, 512, 3), np.uint8), progressive=True)
    raw = path.read_bytes()
    last = raw.rindex(b"\xff\xda")
    path.write_bytes(raw[:-2] + raw[last:-2] * 100 + raw[-2:])
    assert read_image(path).shape == (512, 512, 3)
    path.write_bytes(raw[:-2] + raw[last:-2] * 10_000 + raw[-2:])
    with pytest.raises(DataError, match=r"x\.jpg: not a readable image: 10010 scans of 512 x 512 pixels are too many"):
        read_image(path)


def test_a_marker_between_two_reads_is_counted(monkeypatch):
    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 3))

    file = Slow(b"ab\xff\xdacd\xff\xdaef\xff")
    file.seek(4)
    assert pictures._count(file, b"\xff\xda") == 2
    assert pictures._count(file, b"\xdacd\xff\xda") == 1  # longer than what is read at once
    assert file.tell() == 4


def test_pixels_are_counted_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIXELS", 54)
    monkeypatch.setattr(limits, "MAX_WEBP_PIXELS", 50)
    assert read_image(save(tmp_path / "x.png", picture(6, 9))).shape == (6, 9, 3)
    for name, most, pixels in (("y.png", 54, picture(5, 11)), ("x.webp", 50, picture(6, 9))):
        with pytest.raises(DataError, match=rf"pixels must be in \[1, {most}\]; resize it, or leave it out"):
            read_image(save(tmp_path / name, pixels))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no fifos")
def test_a_fifo_is_not_waited_for(tmp_path):
    folder_of(tmp_path, ["a/1.png", "b/1.png"])
    os.mkfifo(tmp_path / "a" / "2.png")
    with pytest.raises(OSError, match=r"not a regular file but a pipe or a device: .*2\.png"):
        read_image(tmp_path / "a" / "2.png")
    with pytest.raises(DataError, match=r"2\.png: not a regular file but a pipe, a socket or a device; move it away"):
        load_image_folder(tmp_path)


def test_a_file_that_cannot_be_opened_is_the_disks_fault(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        read_image(tmp_path / "gone.png")
    (tmp_path / "x.png").mkdir()
    with pytest.raises(IsADirectoryError, match=r"x\.png"):
        read_image(tmp_path / "x.png")


def test_a_read_that_fails_half_way_is_the_disks_fault_with_the_path(monkeypatch):
    class Failing(io.BytesIO):
        def read(self, *size):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("noiseproof.data.images.open_file", lambda path: Failing())
    with pytest.raises(OSError, match=r"Input/output error: 'far/x\.png'") as caught:
        decode("far/x.png")
    assert not isinstance(caught.value, DataError)


def test_a_folder_of_classes_is_listed_by_name(tmp_path):
    folder_of(tmp_path / "pets", ["dog/2.png", "dog/10.PNG", "cat/ü ber.png", "cat/a.jpeg", "a cow/x.bmp"])
    data = load_image_folder(tmp_path / "pets")
    assert repr(data) == "Dataset(pets: 3 classes, train 5, images in files)"
    assert data.classes == ("a cow", "cat", "dog")
    names = [os.path.relpath(path, tmp_path / "pets") for path in data.train.paths]
    assert names == ["a cow/x.bmp", "cat/a.jpeg", "cat/ü ber.png", "dog/10.PNG", "dog/2.png"]
    assert data.train.labels.tolist() == [0, 1, 1, 2, 2]
    assert all(read_image(path).shape == (6, 9, 3) for path in data.train.paths)


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_a_test_folder_is_a_split_and_may_lack_classes(tmp_path, test):
    folder_of(tmp_path, ["train/a/1.png", "train/b/1.png", f"{test}/b/2.png"])
    data = load_image_folder(tmp_path, name="mine")
    assert (data.name, data.classes) == ("mine", ("a", "b"))
    assert data.test.paths == (str(tmp_path / test / "b" / "2.png"),)
    assert data.test.labels.tolist() == [1]


def test_a_class_may_be_called_train(tmp_path):
    folder_of(tmp_path, ["train/1.png", "bus/1.png"])
    data = load_image_folder(tmp_path)
    assert (data.classes, data.test) == (("bus", "train"), None)


def test_of_two_test_folders_one_is_chosen(tmp_path):
    folder_of(tmp_path, ["train/a/1.png", "val/a/2.png", "test/a/3.png", "odd/a/4.png"])
    with pytest.raises(DataError, match=r"test and val are both there.*move one of them .*test='test'\) chooses"):
        load_image_folder(tmp_path)
    assert load_image_folder(tmp_path, test="val").test.paths[0].endswith("2.png")
    assert load_image_folder(tmp_path, test="odd").test.paths[0].endswith("4.png")
    with pytest.raises(FileNotFoundError, match="gone: no such folder"):
        load_image_folder(tmp_path, test="gone")
    with pytest.raises(DataError, match="needs a folder 'train'"):
        load_image_folder(tmp_path / "train", test="val")


def test_the_source_is_a_digest_of_paths_sizes_and_labels(tmp_path):
    folder_of(tmp_path / "d", ["train/a/1.png", "train/b/2.png", "val/b/3.png"])
    size = {name: (tmp_path / "d" / name).stat().st_size for name in ("train/a/1.png", "train/b/2.png", "val/b/3.png")}
    text = "".join(f"{name}\0{size[name]}\0{label}\n" for name, label in zip(size, (0, 1, 1), strict=True))
    assert load_image_folder(tmp_path / "d").sources == {"d": hashlib.sha256(text.encode()).hexdigest()}


def test_links_are_followed_and_junk_is_passed_over(tmp_path):
    folder_of(tmp_path, ["d/a/1.png", "elsewhere/2.png", "elsewhere/x/3.png"])
    (tmp_path / "d/a/link.png").symlink_to(tmp_path / "elsewhere/2.png")
    (tmp_path / "d/b").symlink_to(tmp_path / "elsewhere/x")
    for name in ("a/.hidden.png", "a/Thumbs.db", "README.md", ".DS_Store"):
        (tmp_path / "d" / name).write_bytes(b"")
    (tmp_path / "d/__MACOSX").mkdir()
    data = load_image_folder(tmp_path / "d")
    assert data.classes == ("a", "b")
    assert [os.path.basename(path) for path in data.train.paths] == ["1.png", "link.png", "3.png"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "c").mkdir(), "c: a class without images"),
        (lambda d: (d / "a/notes.txt").write_text("x"), r"notes\.txt: not an image's name"),
        (lambda d: (d / "a/2.png").mkdir(), r"2\.png: a folder; images are expected directly in .*a$"),
        (lambda d: save(d / "loose.png"), r"loose\.png: an image outside any class"),
        (lambda d: (d / "a/2.png").symlink_to(d / "gone.png"), r"2\.png: a link to nothing"),
        (lambda d: folder_of(d, ["train/a/1.png", "val/a/1.png", "val/z/1.png"]), r"val: classes that .*train has not: 'z'"),
    ],
)
def test_what_does_not_belong_in_a_folder_is_named(tmp_path, spoil, message):
    folder_of(tmp_path, ["a/1.png", "b/1.png"])
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        load_image_folder(tmp_path)


def test_a_folder_around_the_classes_is_told_from_a_class(tmp_path):
    folder_of(tmp_path, ["outer/a/1.png", "outer/b/1.png"])
    with pytest.raises(DataError, match=r"outer/a: a folder; .* if its folders are the classes, give .*outer$"):
        load_image_folder(tmp_path)


def test_an_empty_folder_has_no_classes(tmp_path):
    with pytest.raises(DataError, match="no class folders"):
        load_image_folder(tmp_path)


def test_image_files_need_one_label_each(tmp_path):
    files = ImageFiles((tmp_path / "a.png", "b.png"), np.array([1, 0], np.int32))
    assert files.paths == (str(tmp_path / "a.png"), "b.png")
    assert files.labels.dtype == np.int64
    assert repr(files) == f"ImageFiles(2 files, the first {str(tmp_path / 'a.png')!r})"
    for labels in ([0], [0.0, 1.0], [[0, 1]]):
        with pytest.raises(DataError, match="labels must be 2 integers, one per path"):
            ImageFiles(("a", "b"), labels)
    with pytest.raises(DataError, match=r"labels must be in \[0, inf\), got -1"):
        ImageFiles(("a", "b"), [0, -1])


def test_the_readers_import_without_pillow_and_say_how_to_get_it():
    code = """
import sys
sys.modules["PIL"] = None
from noiseproof.data import ImageLoader, load_image_folder, read_image
try:
    read_image("x.png")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "images are read with pillow: pip install '.[lab]' in noiseproof's repository"


def test_code_that_needs_inputs_is_told_when_there_are_only_files():
    files = ImageFiles(("a.png",), [0])
    split = Split(np.zeros((1, 2), np.float32), np.zeros(1, np.int64))
    assert in_memory(split) is split
    with pytest.raises(TypeError, match="the inputs must be in memory, got ImageFiles"):
        in_memory(Dataset("d", files, None, ("a",)).train)


def png_of(*chunks):
    parts = [len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big") for kind, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("sides", "content", "message"),
    [
        ((8, 8), [], "not a readable image: it has no pixels"),
        ((0, 0), [(b"IDAT", zlib.compress(b""))], "an image without pixels; leave it out"),
        ((8, 8), [(b"IDAT", zlib.compress(b""))], "not a readable image: image file is truncated"),
    ],
)
def test_a_png_without_pixels_is_said_to_have_none(tmp_path, sides, content, message):
    header = (b"IHDR", b"".join(side.to_bytes(4, "big") for side in sides) + b"\x08\x02\0\0\0")
    (tmp_path / "a.png").write_bytes(png_of(header, *content, (b"IEND", b"")))
    with pytest.raises(DataError, match=rf"a\.png: {message}"):
        read_image(tmp_path / "a.png")

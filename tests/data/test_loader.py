"""The loader of image files: the same batches however they are made, every image once, and faults that keep their path."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from noiseproof.data import DataError, ImageFiles, ImageLoader, RandomResizedCrop, Resize, ResizeCenterCrop, read_image
from noiseproof.train.batch_loader import photograph_augment

COUNT = 23


@pytest.fixture(scope="module", autouse=True)
def _quick_workers():
    """Workers are forked from a server that has torch already; else each would take seconds to import it."""
    multiprocessing.set_forkserver_preload(["noiseproof.data.loader"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    source = np.random.default_rng(0)
    for k in range(COUNT):
        pixels = source.integers(0, 256, (30 + k, 41, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{k}.{'png' if k % 2 else 'jpg'}")
    paths = tuple(str(folder / f"{k}.{'png' if k % 2 else 'jpg'}") for k in range(COUNT))
    return ImageFiles(paths, np.arange(COUNT) % 7)


def loader(files, framing=None, **options):
    options = {"batch_size": 5, "seed": 1, "shuffle": True, "workers": 0, "device": "cpu"} | options
    return ImageLoader(files, framing or RandomResizedCrop(16), **options)


def epoch(loader, n=0):
    """The batches joined, and their sizes."""
    batches = list(loader.epoch(n))
    joined = [torch.cat(tensors) for tensors in zip(*batches, strict=True)]
    return *joined, [len(batch.labels) for batch in batches]


def same(one, other):
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(one, other, strict=True))


def damaged(files, where, tmp_path):
    """The same files, with truncated copies at some places."""
    paths = list(files.paths)
    for k in where:
        raw = Path(paths[k]).read_bytes()
        paths[k] = str(tmp_path / Path(paths[k]).name)
        Path(paths[k]).write_bytes(raw[: len(raw) // 2])
    return dataclasses.replace(files, paths=tuple(paths))


def test_a_batch_has_pictures_labels_and_places(files):
    batch = next(loader(files).epoch(0))
    assert batch.images.shape == (5, 3, 16, 16)
    assert batch.images.dtype == torch.uint8
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.labels.dtype == batch.indices.dtype == torch.int64
    assert torch.equal(batch.labels, torch.from_numpy(files.labels)[batch.indices])


def test_the_files_come_in_their_order_without_shuffle(files):
    images, labels, indices, sizes = epoch(loader(files, Resize(30, 41), shuffle=False))
    assert indices.tolist() == list(range(COUNT))
    assert labels.tolist() == files.labels.tolist()
    assert sizes == [5, 5, 5, 5, 3]
    assert len(loader(files)) == 5
    assert np.array_equal(images[0].permute(1, 2, 0).numpy(), read_image(files.paths[0]))


def test_the_batches_do_not_depend_on_the_number_of_workers(files):
    expected = [epoch(loader(files), n) for n in (0, 1)]
    for workers in (1, 2):
        made = loader(files, workers=workers)
        # Epochs in another order, and twice: the workers are the same ones.
        found = [epoch(made, n) for n in (1, 0, 1)]
        assert same(found[0], expected[1])
        assert same(found[1], expected[0])
        assert same(found[2], expected[1])
        made.close()


def test_epochs_and_seeds_differ_in_order_and_in_parts(files):
    first, second, other = epoch(loader(files)), epoch(loader(files), 1), epoch(loader(files, seed=2))
    by_index = [images[indices.argsort()] for images, _, indices, _ in (first, second, other)]
    assert first[2].tolist() != second[2].tolist() != other[2].tolist()
    assert (by_index[0] != by_index[1]).flatten(1).any(1).all()
    assert (by_index[0] != by_index[2]).flatten(1).any(1).all()


def test_a_part_depends_on_the_image_and_not_on_its_batch(files):
    images, _, indices, _ = epoch(loader(files, batch_size=5))
    others, _, places, _ = epoch(loader(files, batch_size=7, shuffle=False))
    assert torch.equal(images[indices.argsort()], others[places.argsort()])


def test_orders_are_fair():
    """Every image is first, and next to every other, about equally often: within 6 standard deviations for 484 counts."""
    files = ImageFiles(tuple(map(str, range(22))), np.zeros(22, int))
    trials, first, pairs = 4000, np.zeros(22), np.zeros((22, 22))
    made = loader(files)
    for n in range(trials):
        order = np.concatenate([request.indices for request in made._requests(n)])
        assert sorted(order) == list(range(22))
        first[order[0]] += 1
        pairs[order[:-1], order[1:]] += 1
    assert np.abs(first - trials / 22).max() < 6 * (trials / 22) ** 0.5
    expected = trials * 21 / (22 * 21)
    assert np.abs(pairs[~np.eye(22, dtype=bool)] - expected).max() < 6 * expected**0.5


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_processes_together_see_the_batches_of_one(files, world, shuffle):
    alone = list(loader(files, batch_size=6, shuffle=shuffle).epoch(3))
    ranks = [loader(files, batch_size=6, shuffle=shuffle, rank=rank, world=world) for rank in range(world)]
    together = [list(made.epoch(3)) for made in ranks]
    assert [len(batches) for batches in together] == [len(made) for made in ranks] == [len(alone)] * world
    for k, batch in enumerate(alone):
        assert same(batch, [torch.cat(tensors) for tensors in zip(*(batches[k] for batches in together), strict=True)])


def test_in_evaluation_a_process_may_have_a_step_less_and_every_image_comes_once(files):
    ranks = [loader(files, batch_size=11, shuffle=False, rank=rank, world=11) for rank in range(11)]
    assert sorted(index for made in ranks for batch in made.epoch(0) for index in batch.indices.tolist()) == list(range(COUNT))
    assert sorted(len(made) for made in ranks) == [2] * 10 + [3]
    assert [len(list(made.epoch(0))) for made in ranks] == [len(made) for made in ranks]


def test_in_training_unequal_steps_are_refused(files):
    with pytest.raises(ValueError, match=r"the last batch has 1 images for 2 processes.*pass drop_last=True"):
        loader(files, batch_size=22, world=2)
    assert [len(loader(files, batch_size=22, rank=rank, world=2, drop_last=True)) for rank in (0, 1)] == [1, 1]


def test_a_last_batch_that_is_not_full_is_dropped_on_request(files):
    made = loader(files, drop_last=True)
    *_, indices, sizes = epoch(made)
    assert sizes == [5] * 4
    assert len(made) == 4
    assert indices.tolist() == epoch(loader(files))[2][:20].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_a_data_error_with_its_path(files, workers, tmp_path):
    spoiled = damaged(files, [7], tmp_path)
    made = loader(spoiled, workers=workers)
    with pytest.raises(DataError) as caught:
        list(made.epoch(0))
    assert str(caught.value).startswith(f"{spoiled.paths[7]}: not a readable image: ")
    assert "Traceback" not in str(caught.value)
    with pytest.raises(DataError):  # the loader is not broken by it, and says it again
        list(made.epoch(1))
    made.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_all_damaged_images_of_an_epoch_are_counted_and_three_are_named(files, workers, tmp_path):
    where = [2, 3, 9, 11, len(files) - 1]
    spoiled = damaged(files, where, tmp_path)
    made = loader(spoiled, workers=workers)
    with pytest.raises(DataError) as caught:
        list(made.epoch(0))
    assert str(caught.value).endswith(f" (5 of {len(files)} images are damaged)")
    assert sum(spoiled.paths[k] in str(caught.value) for k in where) == 3
    made.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_file_is_an_error_with_its_name(files, workers, tmp_path):
    lost = dataclasses.replace(files, paths=(*files.paths[:-1], str(tmp_path / "gone.png")))
    made = loader(lost, workers=workers)
    with pytest.raises(FileNotFoundError) as caught:
        list(made.epoch(0))
    assert caught.value.filename == str(tmp_path / "gone.png")
    made.close()


def test_an_image_too_long_to_resize_is_a_data_error_with_its_path(tmp_path):
    Image.new("RGB", (20000, 1)).save(tmp_path / "line.png")
    with pytest.raises(DataError, match=r"line\.png: 1 x 20000 pixels would become 256 x 5120000; crop it"):
        list(loader(ImageFiles((tmp_path / "line.png",), [0]), ResizeCenterCrop()).epoch(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_may_be_left_for_another(files, workers):
    made = loader(files, workers=workers, batch_size=2)
    expected = epoch(loader(files, batch_size=2), 1)
    left = made.epoch(0)
    next(left)
    assert same(epoch(made, 1), expected)
    with pytest.raises(RuntimeError, match="epoch 0 is over: another epoch of this loader has begun"):
        next(left)
    unused, begun = made.epoch(0), made.epoch(1)
    next(begun)
    with pytest.raises(RuntimeError, match="epoch 0 is over"):
        next(unused)
    made.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_closing_stops_the_workers_in_the_midst_of_an_epoch(files, workers):
    before = set(multiprocessing.active_children())
    made = loader(files, workers=workers, batch_size=2)
    left, unused = made.epoch(0), made.epoch(1)
    with pytest.raises(RuntimeError, match="epoch 0 is over: another"):
        next(left)
    left = made.epoch(0)
    next(left)
    assert len(set(multiprocessing.active_children()) - before) == workers
    made.close()
    assert not set(multiprocessing.active_children()) - before
    for over, n in ((left, 0), (unused, 1)):
        with pytest.raises(RuntimeError, match=f"epoch {n} is over: the loader was closed"):
            next(over)
    assert same(epoch(made, 1), epoch(loader(files, batch_size=2), 1))
    assert len(set(multiprocessing.active_children()) - before) == workers
    made.close()
    made.close()
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_the_workers_end_with_a_main_process_that_is_killed(files, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, time
            from noiseproof.data import ImageFiles, ImageLoader, Resize

            if __name__ == "__main__":
                paths = sys.argv[1:]
                files = ImageFiles(paths, [0] * len(paths))
                loader = ImageLoader(files, Resize(8, 8), batch_size=4, seed=0, shuffle=True, device="cpu", workers=2)
                batches = loader.epoch(0)
                next(batches)
                print(*(child.pid for child in multiprocessing.active_children()), flush=True)
                time.sleep(600)
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script), *files.paths], stdout=subprocess.PIPE, text=True) as main:
        workers = [int(number) for number in main.stdout.readline().split()]
        main.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while left := [worker for worker in workers if Path("/proc", str(worker)).exists()]:
        if time.monotonic() > deadline:
            for worker in left:
                os.kill(worker, signal.SIGKILL)
            pytest.fail(f"{len(left)} workers were still there")
        time.sleep(0.05)


def test_torchs_own_generators_are_left_alone(files):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    epoch(loader(files))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_every_image_is_decoded_once_an_epoch_by_the_same_workers(files, tmp_path):
    """In a plain script, which says who framed what; its framing pickles because it is the script's own."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, torch
            from noiseproof.data import ImageFiles, ImageLoader, Resize

            class Noted(Resize):
                def frame(self, image, key):
                    with open(sys.argv[1], "a") as log:
                        log.write(f"{os.getpid()} {os.getppid()} {key[-1]}\\n")
                    return super().frame(image, key)

            if __name__ == "__main__":
                paths = sys.argv[2:]
                files = ImageFiles(paths, [0] * len(paths))
                options = dict(batch_size=4, seed=0, shuffle=True, device="cpu", workers=2)
                loader = ImageLoader(files, Noted(8, 8), **options)
                assert sum(len(batch.labels) for n in range(3) for batch in loader.epoch(n)) == 3 * len(paths)
                print(os.getpid())
            """
        )
    )
    command = [sys.executable, "-W", "error", str(script), str(tmp_path / "log"), *files.paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    lines = [line.split(" ", 2) for line in (tmp_path / "log").read_text().splitlines()]
    for n in range(3):
        assert sorted(int(index) for *_, index in lines[COUNT * n : COUNT * (n + 1)]) == list(range(COUNT))
    workers, parents = ({line[k] for line in lines} for k in (0, 1))
    assert len(workers) == 2
    assert done.stdout.strip() not in workers
    if "forkserver" in multiprocessing.get_all_start_methods():
        assert done.stdout.strip() not in parents  # no copy of a process that has threads


def test_pictures_go_through_the_experiments_augmentation(files):
    batch = next(loader(files, RandomResizedCrop(224)).epoch(0))
    augment = photograph_augment(cropped=True)
    assert [type(operation).__name__ for operation in augment.operations] == ["HorizontalFlip", "ColorJitter"]
    assert augment(batch.images, torch.Generator().manual_seed(0)).shape == (5, 3, 224, 224)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_batches_are_the_same(files):
    found = epoch(loader(files, device="cuda", workers=2))
    assert found[0].is_cuda
    assert same([tensor.cpu() for tensor in found[:3]], epoch(loader(files))[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"batch_size must be at least 1, got 0"),
        ({"seed": -1}, r"seed must be at least 0, got -1"),
        ({"seed": 2**64}, r"seed must be in \[0, 2\*\*64\), got"),
        ({"workers": -1}, r"workers must be at least 0, got -1"),
        ({"rank": 2, "world": 2, "batch_size": 4}, r"rank must be in \[0, 1\], got 2"),
        ({"world": 2}, "batch_size must be a multiple of world, 2, got 5"),
        ({"batch_size": 24, "drop_last": True}, "files must fill a batch, got 23"),
    ],
)
def test_bad_options_are_refused_with_the_reason(files, options, message):
    with pytest.raises(ValueError, match=message):
        loader(files, **options)


def test_no_files_are_refused():
    with pytest.raises(ValueError, match="files must fill a batch, got 0"):
        loader(ImageFiles((), np.zeros(0, int)))


def test_the_wrong_kind_of_argument_is_refused_at_once(files):
    with pytest.raises(TypeError, match="files must be ImageFiles, got tuple"):
        loader(files.paths)
    with pytest.raises(TypeError, match=r"framing must be a Framing \(Resize, ResizeCenterCrop, RandomResizedCrop\), got 224"):
        loader(files, 224)


def test_epochs_count_from_zero(files):
    with pytest.raises(ValueError, match=r"epoch must be at least 0, got -1"):
        loader(files).epoch(-1)

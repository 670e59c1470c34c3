"""Images per second from JPEG files on this machine: decoding alone, decoding and framing, and the loader, by processes.

    python benchmarks/loader.py [--images 512] [--processes 1 2] [--rounds 7] [--batch 32] [--output FILE]

The files are 500 x 375 pixels, quality 90, waves with noise, about as large as photographs of that size. The floors are plain
loops in as many processes, started the same way as the loader's workers: "decode" is ``read_image`` alone, "frame" adds the
framing. They take turns with the loader; each number is its fastest round, for the work is always the same and whatever else
the machine does only slows it. The last two columns are the ratios to read. Starting the processes is not timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import PIL.Image
from PIL import features

from noiseproof.data import Framing, ImageFiles, ImageLoader, RandomResizedCrop, Resize, read_image
from noiseproof.data.images import decode

FRAMINGS: dict[str, Framing] = {"random resized crop 224": RandomResizedCrop(224), "resize 256": Resize(256, 256)}


def make_files(folder: Path, count: int) -> ImageFiles:
    """Waves with a little noise: their JPEG files take about 2 bits a pixel."""
    rows, columns = np.mgrid[:375, :500]
    paths = []
    for k in range(count):
        source = np.random.default_rng(k)
        phase, slope = source.uniform(0, 6, 3), source.uniform(10, 60, (2, 3))
        waves = np.sin(rows[..., None] / slope[0] + phase) + np.cos(columns[..., None] / slope[1] - phase)
        pixels = 128 + 55 * waves + source.normal(0, 6, (375, 500, 1))
        paths.append(str(folder / f"{k}.jpg"))
        PIL.Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return ImageFiles(tuple(paths), np.zeros(count, np.int64))


def decode_all(paths: tuple[str, ...]) -> None:
    for path in paths:
        read_image(path)


def frame_all(paths: tuple[str, ...], framing: Framing) -> None:
    for k, path in enumerate(paths):
        np.asarray(framing.frame(decode(path), (0, 0, 1, k)))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(files: ImageFiles, framing: Framing, processes: int, batch: int, rounds: int) -> dict[str, float]:
    """Images per second of each contestant."""
    loader = ImageLoader(files, framing, batch_size=batch, seed=0, shuffle=True, workers=processes, device="cpu")
    shares = [files.paths[k::processes] for k in range(processes)]
    context = multiprocessing.get_context("forkserver")
    epochs = iter(range(rounds + 1))
    with ProcessPoolExecutor(processes, context) as pool:
        contestants: dict[str, Callable[[], object]] = {
            "decode": lambda: list(pool.map(decode_all, shares)),
            "frame": lambda: list(pool.map(frame_all, shares, [framing] * processes)),
            "loader": lambda: sum(len(made.labels) for made in loader.epoch(next(epochs))),
        }
        times = [{name: seconds(work) for name, work in contestants.items()} for _ in range(rounds + 1)][1:]
    loader.close()
    return {name: len(files) / min(turn[name] for turn in times) for name in contestants}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the loader of image files.")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--output", type=Path, help="append the results to this file as JSON lines")
    chosen = parser.parse_args()
    multiprocessing.set_forkserver_preload(["noiseproof.data.loader"])
    libraries = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version_feature('libjpeg_turbo')}"
    print(f"Python {platform.python_version()}, {libraries}, batch {chosen.batch}, {chosen.images} images")
    print(f"{'':26}{'decode':>8}{'frame':>8}{'loader':>8}   images/s   loader/frame   loader/decode")
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), chosen.images)
        size = statistics.mean(Path(path).stat().st_size for path in files.paths)
        for name, framing in FRAMINGS.items():
            for processes in chosen.processes:
                speed = measure(files, framing, processes, chosen.batch, chosen.rounds)
                ratios = speed["loader"] / speed["frame"], speed["loader"] / speed["decode"]
                numbers = "".join(f"{speed[key]:8.0f}" for key in ("decode", "frame", "loader"))
                print(f"{name:16}{processes:2} processes{numbers}{'':14}{ratios[0]:9.2f}{ratios[1]:15.2f}", flush=True)
                if chosen.output:
                    row = {"framing": name, "processes": processes, "batch": chosen.batch, "images": chosen.images}
                    row |= {"bytes_per_image": round(size), "libraries": libraries, "images_per_second": speed}
                    with chosen.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
        print(f"files of {size:.0f} bytes")


if __name__ == "__main__":
    main()

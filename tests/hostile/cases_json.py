"""JSON that is hostile to whoever reads it: labels, transition matrices, manifests."""

from pathlib import Path

from hostile.harness import Case
from noiseproof import noise

ATTEMPTS = {"labels": noise.load_labels, "matrix": noise.from_file}


def text(content: str, name: str = "odd.json"):
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(content, encoding="utf-8")
        return path

    return make


CASES = [
    Case(f"{reader}-cut", text("[[1, 2"), reader, "odd.json: no (labels|transition matrix).*Expecting") for reader in ATTEMPTS
]

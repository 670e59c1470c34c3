"""``noiseproof embed``: the embeddings of texts or images by a pretrained model, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.cli.options import EmbeddingProgress, datasets
from noiseproof.io.console import console, errors_reported, import_local_modules, stoppable

PLACE = "Embed a column of texts or images of a table, image files, an .npz file or a data set with a name."
Data = Annotated[str, typer.Argument(metavar="DATA", help=PLACE, autocompletion=datasets)]
Encoder = Annotated[
    str,
    typer.Option(
        metavar="MODEL", help="Use this sentence-transformers or vision model: its name or folder, or module:function."
    ),
]
Out = Annotated[Path, typer.Option(metavar="FILE", help="Write the embeddings [N, D] into this .npy file.")]
Column = Annotated[str | None, typer.Option(help="Embed this column, if the table contains several with texts or images.")]
Split = Annotated[str | None, typer.Option(help="Embed the train or the test split of data with both; train by default.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def embed(data: Data, encoder: Encoder, out: Out, column: Column = None, split: Split = None, quiet: Quiet = False) -> None:
    """Embed texts or images by a pretrained model, and write one vector for each.

    The data need no labels. A sentence-transformers model embeds texts, and a vision model of transformers embeds images. A
    function of your own, from a list of texts or paths to vectors, embeds either. Batches are cached by content and model
    in ~/.cache/noiseproof or $NOISEPROOF_CACHE, so an interrupted command resumes. The other commands accept --encoder
    themselves; the file is for *noiseproof audit --features* and for your own code.
    """
    with stoppable(lambda: "the same command resumes after the last batch"), errors_reported():
        from noiseproof.data import embed_data
        from noiseproof.io.files import save_array, write_whole

        if out.suffix.lower() != ".npy":
            raise ValueError(f"--out {out}: embeddings are written as an .npy file")
        import_local_modules(encoder)
        found = embed_data(data, encoder, column=column, split=split, on_progress=None if quiet else EmbeddingProgress())
        write_whole(out, lambda place: save_array(place, found))
    if not quiet:
        text = f"{len(found):,} embeddings of {found.shape[1]} numbers: {out}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)

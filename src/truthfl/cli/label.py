"""`truthfl label`: label samples in the browser.

Imports `files` and, when called, `learning.task_choice`, `page`, `samples` and the ledger.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.learning.task import Task
    from truthfl.ledger.signing import PrivateKey
    from truthfl.samples.sample import Source

DIGITS = tuple("0123456789")
HOME = Path("truthfl-home")


def label(
    data: Annotated[
        Path,
        typer.Option(help="Folder of PNG or JPEG files, .npz or idx file of pictures, .csv or .jsonl file of others."),
    ],
    home: Annotated[Path, typer.Option(help="Folder for labels.db and the job's documents.")] = HOME,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Reads the data: tables, texts, FILE.py:Class, or FILE.toml with a [task]."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Names of the classes, if no offer has them; 0 to 9 otherwise.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key; the file key in the home folder.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the labels to a .json (Label Studio's) or .csv file.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Take labels in from such a file.")
    ] = None,
) -> None:
    """Label pictures, texts or rows of a table in a page in your own browser; nothing leaves this machine.

    Every decision is on the disk before the next one shows, so it can be left and gone on with at any time. With
    --export or --import, labels are written or taken in, and no page is opened.

    Example: truthfl label --data photos --classes cat,dog,other
    """
    from truthfl.samples.open_samples import open_samples

    named = None if task is None else _named_task(task)
    source = open_samples(data, named)
    names = _classes(classes, (named and named.classes) or DIGITS)
    print_unreadable_samples(source)
    if export is not None or import_ is not None:
        _exchange(home, source, names, export, import_)
        return
    _serve(home, source, names, _key(home, key), port, no_browser)


def _named_task(text: str) -> Task | None:
    """The task that a person named; None for pictures."""
    from truthfl.learning.task_choice import PICTURES, TaskChoice

    choice = TaskChoice.of_argument(text)
    return None if choice == PICTURES else choice.load()


def open_in_browser(url: str, home: Path) -> None:
    """Open the address in the browser by a private file that redirects to it.

    The address contains a token, and all users of the machine can see the arguments of a process.
    """
    file = home / "page.html"
    redirect = f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}">\n'
    write_file(file, redirect, private=True)
    webbrowser.open(file.resolve().as_uri())


def print_unreadable_samples(source: Source) -> None:
    for problem in source.problems:
        print(f"truthfl: passed over: {plain(problem.reason)}", file=sys.stderr)


def _serve(
    home: Path, source: Source, classes: tuple[str, ...], key: PrivateKey | None, port: int, no_browser: bool
) -> None:
    from truthfl.page.open_page import open_page

    with open_page(home, source, classes, key, port=port) as opened:
        print(f"{len(source):,} {source.kind}s from {source.place}; labels are kept in {home / 'labels.db'}.")
        print(f"The page, for this machine alone: {opened.url}")
        print("Ctrl+C stops it; the same command goes on where it was.", flush=True)
        if not no_browser:
            open_in_browser(opened.url, home)
        try:
            opened.wait()
        except KeyboardInterrupt:
            print("\nStopped. All decisions are kept.")


def _exchange(home: Path, source: Source, classes: tuple[str, ...], export: Path | None, import_: Path | None) -> None:
    from truthfl.page.document_views import offer_in_force
    from truthfl.samples.label_exchange import export_labels, import_labels
    from truthfl.samples.label_store import FILE_NAME, LabelStore

    offer = offer_in_force(home)
    classes = classes if offer is None else offer.job.classes
    store = LabelStore(home / FILE_NAME)
    try:
        if import_ is not None:
            print(f"{import_labels(import_, source, store, classes):,} labels taken in from {import_}.")
        if export is not None:
            print(f"{export_labels(export, source, store):,} labels of {len(source):,} samples written to {export}.")
    finally:
        store.close()


def _classes(option: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the option, or the default if it is None."""
    if option is None:
        return default
    names = tuple(name.strip() for name in option.split(","))
    if len(names) < 2 or not all(names) or len(set(names)) != len(names):
        raise InputError(f"classes is {option!r}; it must be two or more different names, with commas between.")
    return names


def _key(home: Path, option: Path | None) -> PrivateKey | None:
    default = home / "key"
    if option is None and not default.exists():
        return None
    from truthfl.ledger.signing import read_key

    return read_key(option or default)

"""`truthfl label`: label samples in the browser."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.contracts import CustomContract
from truthfl.cli.participant.pages import (
    DEFAULT_PORT,
    DIGITS,
    Phone,
    PhoneAddress,
    PhonePort,
    open_in_browser,
    phone_access,
    print_unreadable_samples,
    tell_phone_page,
)
from truthfl.errors import InputError
from truthfl.learning.data.class_sets import require_no_separator
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.page.serving import open_page
from truthfl.page.work import document_names
from truthfl.samples.handmade_labels import quick_opinion
from truthfl.samples.label_exchange import export_labels, import_labels
from truthfl.samples.label_store import LABELS_FILE, LabelStore, other_labels, other_labels_in_words
from truthfl.samples.sources import open_samples

if TYPE_CHECKING:
    from truthfl.instructions import Instructions
    from truthfl.job.classes_section import ClassesSection
    from truthfl.ledger.signing import PrivateKey
    from truthfl.page.phone import PhoneAccess
    from truthfl.samples.sample import Source

HOME = Path("truthfl-home")


def label(
    data: Annotated[
        Path,
        typer.Option(help="Folder of pictures, .npz or idx file of pictures, .csv or .jsonl file of others."),
    ],
    home: Annotated[Path, typer.Option(help="Folder for labels.db and the job's documents.")] = HOME,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Reads the data: tables, texts, FILE.py:Class, or FILE.toml with a [task]."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Names of the classes, if no offer has them; 0 to 9 otherwise.")
    ] = None,
    _contract: CustomContract = None,
    several: Annotated[
        bool, typer.Option("--several", help="A sample may have several classes; Enter confirms.")
    ] = False,
    instructions: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="File with [classes]: descriptions and examples of each.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key; the file key in the home folder.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")] = False,
    phone: Phone = False,
    phone_address: PhoneAddress = None,
    phone_port: PhonePort = DEFAULT_PORT,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the labels to a .json (Label Studio's) or .csv file.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Import labels from such a file.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --import: the file's labels replace yours where they differ.")
    ] = False,
    keep_other_classes: Annotated[
        bool, typer.Option("--keep-other-classes", help="Go on despite labels of other classes; they are kept.")
    ] = False,
) -> None:
    """Label pictures, texts or rows of a table in a page in your own browser. Nothing leaves this machine.

    Every decision is on the disk before the next sample shows, so you can stop and go on at any time. With --export or
    --import, labels are written or read, and no page is opened. With --phone, your phone can open the page too, in
    your own network.

    Example: truthfl label --data photos --classes cat,dog,other
    """
    choice = None if task is None else TaskChoice.of_argument(task)
    named = None if choice is None else choice.load()
    source = open_samples(data, None if choice is None or choice.is_pictures else named, home)
    described = None if instructions is None else _described_classes(instructions)
    told_of = () if described is None or len(described.names) == 1 else described.names
    names = _classes(classes, (named and named.classes) or told_of or DIGITS)
    if described is not None:
        described.require_known(names)
    several = several or (named is not None and named.several_labels)
    if several:
        require_no_separator(names)
    access = phone_access(phone, phone_address, phone_port)
    print_unreadable_samples(source)
    if export is not None or import_ is not None:
        _exchange(home, source, names, several, export, import_, replace)
        return
    _tell_other_classes(home, source, names, several, keep_other_classes)
    told = None if described is None else _kept_instructions(described, home)
    _serve(home, source, names, several, _key(home, key), told, port, no_browser, access)


def _described_classes(file: Path) -> ClassesSection:
    from truthfl.job import read_classes

    return read_classes(file)


def _kept_instructions(section: ClassesSection, home: Path) -> Instructions | None:
    """The instructions, with their examples in the home folder."""
    from truthfl.federation.protocol.offers import kept_instructions

    return kept_instructions(section, home)


def _serve(
    home: Path,
    source: Source,
    classes: tuple[str, ...],
    several: bool,
    key: PrivateKey | None,
    instructions: Instructions | None,
    port: int,
    no_browser: bool,
    phone: PhoneAccess | None,
) -> None:
    with open_page(
        home,
        source,
        classes,
        key,
        instructions=instructions,
        several=several,
        port=port,
        phone=phone,
        make_opinion=partial(quick_opinion, source),
    ) as opened:
        print(f"{len(source):,} {source.kind}s from {source.place}; labels are kept in {home / 'labels.db'}.")
        print(f"The page, for this machine alone: {opened.url}")
        tell_phone_page(opened, source)
        print("Ctrl+C stops it; the same command goes on where it was.", flush=True)
        if not no_browser:
            open_in_browser(opened.url, home)
        try:
            opened.wait()
        except KeyboardInterrupt:
            print("\nStopped. All decisions are kept.")


def _tell_other_classes(home: Path, source: Source, classes: tuple[str, ...], several: bool, keep: bool) -> None:
    """Say that there are labels of other classes than these, and ask whether to go on."""
    file = home / LABELS_FILE
    if not file.exists():
        return
    if document_names(home / "offers"):
        classes, several = _classes_of_offer(home, classes, several)
    other = other_labels(file, classes, source.ids, several=several)
    if not other:
        return
    sentence = f"In {file}, {other_labels_in_words(other, classes)}"
    if not keep and not sys.stdin.isatty():
        raise InputError(f"{sentence} Say --keep-other-classes to go on, or name another folder with --home.")
    print(f"truthfl: {sentence}", file=sys.stderr)
    if not keep and not typer.confirm("Go on with the new classes?"):
        raise typer.Exit(0)


def _classes_of_offer(home: Path, classes: tuple[str, ...], several: bool) -> tuple[tuple[str, ...], bool]:
    """The classes of the offer in the folder, and whether a sample may have several; without an offer, these."""
    from truthfl.page.documents import offer_in_force

    offer = offer_in_force(home)
    return (classes, several) if offer is None else (offer.job.classes, offer.job.several_labels)


def _exchange(
    home: Path,
    source: Source,
    classes: tuple[str, ...],
    several: bool,
    export: Path | None,
    import_: Path | None,
    replace: bool,
) -> None:
    classes, several = _classes_of_offer(home, classes, several)
    store = LabelStore(home / LABELS_FILE)
    try:
        if import_ is not None:
            may_replace = _may_replace if not replace else lambda _: True
            taken = import_labels(import_, source, store, classes, may_replace, several=several)
            print(f"{taken:,} labels imported from {import_}.")
        if export is not None:
            written = export_labels(export, source, store, several=several)
            print(f"{written:,} labels of {len(source):,} samples written to {export}.")
    finally:
        store.close()


def _may_replace(count: int) -> bool:
    """Whether the user agrees, at a terminal, to replace this many labels; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    one = "label differs from the one" if count == 1 else "labels differ from the ones"
    return typer.confirm(f"{count:,} {one} that you have. Take the file's? Undo on the page brings yours back")


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

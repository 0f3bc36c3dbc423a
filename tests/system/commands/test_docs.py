"""Every code block in README and docs is executed: Python as doctests, commands with their output, jobs as jobs."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import truthfl
from truthfl.job import read_job

ROOT = Path(__file__).parents[3]
# The commands of federation.md and own_task.md, for several machines at once, are run by tests of their own.
GUIDES = {"federation.md", "own_task.md"}
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
EXECUTED = [page for page in PAGES if page.name not in GUIDES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def without_numbers(lines):
    """Words alone, one after the other, however wide the columns and wherever lines are broken."""
    return re.sub(r"-?[\d,]*\d(\.\d+)?", "#", " ".join(lines)).replace("─", "").split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_languages_that_are_executed(page):
    assert {language for language, _ in FENCE.findall(page.read_text())} <= {"python", "console", "toml"}
    assert page.read_text().count("```") == 2 * len(FENCE.findall(page.read_text()))


@pytest.mark.parametrize("page", [page for page in EXECUTED if blocks(page, "python")], ids=lambda page: page.name)
def test_python(page):
    text = "\n".join(blocks(page, "python"))
    assert ">>>" in text
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    told = []
    runner = doctest.DocTestRunner()
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    assert runner.tries > 3


@pytest.mark.parametrize(
    ("page", "block"),
    [(page, block) for page in EXECUTED for block in blocks(page, "console")],
    ids=lambda x: str(x)[-20:],
)
def test_commands(page, block, tmp_path):
    pieces = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    assert pieces[0] == "", f"{page.name}: a console block starts with a command"
    for command, shown in zip(pieces[1::2], pieces[2::2], strict=True):
        words = shlex.split(command)
        if words[0] == "make":  # `make test` is what runs this test, and `make demo` what the next block runs
            done = subprocess.run(
                ["make", "--dry-run", "--no-print-directory", *words[1:]], cwd=ROOT, capture_output=True, text=True
            )
            tests = r'pytest -n 3 --dist worksteal -m "not long"; tests=\$\?;'
            runs = {"demo": r"truthfl run\n\Z", "test": tests}[words[1]]
            assert re.search(runs, done.stdout), done.stdout + done.stderr
            continue
        assert words[0] == "truthfl"
        where = tmp_path if "$ truthfl run" in block else ROOT
        done = subprocess.run([sys.executable, "-m", *words], cwd=where, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        obtained, wanted = ([line.rstrip() for line in text.rstrip().splitlines()] for text in (done.stdout, shown))
        if words[1] in ("run", "ledger"):  # training differs in the last digits between machines
            obtained, wanted = without_numbers(obtained), without_numbers(wanted)
        assert obtained == wanted


@pytest.mark.parametrize("page", [page for page in EXECUTED if blocks(page, "toml")], ids=lambda page: page.name)
def test_jobs(page, tmp_path):
    for block in blocks(page, "toml"):
        path = tmp_path / "job.toml"
        path.write_text(block)
        assert len(read_job(path).clients) > 0
        done = truthfl("plan", path)
        assert done.returncode == 0, done.stderr


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 60

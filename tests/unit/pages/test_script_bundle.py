"""The scripts of a page, and its styles, as one file: all modules in the right order, and no form that is not known."""

import re
import shutil
import subprocess

import pytest

from truthfl.page.catalogue import languages
from truthfl.page.files import PAGES, bundled, localized_file, page_style, static_files, style_path

MODULES = {
    "start": 'import { double as twice } from "./arithmetic.js";\nimport { last } from "./late.js";\n'
    'export const found = [twice(4), last()];\nconsole.log((await found).join(" "));\n',
    "arithmetic": 'import { TWO } from "./numbers.js";\nexport function double(x) {\n  return TWO * x;\n}\n',
    "late": 'import { TWO } from "./numbers.js";\nconst own = TWO + 1;\nexport function last() {\n  return own;\n}\n',
    "numbers": "export const TWO = 2;\nconst own = 0;\n",
}


def test_modules_run_once_after_those_they_import():
    source = bundled("start", MODULES)
    order = re.findall(r"^const \$(\w+) =", source, re.MULTILINE)
    assert order == ["numbers", "arithmetic", "late", "start"]
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here to run it")
    done = subprocess.run([node, "--input-type=module"], input=source, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("8 3\n", "")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('import one from "./numbers.js";\n', "import one"),
        ('import {\n  TWO } from "./numbers.js";\n', "import {"),
        ("export let x = 1;\n", "export let"),
        ("export { y };\n", "export {"),
        ("import(path);\n", "import\\(path"),
        ('import { found } from "./start.js";\n', "start → numbers → start|import each other"),
    ],
)
def test_other_forms_are_refused(source, words):
    with pytest.raises(ValueError, match=words):
        bundled("start", MODULES | {"numbers": source})


def test_each_page_has_its_modules_in_each_language():
    for language in languages():
        for page in PAGES:
            source = localized_file(f"{page}.js", language).content.decode()
            assert f'const language = "{language}";' in source
            assert source.rstrip().rsplit("const $", 1)[1].startswith(f"{page} =")
            assert re.findall(r"^\s*(?:import|export)\b.*", source, re.MULTILINE) == []


def test_no_module_is_left_out_of_all_pages():
    used = {name for page in PAGES for name in re.findall(r"^const \$(\w+) =", _script(page), re.MULTILINE)}
    modules = {name.removesuffix(".js") for name in static_files() if name.endswith(".js")}
    assert used == modules | {"strings"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_one_style_sheet_that_has_all_of_its_own_in_their_order(page):
    named = re.findall(r'stylesheet" href="static/(\S+)"', static_files()[f"{page}.html"].content.decode())
    assert len(named) > 1
    shown = localized_file(f"{page}.html", "en").content.decode()
    assert re.findall(r'stylesheet" href="(\S+)"', shown) == [style_path(page)]
    assert page_style(page).content == b"".join(static_files()[name].content for name in named)


def _script(page):
    return localized_file(f"{page}.js", "en").content.decode()

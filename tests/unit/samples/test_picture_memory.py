"""The labeling page's server keeps within its memory, whatever pictures are in the folder."""

import sys
import threading

import pytest
from benchmarks.picture_memory import FORMS, MOST, SCAN, measured
from PIL import Image

from helpers.commands import told
from truthfl.samples.pictures import MemoryBudget, fitting_size

MOST_MEGABYTES = 300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_large_pictures_asked_for_at_once_stay_within_the_servers_memory(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        Image.new("RGB", SCAN, (9, 9, number)).save(data / f"{number}.png", compress_level=1)
    Image.new("RGBA", MOST, (9, 9, 9, 9)).save(data / "clear.png", compress_level=1)
    Image.new("I;16", MOST, 999).save(data / "deep.png", compress_level=1)
    peak, shown, refused = measured(data, tmp_path / "home", FORMS[:2])
    assert (shown, refused) == (8, 2)  # RGBA takes 200 MB
    assert peak < MOST_MEGABYTES


def test_a_picture_that_needs_more_than_there_is_waits_or_is_refused():
    budget, order = MemoryBudget(10), []
    assert "takes 0 MB of memory to decode" in told(budget.reserved(11, "x.png").__enter__)

    def second():
        with budget.reserved(6, "b.png"):
            order.append("second")

    thread = threading.Thread(target=second)
    with budget.reserved(6, "a.png"):
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("size", "box", "expected"),
    [((4960, 7016), (2400, 2400), (1697, 2400)), ((10, 1), (4, 4), (4, 1)), ((2, 2), (8, 4), (4, 4))],
)
def test_proportions_are_kept(size, box, expected):
    assert fitting_size(size, box) == expected

"""Memory of the labeling page's server with large pictures: python -m benchmarks.picture_memory

Starts `truthfl label` on a folder and requests all thumbnails at once, then all pictures as the page shows them, then
whole pictures. Prints the server's peak resident memory and how many pictures it refused. The folders have scans of
4960 × 7016 pixels in colours; pictures with few bytes and the most pixels allowed; and all formats. It works on Linux,
whose /proc has the figure.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

SCAN = 4960, 7016  # a sheet of paper, 600 dots per inch
MOST = 7071, 7071  # the most pixels allowed
AT_ONCE = 12  # requests
FORMS = ("thumbs/{}/{}", "samples/{}/{}", "samples/{}/{}?whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scans", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folders = {
            f"{options.scans} scans of 4960×7016": scans(Path(place) / "scans", options.scans),
            "few bytes, 50 million pixels": flat_pictures(Path(place) / "flat"),
            "all formats, 12 million pixels": all_formats(Path(place) / "mixed"),
        }
        for name, folder in folders.items():
            start = time.perf_counter()
            peak, shown, refused = measured(folder, Path(place) / f"home-{folder.name}")
            took = time.perf_counter() - start
            print(f"{name:32} {peak:6.0f} MB at most, {shown} answers, {refused} refused, {took:.1f} s", flush=True)


def scans(folder, count):
    """Pages with lines of noise, as PNG; they differ in bytes after their end, which no decoder reads."""
    folder.mkdir()
    pixels = np.full((SCAN[1], SCAN[0], 3), 240, np.uint8)
    pixels[::40] = np.random.default_rng(0).integers(0, 256, pixels[::40].shape, dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "0.png", compress_level=1)
    page = (folder / "0.png").read_bytes()
    for number in range(1, count):
        (folder / f"{number}.png").write_bytes(page + bytes([number]))
    return folder


def flat_pictures(folder):
    """One colour, in modes with one to four bytes per pixel, and more after conversion."""
    folder.mkdir()
    for mode, colour in (("RGBA", (9, 9, 9, 9)), ("LA", (9, 9)), ("I;16", 999), ("P", 1), ("1", 1), ("RGB", (9, 9, 9))):
        picture = Image.new(mode, MOST, colour)
        transparency = {"transparency": 1} if mode == "P" else {}
        picture.save(folder / f"{mode.replace(';', '-')}.png", compress_level=9, **transparency)
    return folder


def all_formats(folder):
    """The same photo in each format."""
    folder.mkdir()
    noise = np.random.default_rng(1).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((4000, 3000))
    for ending in ("png", "bmp", "gif", "webp", "jpg"):
        photo.save(folder / f"photo.{ending}")
    photo.save(folder / "progressive.jpg", progressive=True, subsampling=0)
    photo.save(folder / "packed.tiff", compression="tiff_lzw")
    photo.save(folder / "plain.tiff")
    return folder


def measured(folder, home, forms=FORMS):
    """The server's peak memory in MB, and the numbers of pictures that it sent and refused."""
    with server(folder, home) as (process, url), httpx.Client(trust_env=False, timeout=300) as client:
        client.get(url, follow_redirects=True)
        base = url.split("?")[0]
        work = client.get(f"{base}api/work").json()
        statuses = []
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for form in forms:
                addresses = [base + form.format(work["edition"], position) for position in range(work["total"])]
                answers = list(threads.map(client.get, addresses))
                statuses += [answer.status_code for answer in answers]
        return peak(process.pid), statuses.count(200), statuses.count(422)


def peak(process):
    """The largest resident memory of a process so far, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024 / 1e6


@contextmanager
def server(folder, home):
    """`truthfl label` as a separate process: the process, and the page's address."""
    arguments = ("label", "--data", folder, "--home", home, "--no-browser")
    process = subprocess.Popen(
        [sys.executable, "-m", "truthfl", *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        process.stdout.readline()
        yield process, re.search(r"http://\S+", process.stdout.readline()).group()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    main()

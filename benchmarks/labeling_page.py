"""Speed and memory of the labeling page with many pictures, in Chromium: python -m benchmarks.labeling_page

Generates pictures, starts `truthfl label`, opens its page in Chromium and labels the pictures by key presses. The page
measures times from the key event to the first paint of the next picture. Memory is the server's resident set and the
page's JavaScript heap after garbage collection. The start is measured several times: with the browser already open,
from the command to the first picture on the screen.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.browser import NAMES, chromium

BROWSER_SETTLES_S = 2.0  # wait before the command, because a user's browser is already open

PAGE_TIMER = """
const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => resolve(performance.now());
  channel.port2.postMessage(null);
}));
const bench = { first: null, times: [], pressed: 0, shown: null };
window.bench = bench;
window.nextShown = () => new Promise((resolve) => { bench.resolve = resolve; if (bench.shown) bench.tell(); });
bench.tell = () => {
  const { resolve } = bench;
  if (resolve) { bench.resolve = null; bench.shown = false; resolve(); }
};
addEventListener("keydown", (event) => { bench.pressed = event.timeStamp; }, true);
addEventListener("DOMContentLoaded", () => {
  new MutationObserver(async () => {
    const now = await painted();
    if (bench.first === null) bench.first = performance.timeOrigin + now;
    else bench.times.push(now - bench.pressed);
    bench.shown = true;
    bench.tell();
  }).observe(document.body, { attributes: true, attributeFilter: ["data-at"] });
});
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--labels", type=int, help="how many to label; all unless given")
    parser.add_argument("--starts", type=int, default=7, help="how many starts to measure")
    parser.add_argument("--size", type=int, default=28, help="pixels on each side")
    options = parser.parse_args()
    if chromium() is None:
        sys.exit(f"no browser: set TRUTHFL_CHROMIUM, or put one of {', '.join(NAMES)} on the PATH.")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "pictures")
        generate(data, options.pictures, options.size)
        labels = min(options.labels or options.pictures, options.pictures)
        measure(data, Path(folder, "home"), options.pictures, labels, options.starts)


def generate(folder, count, size):
    folder.mkdir()
    noise = np.random.default_rng(0)
    for number in range(count):
        pixels = noise.integers(0, 256, (size // 4, size // 4), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(folder / f"{number:06d}.png")


def measure(data, home, count, labels, starts):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        print(f"pictures                              {count:>10,}")
        starts_ms = []
        for number in range(starts):
            with started(browser, data, home / str(number)) as (*_, times):
                starts_ms.append(times)
        for what, times in zip(("its address", "first picture"), np.array(starts_ms).T, strict=True):
            each = ", ".join(f"{one:.0f}" for one in times)
            print(f"{f'{what}, from the command, median':37} {np.median(times):>10.0f} ms  ({each})")
        with started(browser, data, home / "labeled") as (page, server, _):
            label_all(page, server, count, labels)
        browser.close()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load of the machine                   {load} on {os.cpu_count()} cores")


@contextmanager
def started(browser, data, home):
    """(page with its first picture, process id of the server, [milliseconds to the address, to the first picture])."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(PAGE_TIMER)
    page = context.new_page()
    page.goto("about:blank")
    time.sleep(BROWSER_SETTLES_S)
    command = [sys.executable, "-m", "truthfl", "label", "--data", data, "--home", home, "--no-browser"]
    began = time.time()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        server.stdout.readline()
        url = re.search(r"http://\S+", server.stdout.readline()).group()
        address = time.time()
        page.goto(url, wait_until="commit")
        page.wait_for_selector("#stage img")
        page.evaluate("nextShown()")
        yield page, server.pid, [1000 * (moment - began) for moment in (address, page.evaluate("bench.first") / 1000)]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        context.close()


def label_all(page, server, count, labels):
    memory = {}
    session = page.context.new_cdp_session(page)
    for number in range(1, labels + 1):
        page.keyboard.press(str(number % 10))
        if number < count:
            page.evaluate("nextShown()")
        if number in (100, labels // 2, labels):
            memory[number] = resident(server), heap(session)
    times = np.array(page.evaluate("bench.times"))
    assert len(times) >= min(labels, count - 1), len(times)
    median, most, longest = np.percentile(times, [50, 95, 100])
    print(f"key to next picture, median           {median:>10.1f} ms")
    print(f"key to next picture, 95% below        {most:>10.1f} ms  (longest {longest:.0f} ms)")
    for number, (rss, used) in memory.items():
        print(f"memory after {number:>7,} labels             {rss:>10.1f} MB server, {used:.1f} MB page")


def resident(pid):
    """Resident memory of a process in megabytes; 0 without /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024


def heap(session):
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"] / 1e6


if __name__ == "__main__":
    main()

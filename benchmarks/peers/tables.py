"""Prints the results of `benchmarks.training`, within 100 columns."""

from __future__ import annotations

import textwrap

NAME, CELL = 20, 16
MAX_OTHER_CORES = 0.15  # used by other processes without a warning


def show(result: dict, order: list[str]) -> None:
    rows, absent = result["rounds"], result["absent"]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    names = [name for name in order if any(row["contender"] == name for row in rows)]
    cell = {(row["contender"], row["setting"]): row for row in rows}

    if "plain PyTorch loop" in absent:
        _say("PyTorch is not installed: what follows is a comparison with the plain NumPy loop only.\n")
    _say("Milliseconds per round, best block (median block), by number of clients; start-up: import and first round.\n")
    print(_line("", [*settings, "start-up s"]))
    for name in names:
        times = [_time(cell.get((name, setting))) for setting in settings]
        print(_line(name, [*times, f"{cell[name, settings[0]]['startup_s']:.2f}"]))

    print("\nTimes as fast as the fastest peer (best blocks)\n")
    print(_line("", settings))
    for name, key in (("truthfl, kernel", "ratio_to_fastest_peer"), ("truthfl, NumPy", "numpy_ratio_to_fastest_peer")):
        print(_line(name, [f"{result[key][s]:.1f}" if s in result[key] else "–" for s in settings]))
    print(_line("fastest peer", [_fastest(rows, s) for s in settings]))
    shares = result["peak_fraction"]
    print(_line("share of peak", [f"{100 * shares[s]:.0f}%" if s in shares else "–" for s in settings]))
    others = [max((r["others_cores"] or 0.0 for r in rows if r["setting"] == s), default=0.0) for s in settings]
    print(_line("others' cores", [f"{cores:.2f}" for cores in others]))
    _say(
        f"\npeak: the float32 matrix product, measured here at {result['matmul_gflops']:.0f} GFLOP/s with two threads; "
        "share: the kernel's, counting only arithmetic that cannot be left out."
    )

    if max(others) > MAX_OTHER_CORES:
        _say("\nThe machine was not ours alone. PyTorch suffers most from that: take the ratios with care.")

    distances = {n: d for n in names if (d := cell[n, settings[0]]["distance_from_truthfl"]) is not None}
    text = ", ".join(f"{name} {distance:.0e}" for name, distance in distances.items())
    _say(f"\nThe same batches give the same parameters after three rounds, up to this share of their change: {text}.")

    print("\nA round's cost grows as … to the power of (truthfl)")
    for axis, found in result["scaling"].items():
        points = ", ".join(f"{v}: {ms:.3g} ms" for v, ms in zip(found["values"], found["ms"], strict=True))
        print(f"  {axis:<8}{found['exponent']:>6.2f}   {points}")

    _softmax(result["softmax"])
    if absent:
        _say("\nAbsent: " + "; ".join(f"{name} ({why})" for name, why in absent.items()) + ".")
    if result["quick"]:
        print("\nThis was --quick: smaller and shorter than what the numbers elsewhere are from.")


def _softmax(found: dict) -> None:
    print(
        f"\nSoftmax regression: {found['runs']:,} runs of ten clients, {found['rounds']} rounds, batch 50, in one call"
    )
    for data, part in (("random images", found), ("MNIST", found["mnist"])):
        if part is None:
            print(f"  {data:<15}not carried by the packages installed here")
            continue
        print(
            f"  {data:<15}{part['seconds']:.2f} s; plain NumPy loop {part['loop_seconds_scaled']:.1f} s "
            f"(the median of {part['loop_runs_timed']} runs, scaled): {part['ratio']:.1f} times as fast"
        )


def _time(row: dict | None) -> str:
    if row is None:
        return "–"
    digits = 0 if row["best_ms"] >= 1000 else 1
    return f"{row['best_ms']:.{digits}f} ({row['median_ms']:.{digits}f})"


def _fastest(rows: list[dict], setting: str) -> str:
    peers = [r for r in rows if r["setting"] == setting and not r["contender"].startswith("truthfl")]
    return min(peers, key=lambda r: r["best_ms"])["contender"].removeprefix("plain ") if peers else "–"


def _line(name: str, cells: list[str]) -> str:
    wide = "".join(f"{text:>{CELL}}" for text in cells[:4])
    return f"{name:<{NAME}}{wide}" + "".join(f"{text:>12}" for text in cells[4:])


def _say(text: str) -> None:
    for paragraph in text.split("\n"):
        print(textwrap.fill(paragraph, 98))

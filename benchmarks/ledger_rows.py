"""The cost of the rows' signatures: time to append, read and check a row of a ledger on SQLite.

    python -m benchmarks.ledger_rows [--rows 10000]

Rows are appended a thousand at a time, as a large job does; a check covers only chain and signatures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.entry import Item, broken_link, is_row_signed, row_key, row_key_fields, row_line
from truthfl.ledger.signing import new_key, public_line

AT_ONCE = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    number = parser.parse_args().rows
    key = new_key()
    line = row_line(row_key(key))
    opening = Item("job", "job", "job", {"operator_key": public_line(key), **row_key_fields(key)})
    items = [Item("job", "rejection", str(one), {"number": one, "text": "x" * 300}) for one in range(number)]

    def told(what: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        print(f"{what}: {(time.perf_counter() - began) / number * 1e6:.0f} µs a row")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with open_ledger(path, key) as ledger:
            ledger.append_all([opening])
            batches = [items[start : start + AT_ONCE] for start in range(0, number, AT_ONCE)]
            told("append", lambda: [ledger.append_all(batch) for batch in batches])
        with open_for_reading(path) as ledger:
            told("read, each signature for the first time", ledger.entries)
            told("read again", ledger.entries)
            rows = ledger.rows()
    told("check the chain", lambda: broken_link(rows))
    told("check the signatures", lambda: [is_row_signed(line, row) for row in rows])


if __name__ == "__main__":
    main()

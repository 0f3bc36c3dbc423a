"""Flower's SuperNode, which looks for messages as often as it is told to.

`python -m truthfl.federation.quick_node SECONDS` takes the arguments of flower-supernode. Looks at `haste` and Flower.
"""

from __future__ import annotations

import sys

from truthfl.federation.haste import fetch_parts_soon, look_for_messages_every


def main() -> None:
    look_for_messages_every(float(sys.argv.pop(1)))
    fetch_parts_soon()
    from flwr.supernode.cli import flower_supernode

    flower_supernode()


if __name__ == "__main__":
    main()

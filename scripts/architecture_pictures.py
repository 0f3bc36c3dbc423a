"""Make the two pictures in docs/architecture.md: python scripts/architecture_pictures.py

The first shows the rooms and, as arrows, the actual imports in the source. The second shows the objects that travel
from a job file to a receipt.
"""

import ast
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "truthfl"
PICTURES = ROOT / "docs" / "pictures"

ROOMS = {  # name: (centre x, centre y, what it is)
    "cli": (5.0, 9.0, "commands: parse, call, print"),
    "simulate": (1.6, 7.6, "façade: jobs, training, studies"),
    "flower": (5.0, 7.6, "façade: a Flower project's apps"),
    "console": (8.4, 7.6, "the operator's page"),
    "studies": (1.6, 6.1, "reproduce the paper;\nask whether lying pays"),
    "federation": (5.0, 6.1, "protocol, masking, operator,\nparticipant, simulated, deployed"),
    "page": (8.4, 6.1, "the participant's page"),
    "reporting": (0.95, 4.4, "figures, plots,\nHTML report"),
    "adversary": (2.75, 4.4, "lies, and the search\nfor the best one"),
    "job": (4.45, 4.4, "a job file"),
    "samples": (6.15, 4.4, "samples and labels\non disk"),
    "home": (8.3, 4.4, "a participant's folder"),
    "ledger": (8.3, 2.6, "terms, signatures,\nentries, receipts"),
    "learning": (4.2, 2.6, "tasks, data, models, training, people, pilot"),
    "flower_patches": (1.0, 0.9, "Flower's insides"),
    "contracts": (5.6, 0.9, "what to ask and what to pay: audition, lceme, baselines"),
}
WIDTHS = {
    "reporting": 1.7, "adversary": 1.8, "job": 1.4, "samples": 1.8, "home": 2.2, "ledger": 2.2, "learning": 4.6,
    "contracts": 5.4, "flower_patches": 1.8,
}  # fmt: skip
COLOURS = {"contracts": "#dbeafe", "learning": "#dcfce7", "ledger": "#fef3c7", "cli": "#f1f5f9"}

OBJECTS = {  # name: (centre x, centre y, what it holds, room)
    "DataJob": (1.5, 8.6, "task, data, model, clients,\ncontract: a TOML file", "job"),
    "ServerSide": (1.5, 6.8, "pilot federation,\ntest set", "learning"),
    "Plan": (4.6, 6.8, "contract, step size,\nwhat was measured", "contracts"),
    "Contract": (8.0, 8.6, "batch sizes and terms of\npay, for all clients", "contracts"),
    "Agreement": (8.0, 6.8, "JobTerms and, per client,\nClientTerms in an Offer", "ledger"),
    "Behaviour": (1.5, 4.6, "labels, batch, report:\nwhat a client really does", "learning"),
    "report": (4.6, 4.6, "one model per client\nand round", "federation"),
    "Entry": (8.0, 4.6, "a row of the ledger: offer,\nanswer, round, test, …", "ledger"),
    "Observation": (4.6, 2.6, "test loss, delivered\nrounds, …", "contracts"),
    "Settled": (8.0, 2.6, "amount and pay\nof one client", "ledger"),
    "receipt": (8.0, 0.8, "signed; the participant\nchecks it alone", "ledger"),
}
TRAVELS = [
    ("DataJob", "ServerSide", "server_side"),
    ("ServerSide", "Plan", "PilotSide"),
    ("Contract", "Plan", ".plan_on"),
    ("Plan", "Agreement", "agreement_of"),
    ("Agreement", "Entry", "offers, signed answers"),
    ("Behaviour", "report", "each round"),
    ("report", "Entry", "taken or refused"),
    ("Entry", "Observation", "after the last round"),
    ("Observation", "Settled", "Contract.pay"),
    ("Settled", "receipt", "signed_receipt"),
]
BY_ROOM = {
    "job": "#f1f5f9",
    "learning": "#dcfce7",
    "contracts": "#dbeafe",
    "ledger": "#fef3c7",
    "federation": "#fce7f3",
}


def imports():
    """Which room imports which, in the source."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truthfl."):
                found.add((room, node.module.split(".")[1]))
    return sorted((a, b) for a, b in found if a != b and a in ROOMS and b in ROOMS)


def box(axes, x, y, name, words, colour, width):
    lines = 1 + words.count("\n") + 1
    height = 0.36 * lines + 0.22
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.02,rounding_size=0.12",
            facecolor=colour, edgecolor="#475569", linewidth=1.0, zorder=3,
        )
    )  # fmt: skip
    axes.text(x, y + height / 2 - 0.25, name, ha="center", va="center", weight="bold", fontsize=10, zorder=4)
    axes.text(x, y - 0.17, words, ha="center", va="center", fontsize=7.8, color="#334155", zorder=4, linespacing=1.25)
    return width, height


def arrow(axes, start, end, sizes, label=None, colour="#64748b", curve=0.0):
    (x0, y0), (x1, y1) = start, end
    axes.add_patch(
        FancyArrowPatch(
            _edge(start, end, sizes[0]), _edge(end, start, sizes[1]), arrowstyle="-|>", mutation_scale=10, color=colour,
            linewidth=0.9, connectionstyle=f"arc3,rad={curve}", zorder=2, shrinkA=2, shrinkB=2,
        )
    )  # fmt: skip
    if label:
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        flat = abs(y0 - y1) < 0.3
        axes.text(
            x if flat else x + 0.1, y + (0.16 if flat else 0.0), label, fontsize=7.5, style="italic", color="#0f172a",
            ha="center" if flat else "left", va="center", zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _edge(inside, towards, size):
    """Where the line from a box's centre leaves it."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(size[0] / 2 / abs(dx) if dx else 9e9, size[1] / 2 / abs(dy) if dy else 9e9)
    return inside[0] + dx * scale, inside[1] + dy * scale


def canvas(height, title):
    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(title, fontsize=11, loc="left")
    return figure, axes


def draw_rooms():
    figure, axes = canvas(7.6, "Rooms. An arrow points to a room that is imported; all import errors, files and texts.")
    sizes = {
        name: box(axes, x, y, name, words, COLOURS.get(name, "white"), WIDTHS.get(name, 2.4))
        for name, (x, y, words) in ROOMS.items()
    }
    level = {name: y for name, (_, y, _) in ROOMS.items()}
    for a, b in imports():
        if a == "cli":
            continue  # it imports most rooms
        (x0, y0, _), (x1, y1, _) = ROOMS[a], ROOMS[b]
        far = level[a] - level[b] > 2.5
        arrow(axes, (x0, y0), (x1, y1), (sizes[a], sizes[b]), colour="#cbd5e1" if far else "#475569")
    axes.text(6.5, 9.0, "imports most rooms", fontsize=8, style="italic", va="center", ha="left")
    axes.set_xlim(0, 10.4)
    axes.set_ylim(0.2, 9.7)
    return figure


def draw_objects():
    figure, axes = canvas(7.4, "The objects that travel, from a job file to a receipt.")
    sizes = {name: box(axes, x, y, name, words, BY_ROOM[room], 2.4) for name, (x, y, words, room) in OBJECTS.items()}
    for a, b, label in TRAVELS:
        arrow(axes, OBJECTS[a][:2], OBJECTS[b][:2], (sizes[a], sizes[b]), label, colour="#475569")
    for k, (room, colour) in enumerate(BY_ROOM.items()):
        axes.add_patch(Rectangle((0.3, 1.9 - 0.36 * k), 0.3, 0.22, facecolor=colour, edgecolor="#475569", lw=0.7))
        axes.text(0.75, 2.0 - 0.36 * k, room, fontsize=8, va="center")
    axes.set_xlim(0, 9.6)
    axes.set_ylim(0.1, 9.4)
    return figure


def main():
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, figure in (("rooms", draw_rooms()), ("objects", draw_objects())):
        figure.savefig(PICTURES / f"{name}.png", dpi=110, facecolor="white")
        print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()

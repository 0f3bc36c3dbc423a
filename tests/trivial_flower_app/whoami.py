"""The server asks each node its name, and writes down the answers and what it knows the nodes by."""

import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.federation.protocol.node_keys import registrations

SECONDS = 120

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def ask_all(grid: Grid, context: Context) -> None:
    end = time.monotonic() + SECONDS
    while len(known := registrations(grid)) < int(context.run_config["nodes"]) and time.monotonic() < end:
        time.sleep(0.2)
    replies = ask_nodes(grid, [Message(RecordDict(), node, "query.whoami") for node in known], timeout=SECONDS)
    answers = {node: str(reply.content["me"]["name"]) for node, reply in replies}
    found = {"known": known, "answers": answers, "greeting": context.run_config["greeting"]}
    Path(str(context.run_config["file"])).write_text(json.dumps(found), encoding="utf-8")


@client_app.query("whoami")
def answer(message: Message, context: Context) -> Message:
    me = ConfigRecord({"name": str(context.node_config["name"])})
    return Message(RecordDict({"me": me}), reply_to=message)

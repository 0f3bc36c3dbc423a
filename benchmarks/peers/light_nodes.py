"""Many nodes in one process: each greets with its own key and replies with prepared bytes.

    python -m benchmarks.peers.light_nodes --nodes 1000

Prints the nodes' public keys as one line of JSON, reads HOST, PORT and the authority's certificate as another, prints a
line when every node waits for messages, and goes on until its standard input ends. Like `truthfl join`, a node has one
TLS connection to wait for messages and one for replies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
from hashlib import sha256

import numpy as np

from truthfl.federation.deployed.node import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS
from truthfl.federation.deployed.node_connection import HELLO, NEXT, NUMBER_HEADER, REPLY, fingerprint, signed_hello
from truthfl.federation.protocol.messages import MODEL, PARTICIPANT, ROUND, array_bytes_digest, model_record, with_code
from truthfl.flower_patches import message_bytes, message_from_bytes, set_task_identity
from truthfl.ledger.signing import new_key, public_line

PARAMETERS = 7850  # of softmax regression on MNIST
GREETINGS_AT_ONCE = 32
LIGHT_NODE = 2  # the id under which replies are made; the server replaces it by the node's


def code_key_of(number: int) -> bytes:
    """The key of the codes between the server and a node."""
    return sha256(f"replayed node {number}".encode()).digest()


def round_fields(number: int) -> dict[str, str | int]:
    """The statements about the round in every training message to a node."""
    return {"offer": sha256(f"offer {number}".encode()).hexdigest(), "round": 0, "attempt": 0}


def recorded_reply(number: int) -> bytes:
    """A node's report in the form of a participant's computer: the trained model with its code."""
    from flwr.app import ConfigRecord, Message, RecordDict

    arrays = model_record(np.random.default_rng(number).normal(size=PARAMETERS).astype(np.float32) / 100)
    fields = with_code(code_key_of(number), PARTICIPANT, round_fields(number), array_bytes_digest(arrays))
    content = RecordDict({MODEL: arrays, ROUND: ConfigRecord(fields)})
    return message_bytes(Message(content, dst_node_id=LIGHT_NODE, message_type="train"))


class Connection:
    """A node's TLS connection, opened on use; if it is lost, the request is sent again, as `truthfl join` does.

    The server closes idle connections when there are very many, and connections whose handshake takes too long.
    """

    def __init__(self, address: tuple[str, int], trust: ssl.SSLContext) -> None:
        self.address, self.trust, self.streams = address, trust, None

    async def request(self, path: str, token: str, body: bytes) -> tuple[dict[str, str], bytes]:
        """Send a request until there is a response; return its headers and body."""
        wait = FIRST_RETRY_SECONDS
        while True:
            try:
                self.streams = self.streams or await asyncio.open_connection(*self.address, ssl=self.trust)
                return await self._request(path, token, body)
            except (OSError, asyncio.IncompleteReadError):
                if self.streams is None:
                    await asyncio.sleep(wait)
                    wait = min(1.5 * wait, LAST_RETRY_SECONDS)
                self.streams = None

    async def _request(self, path: str, token: str, body: bytes) -> tuple[dict[str, str], bytes]:
        reader, writer = self.streams
        fields = {
            "Host": "server",
            "Content-Length": len(body),
            "Authorization": f"Bearer {token}",
        }
        head = "\r\n".join((f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())))
        writer.write(f"{head}\r\n\r\n".encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        if lines[0].split()[1] != "200":
            raise SystemExit(f"{path} was answered with {lines[0]}")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return headers, await reader.readexactly(int(headers["content-length"]))


async def greet(connection: Connection, key) -> str:
    """Prove the key; return the token."""
    _, answer = await connection.request(HELLO, "", json.dumps({"public_key": public_line(key)}).encode())
    tls = connection.streams[1].get_extra_info("ssl_object")
    hello = signed_hello(key, json.loads(answer)["nonce"], fingerprint(tls.getpeercert(binary_form=True)))
    return json.loads((await connection.request(HELLO, "", json.dumps(hello).encode()))[1])["token"]


async def light_node(address, trust: ssl.SSLContext, key, reply: bytes, greeting, is_waiting) -> None:
    """Greet, then wait for messages and reply to each."""
    waiting, replying = Connection(address, trust), Connection(address, trust)
    async with greeting:
        token = await greet(waiting, key)
    number, messages = 0, asyncio.Queue[str]()
    is_waiting()

    async def send_replies() -> None:
        while True:
            await replying.request(f"{REPLY}?message={await messages.get()}", token, reply)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send_replies())
        while True:
            headers, body = await waiting.request(f"{NEXT}?after={number}", token, b"")
            if NUMBER_HEADER in headers:
                number = int(headers[NUMBER_HEADER])
                messages.put_nowait(message_from_bytes(body).metadata.message_id)


async def run(address, root: str, keys, replies: list[bytes]) -> None:
    """Run all nodes until standard input ends."""
    trust = ssl.create_default_context(cafile=root)
    greeting, left, all_wait = asyncio.Semaphore(GREETINGS_AT_ONCE), [len(keys)], asyncio.Event()

    def is_waiting() -> None:
        left[0] -= 1
        if not left[0]:
            all_wait.set()

    nodes = [
        asyncio.ensure_future(light_node(address, trust, key, reply, greeting, is_waiting))
        for key, reply in zip(keys, replies, strict=True)
    ]
    connected = asyncio.ensure_future(all_wait.wait())
    await asyncio.wait((connected, *nodes), return_when=asyncio.FIRST_COMPLETED)
    if connected.done():
        print("connected", flush=True)
        end = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await asyncio.wait((end, *nodes), return_when=asyncio.FIRST_COMPLETED)
    for node in nodes:
        node.cancel()
    for outcome in await asyncio.gather(*nodes, return_exceptions=True):
        if isinstance(outcome, Exception) and not connected.done():
            raise outcome


def main() -> None:
    from benchmarks.peers.open_files import allow_open_files

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    allow_open_files(2 * nodes)
    set_task_identity(LIGHT_NODE)
    keys = [new_key() for _ in range(nodes)]
    print(json.dumps([public_line(key) for key in keys]), flush=True)
    replies = [recorded_reply(number) for number in range(nodes)]
    host, port, root = json.loads(sys.stdin.readline())
    asyncio.run(run((host, port), root, keys, replies))


if __name__ == "__main__":
    main()

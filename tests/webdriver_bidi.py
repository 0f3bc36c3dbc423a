"""WebDriver BiDi over a websocket: commands are sent and answered one at a time, events are kept as they come."""

import json
from contextlib import contextmanager
from itertools import count

from websockets.sync.client import connect

PATIENCE = 60  # seconds


class CommandError(AssertionError):
    """What the browser says to a command that it cannot carry out."""


@contextmanager
def connected(address):
    """A session at this address."""
    with connect(address, max_size=None, proxy=None) as socket:
        connection = Connection(socket)
        connection.command("session.new", capabilities={})
        yield connection


class Connection:
    def __init__(self, socket):
        self.events = []
        self._socket, self._numbers = socket, count(1)

    def command(self, method, **parameters):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message["type"] == "event":
                self.events.append(message)
            elif message["id"] == number:
                if message["type"] == "error":
                    raise CommandError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]

    def evaluate(self, context, expression):
        """What this expression of JavaScript, or the promise it gives, comes to."""
        answer = self.command(
            "script.evaluate",
            expression=f"Promise.resolve({expression}).then((value) => JSON.stringify(value))",
            target={"context": context},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise CommandError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"].get("value", "null"))

    def run_script(self, context, source):
        """Statements of JavaScript; whatever the page's policy says of scripts."""
        answer = self.command("script.evaluate", expression=source, target={"context": context}, awaitPromise=False)
        assert answer["type"] == "success"

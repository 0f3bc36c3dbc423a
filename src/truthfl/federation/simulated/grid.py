"""`InProcessGrid`: a Flower Grid whose nodes are called one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict

from truthfl.files import without_waiting_for_disk
from truthfl.flower_patches import CLIENT_APP_FAILED, RUN_ID, OneRunGrid, set_message_id

SERVER = 1
App = Callable[[Message, Context], Message]


class InProcessGrid(OneRunGrid):
    """A grid with one client app and a context for each node.

    node_config  by node id: the node's config
    """

    def __init__(self, app: App, node_config: Mapping[int, Mapping[str, str | int | float | bool]]) -> None:
        super().__init__(SERVER)
        self.app = app
        self.contexts = {
            node: Context(run_id=RUN_ID, node_id=node, node_config=dict(config), state=RecordDict(), run_config={})
            for node, config in node_config.items()
        }
        self.replies: dict[str, Message] = {}
        self.message_count = 0

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.message_count += 1
            ids.append(str(self.message_count))
            self.replies[ids[-1]] = self._reply_to(message, ids[-1])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        return self.pull_messages(self.push_messages(messages))

    def _reply_to(self, message: Message, number: str) -> Message:
        node = message.metadata.dst_node_id
        set_message_id(message, number)
        try:
            with without_waiting_for_disk():
                return self.app(message, self.contexts[node])
        except Exception as error:  # any error of a client becomes an error reply, as in a deployment
            return Message(Error(CLIENT_APP_FAILED, str(error)), reply_to=message)

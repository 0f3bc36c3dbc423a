"""`InProcessGrid`: a Flower Grid whose nodes are called one after another in this process. Imports Flower only.

It sets Flower's private ids of tasks and messages, which Flower's own processes would set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

SERVER = 1
App = Callable[[Message, Context], Message]


class InProcessGrid(Grid):
    """A grid with one client app and a context for each node.

    node_config  by node id: the node's config
    """

    def __init__(self, app: App, node_config: Mapping[int, Mapping[str, str | int | float | bool]]) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SERVER
        self.app = app
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config=dict(config), state=RecordDict(), run_config={})
            for node, config in node_config.items()
        }
        self.replies: dict[str, Message] = {}
        self.message_count = 0

    def set_run(self, run: Run) -> None:
        raise NotImplementedError("a grid in one process has one run.")

    @property
    def run(self) -> Run:
        return Run.create_empty(run_id=1)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

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
        vars(message.metadata)["_message_id"] = number
        try:
            return self.app(message, self.contexts[node])
        except Exception as error:  # any error of a client becomes an error reply, as in a deployment
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error)), reply_to=message)

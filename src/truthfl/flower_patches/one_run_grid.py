"""`OneRunGrid`: the methods that a Flower Grid must have of which ours need no more than Flower's types.

Uses `Run` of `flwr.supercore.run` and `NodeInfo` of `flwr.proto.node_pb2`, which are in the signatures of `Grid`, and
not in Flower's documented interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from truthfl.flower_patches.flower_part import flower_part
from truthfl.flower_patches.task_identity import RUN_ID, set_task_identity

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run
else:
    NodeInfo = flower_part("flwr.proto.node_pb2", "NodeInfo")
    Run = flower_part("flwr.supercore.run", "Run")
_empty_run = flower_part("flwr.supercore.run", "Run.create_empty")

__all__ = ["NodeInfo", "OneRunGrid"]


class OneRunGrid(Grid):
    """A grid of this process, with one run."""

    def __init__(self, server_node_id: int) -> None:
        set_task_identity(server_node_id)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError("this grid has one run.")

    @property
    def run(self) -> Run:
        run: Run = _empty_run(run_id=RUN_ID)
        return run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

"""The ids without which Flower makes no messages; Flower's own processes set them.

Uses `TaskIdentity` of `flwr.supercore.task_identity` and its private field `_run_id`.
"""

from __future__ import annotations

from truthfl.flower_patches.flower_part import flower_part

MODULE = "flwr.supercore.task_identity"
RUN_ID = TASK_ID = 1
ANY_NODE_ID = 1  # where messages are made and not sent
_identity = flower_part(MODULE, "TaskIdentity")
for _name in ("_run_id", "__class__.task_id", "__class__.run_id", "__class__.node_id"):
    flower_part(MODULE, f"TaskIdentity.{_name}")  # to set one that is not there would do nothing


def set_task_identity(node_id: int) -> None:
    """Let `Message()` be called in this process, by the server or by a node."""
    _identity.task_id, _identity.run_id, _identity.node_id = TASK_ID, RUN_ID, node_id


def set_task_identity_if_unset() -> None:
    """Let `Message()` be called in this process; the ids stay as they are if there are some."""
    if _identity._run_id is None:
        set_task_identity(ANY_NODE_ID)


def set_run_identity(run_id: int) -> None:
    """Let replies be made to messages of this run."""
    _identity.run_id = run_id

"""Requests and responses of a SuperLink's control API, as bytes.

Uses the types of `flwr.proto.control_pb2`.
"""

from __future__ import annotations

from typing import Any

from truthfl.flower_patches.flower_part import flower_part

MODULE = "flwr.proto.control_pb2"
METHODS = {  # as the API's addresses spell them, and as Flower's types begin
    "list-nodes": "ListNodes",
    "register-node": "RegisterNode",
    "start-run": "StartRun",
    "list-runs": "ListRuns",
    "stop-run": "StopRun",
    "stream-logs": "StreamLogs",
}
_requests = {method: flower_part(MODULE, f"{name}Request") for method, name in METHODS.items()}
_responses = {method: flower_part(MODULE, f"{name}Response") for method, name in METHODS.items()}


def control_request(method: str, **fields: Any) -> bytes:
    """The body of a request of this method."""
    content: bytes = _requests[method](**fields).SerializeToString()
    return content


def control_response(method: str, content: bytes) -> Any:
    """What the response to a request of this method has, by its fields."""
    return _responses[method].FromString(content)

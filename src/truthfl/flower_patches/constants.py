"""Flower's names for failures: `ErrorCode` of `flwr.common.constant`."""

from __future__ import annotations

from truthfl.flower_patches.flower_part import flower_part

CONSTANTS = "flwr.common.constant"
CLIENT_APP_FAILED: int = flower_part(CONSTANTS, "ErrorCode.CLIENT_APP_RAISED_EXCEPTION")
MESSAGE_UNAVAILABLE: int = flower_part(CONSTANTS, "ErrorCode.MESSAGE_UNAVAILABLE")
NODE_UNAVAILABLE: int = flower_part(CONSTANTS, "ErrorCode.NODE_UNAVAILABLE")

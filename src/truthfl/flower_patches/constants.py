"""Flower's names for failures and for arrays: `ErrorCode` and `SType` of `flwr.common.constant`."""

from __future__ import annotations

from truthfl.flower_patches.flower_part import flower_part

CONSTANTS = "flwr.common.constant"
CLIENT_APP_FAILED: int = flower_part(CONSTANTS, "ErrorCode.CLIENT_APP_RAISED_EXCEPTION")
MESSAGE_UNAVAILABLE: int = flower_part(CONSTANTS, "ErrorCode.MESSAGE_UNAVAILABLE")
NODE_UNAVAILABLE: int = flower_part(CONSTANTS, "ErrorCode.NODE_UNAVAILABLE")
NUMPY: str = flower_part(CONSTANTS, "SType.NUMPY")  # how Flower calls arrays that are bytes of .npy files

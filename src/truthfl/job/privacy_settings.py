"""`PrivacySettings`: section [privacy] of a job file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from truthfl.errors import InputError
from truthfl.mechanism.checks import number


@dataclass(frozen=True)
class PrivacySettings:
    """The fields of section [privacy].

    secure_aggregation  whether reports are masked, so that the server sees their sum only. True: always, and with
                        fewer than three clients there is no job; False: never; None, the default: if there are at least
                        three clients, the server takes the mean and asks everybody in every round
    clip                the length to which the gradient of each sample is shortened in training; 0 for no limit
    noise               the standard deviation of the noise in each step's sum of gradients, as a multiple of `clip`
    """

    secure_aggregation: bool | None = None
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.secure_aggregation is not None and not isinstance(self.secure_aggregation, bool):
            raise InputError(f"secure_aggregation is {self.secure_aggregation!r}; it must be true or false.")
        number("noise", self.noise, at_least=0.0)
        if number("clip", self.clip, at_least=0.0) == 0 < self.noise:
            raise InputError(f"noise is {self.noise:g}, and clip is not given; noise is a multiple of clip.")

    def document(self) -> dict[str, Any]:
        """The fields that are not the default, as JSON values."""
        values = asdict(self)
        return {item.name: values[item.name] for item in fields(self) if values[item.name] != item.default}

"""The address of this machine in its local network."""

from __future__ import annotations

import ipaddress
import socket

from truthfl.errors import InputError

ELSEWHERE = ("192.0.2.1", 9)  # an address that is kept for documentation: no machine has it


def phone_address(named: str | None) -> str:
    """The address that was named, or else the one in the local network; raise InputError if it is unfit.

    An address that the whole internet can reach is taken only if it was named.
    """
    if named is not None:
        return _require_fit(named)
    found = address_towards(ELSEWHERE)
    if found is None or ipaddress.IPv4Address(found).is_loopback:
        raise InputError("this machine seems to be in no network; connect it, or name its address: --phone-address.")
    if ipaddress.IPv4Address(found).is_global:
        raise InputError(
            f"this machine's address {found} can be reached from the internet, not from your network alone; "
            f"if you want that, say --phone-address {found}."
        )
    return found


def address_towards(other: tuple[str, int]) -> str | None:
    """The address from which this machine would send to another; None if it could not.

    To connect a UDP socket sends nothing; it only looks up the way.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(other)
            return str(probe.getsockname()[0])
        except OSError:
            return None


def _require_fit(named: str) -> str:
    try:
        address = ipaddress.IPv4Address(named)
    except ValueError:
        raise InputError(f"phone-address is {named!r}; it must be an IPv4 address, such as 192.168.1.20.") from None
    if address.is_unspecified or address.is_multicast:
        raise InputError(f"phone-address is {named}, which is no address of one machine; name that of this one.")
    return str(address)

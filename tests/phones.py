"""The page as a phone in the local network reaches it."""

HERE = "127.0.0.1"


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}

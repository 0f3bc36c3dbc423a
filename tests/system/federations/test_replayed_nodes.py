"""The benchmark with nodes that replay a report: every report of every round is taken, and what it costs is counted."""

import numpy as np
import pytest
from benchmarks.peers.light_nodes import PARAMETERS, code_key_of, recorded_reply, round_fields
from benchmarks.replayed_nodes import REPORT_BOUND, measure

from truthfl.federation.protocol.messages import PARAMS
from truthfl.federation.protocol.reports import report_or_reason
from truthfl.flower_patches import message_from_bytes, set_task_identity

MODEL_BYTES = 4 * PARAMETERS


def test_rounds_with_a_few_nodes():
    found = measure(nodes=6, rounds=3)
    assert 0 < found["median_round_s"] <= found["slowest_round_s"]
    for way in ("sent", "received"):
        assert MODEL_BYTES < found[f"{way}_bytes_per_node_round"] < MODEL_BYTES + 1000
    assert found["server_cpu_ms_per_node_round"] > 0
    assert found["server_mb"] > 10


@pytest.mark.parametrize(("number", "reason"), [(3, None), (4, "another offer")])
def test_a_recorded_report_is_that_of_one_node(number, reason):
    set_task_identity(1)
    common = {PARAMS: np.zeros(PARAMETERS, dtype=np.float32)}
    reply = message_from_bytes(recorded_reply(3))
    found = report_or_reason(reply, common, round_fields(number), bound=REPORT_BOUND, code_key=code_key_of(number))
    assert reason in found if reason else found[PARAMS].shape == (PARAMETERS,)

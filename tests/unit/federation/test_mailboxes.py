"""Messages that wait for nodes: delivered in order until answered, once each, to the node they are for."""

import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from truthfl.federation.deployed import mailboxes as module
from truthfl.federation.deployed.mailboxes import Mailboxes

ADA, BEN, MOST = 7, 8, 1000


def test_a_message_is_delivered_until_it_is_answered():
    boxes = Mailboxes()
    boxes.put(ADA, "a", "first", MOST)
    boxes.put(ADA, "b", "second", MOST)
    boxes.put(BEN, "c", "third", MOST)
    number, message = boxes.next_after(ADA, 0)
    assert message == "first"
    assert boxes.next_after(ADA, 0) == (number, message)  # the response may have been lost
    assert boxes.next_after(ADA, number)[1] == "second"
    assert boxes.put_reply(ADA, "a", b"answer")
    assert boxes.next_after(ADA, 0)[1] == "second"
    assert boxes.next_after(BEN, 0)[1] == "third"


def test_nobody_answers_for_another_and_nobody_twice():
    boxes = Mailboxes()
    boxes.put(ADA, "a", "question", MOST)
    assert not boxes.put_reply(BEN, "a", b"forged")
    assert not boxes.put_reply(ADA, "b", b"unasked")
    assert boxes.put_reply(ADA, "a", b"answer")
    assert not boxes.put_reply(ADA, "a", b"another")
    assert {one: reply.content for one, reply in boxes.take_replies(["a", "b"]).items()} == {"a": b"answer"}
    assert boxes.take_replies(["a"]) == {}


def test_a_waiting_node_is_woken():
    boxes, woken = Mailboxes(), []
    boxes.begin_waiting(ADA, lambda: woken.append("Ada"))
    boxes.put(BEN, "b", "not for Ada", MOST)
    assert woken == []
    boxes.put(ADA, "a", "for Ada", MOST)
    assert woken == ["Ada"]
    started = time.monotonic()
    threading.Timer(0.05, lambda: boxes.put_reply(ADA, "a", b"answer")).start()
    boxes.wait_for_reply(["a"], 10.0)
    assert time.monotonic() - started < 5.0
    assert boxes.take_replies(["a"])["a"].content == b"answer"


def test_who_is_connected_and_what_is_lost(monkeypatch):
    boxes = Mailboxes()

    def wake():
        pass

    assert boxes.connected() == set()
    boxes.begin_waiting(ADA, wake)
    boxes.put(ADA, "a", "question", MOST)
    boxes.put(BEN, "b", "question", MOST)
    assert (boxes.connected(), boxes.lost(["a", "b"])) == ({ADA}, ["b"])
    boxes.end_waiting(ADA, wake)
    assert boxes.connected() == {ADA}  # Ada answers, or connects again
    monkeypatch.setattr(module, "GRACE_SECONDS", -1.0)
    assert boxes.lost(["a", "b"]) == ["a", "b"]
    monkeypatch.undo()
    boxes.disconnect(ADA)
    assert boxes.connected() == set()


def test_with_many_nodes_a_request_may_wait_longer_for_the_server():
    boxes = Mailboxes()
    for node in range(1000):
        boxes.begin_waiting(node, print)
        boxes.end_waiting(node, print)
    boxes._boxes[5].last_request -= module.GRACE_SECONDS + 2.0
    assert len(boxes.connected()) == 1000
    boxes._boxes[5].last_request -= 1000 * module.GRACE_SECONDS_PER_NODE
    assert len(boxes.connected()) == 999


def test_what_is_withdrawn_is_neither_delivered_nor_answered():
    boxes = Mailboxes()
    boxes.put(ADA, "a", "question", MOST)
    boxes.put(ADA, "b", "question", MOST)
    boxes.put_reply(ADA, "b", b"answer")
    boxes.withdraw(["a", "b", "unknown"])
    assert boxes.next_after(ADA, 0) is None
    assert not boxes.put_reply(ADA, "a", b"late")
    assert boxes.take_replies(["a", "b"]) == {}


def test_how_long_a_reply_may_be_is_known_while_somebody_waits_for_it():
    boxes = Mailboxes()
    boxes.put(ADA, "a", "question", 100)
    assert [boxes.most_bytes(node, one) for node, one in ((ADA, "a"), (BEN, "a"), (ADA, "b"))] == [100, 0, 0]
    boxes.put_reply(ADA, "a", b"answer")
    assert boxes.most_bytes(ADA, "a") == 0


def test_replies_have_one_budget_of_memory(monkeypatch):
    monkeypatch.setattr(module, "MOST_HELD_BYTES", 100)
    boxes = Mailboxes()
    for message_id in "abc":
        boxes.put(ADA, message_id, "question", MOST)
    assert boxes.make_room(60)
    assert not boxes.make_room(60)
    boxes.give_room_back(60)
    boxes.put_reply(ADA, "a", b"x" * 60)
    boxes.put_reply(ADA, "b", b"x" * 30)
    assert not boxes.make_room(60)
    boxes.take_replies(["a"])
    boxes.withdraw(["b", "c"])
    assert boxes.held_bytes == 0
    assert boxes.make_room(500), "a reply that is longer than the budget is read alone"
    assert not boxes.make_room(1)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([ADA, BEN]), st.sampled_from(["put", "next", "again", "reply"])), max_size=60)
)
def test_each_node_gets_its_messages_once_each_in_order(steps):
    """Whatever gets lost on the way: a node that asks after the last number it has gets what it lacks."""
    boxes, sent, received, last = Mailboxes(), {ADA: [], BEN: []}, {ADA: [], BEN: []}, {ADA: 0, BEN: 0}
    for count, (node, step) in enumerate(steps):
        if step == "put":
            sent[node].append(f"m{count}")
            boxes.put(node, f"m{count}", f"m{count}", MOST)
        elif step == "next" and (found := boxes.next_after(node, last[node])):
            last[node] = found[0]
            received[node].append(found[1])
        elif step == "again":
            boxes.next_after(node, last[node])  # and the response is lost
        elif step == "reply" and received[node]:
            boxes.put_reply(node, received[node][-1], b"")
    for node in (ADA, BEN):
        while found := boxes.next_after(node, last[node]):
            last[node] = found[0]
            received[node].append(found[1])
    assert received == sent

"""A participant's node sends every answer, in Flower's own loop over messages, whatever became of a message before."""

from importlib import import_module
from itertools import count

import pytest
from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate import NodeStateFactory

from truthfl.federation.flower_patches.prompt_supernode import LOOP, RECEIVE, send_replies_promptly
from truthfl.federation.protocol.messages import ENROL, document_record, query_message

loop = import_module(LOOP)
NODE = 7
BEFORE, AFTER = 1, 2  # runs, before and after the server was killed


class Node:
    """Flower's state of a node and its two steps, with a server of a few lines at the other end."""

    def __init__(self):
        objects = ObjectStoreFactory()
        self.state, self.store = NodeStateFactory(objects).state(), objects.store()
        for run in (BEFORE, AFTER):
            self.state.store_run(Run.create_empty(run))
        self.waiting, self.sent, self.numbers = [], [], count()

    def step(self):
        """What a SuperNode does over and over: receive, then send; without the wait when there is nothing to do."""
        received = getattr(loop, RECEIVE)(
            state=self.state,
            object_store=self.store,
            node_config={},
            receive=lambda: self.waiting.pop(0) if self.waiting else None,
            get_run=None,
            get_fab=None,
            pull_object=self.part,
            confirm_message_received=lambda *_: None,
            trusted_entities=None,
        )
        if received is not None:
            loop._push_messages(self.state, self.store, self.send, lambda *_: None)

    def part(self, run, part):
        if run == BEFORE:
            raise loop.RunNotRunningException
        return self.parts[part]

    def send(self, message, *_):
        self.sent.append(message.metadata.reply_to_message_id)
        return set(), ""

    def ask(self, run):
        TaskIdentity.run_id = run
        question = query_message(ENROL, NODE, {"number": next(self.numbers)})
        vars(question.metadata)["_message_id"] = question.object_id
        self.parts = {name: one.deflate() for name, one in get_all_nested_objects(question).items()}
        self.waiting.append((question, get_object_tree(question)))
        return question

    def answer(self, question):
        """As whoever runs the task does."""
        TaskIdentity.run_id = question.metadata.run_id
        loop._insert_message(Message(document_record({}), reply_to=question), self.state, self.store)


@pytest.fixture
def node(monkeypatch):
    for what, name in (
        (loop, RECEIVE),
        (TaskIdentity, "_run_id"),
        (TaskIdentity, "_node_id"),
        (TaskIdentity, "_task_id"),
    ):
        monkeypatch.setattr(what, name, getattr(what, name))  # as it was, when this is over
    TaskIdentity.node_id, TaskIdentity.task_id = NODE, 1
    send_replies_promptly()
    return Node()


def test_no_answer_waits_for_the_next_question(node):
    lost = node.ask(BEFORE)
    node.step()
    node.answer(lost)
    first = node.ask(AFTER)
    node.step()
    node.answer(first)
    node.step()
    assert node.sent == [lost.metadata.message_id, first.metadata.message_id]
    second = node.ask(AFTER)
    node.answer(second)
    node.step()
    assert node.sent[2:] == [second.metadata.message_id]


def test_without_answers_nothing_is_sent(node):
    node.step()
    assert node.sent == []

"""Nodes that connect normally, then say nothing or send something that only looks like an answer."""

import threading

NODE_ANSWERS = "truthfl.federation.deployed.node"


def silent_from_the_start(module):
    module.NodeAnswers.reply_to = lambda _self, _message: threading.Event().wait()


def silent_in_rounds(module):
    honest = module.NodeAnswers.reply_to

    def reply_to(self, message):
        if message.metadata.message_type == "train":
            threading.Event().wait()
        return honest(self, message)

    module.NodeAnswers.reply_to = reply_to


def names_twice(module):
    """Sign lists of missing people that name everybody twice."""
    honest = module.MaskingClient.list_signature
    module.MaskingClient.list_signature = lambda self, record, missing: honest(self, record, tuple(missing) * 2)


def answers_deep(module):
    """Answer the terms of the masks with nested lists, one level less each time."""
    from truthfl.federation.protocol.messages import text_record

    honest, depths = module.document_record, iter(range(995, 900, -1))

    def document_record(document):
        if "kept" not in document:
            return honest(document)
        depth = next(depths)
        return text_record('{"kept":true,"mac":"aa","x":' + "[" * depth + "]" * depth + "}")

    module.document_record = document_record


CHANGES = {
    "silent": {NODE_ANSWERS: silent_from_the_start},
    "silent in rounds": {NODE_ANSWERS: silent_in_rounds},
    "names twice": {"truthfl.federation.masking.participant": names_twice},
    "answers deep": {"truthfl.federation.participant.client_app": answers_deep},
}

"""Nodes that connect as they should, and then say nothing."""

import threading

NODE_ANSWERS = "truthfl.federation.deployed.node_answers"


def silent_from_the_start(module):
    module.NodeAnswers.reply_to = lambda _self, _message: threading.Event().wait()


def silent_in_rounds(module):
    honest = module.NodeAnswers.reply_to

    def reply_to(self, message):
        if message.metadata.message_type == "train":
            threading.Event().wait()
        return honest(self, message)

    module.NodeAnswers.reply_to = reply_to


CHANGES = {
    "silent": {NODE_ANSWERS: silent_from_the_start},
    "silent in rounds": {NODE_ANSWERS: silent_in_rounds},
}

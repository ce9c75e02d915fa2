"""Say something to all who cannot sleep: `python alice.py "Hi everyone" "Hi Bob"`."""

import sys

from chat import TOPIC, ChatMessage

import tamis
from tamis.collections import SyncDAStrongSet

try:
    with SyncDAStrongSet[ChatMessage](TOPIC) as my_chat:
        for text in sys.argv[1:] or ["Hi everyone", "Has anybody seen Bob?"]:
            my_chat.add(ChatMessage("Alice", text))
except tamis.RefusedError as error:
    sys.exit(str(error))

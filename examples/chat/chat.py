"""What Alice and Bob say to each other."""

from dataclasses import dataclass

from tamis import message_class

TOPIC = "/Chat/Insomnia"


@message_class("chat.ChatMessage")
@dataclass(frozen=True)
class ChatMessage:
    sender: str
    text: str

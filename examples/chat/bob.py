"""Hear what Alice says, or only what she says about Bob: `python bob.py I`, or `II`."""

import asyncio
import sys

from chat import TOPIC, ChatMessage

import tamis
from tamis import message
from tamis.collections import DAStrongSet

chat = message(ChatMessage)

# Episode I: whatever Alice says.
only_alice = chat.sender == "Alice"

# Episode II: what she says about Bob. As in the paper, the place of his name is asked for, which is
# -1 if there is none; `chat.text.contains("Bob")` is shorter, and the broker can evaluate it.
not_about_me = chat.text.find("Bob") == -1
about_me = only_alice & ~not_about_me


def show(heard: ChatMessage) -> None:
    print(f"Message from {heard.sender}: {heard.text}", flush=True)


async def main(episode: str) -> None:
    async with DAStrongSet[ChatMessage](TOPIC) as my_chat:
        watch = await my_chat.contains(only_alice if episode == "I" else about_me, show)
        print("listening", flush=True)
        await watch.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:] or ["I"]))
    except KeyboardInterrupt:
        pass
    except tamis.RefusedError as error:
        sys.exit(str(error))

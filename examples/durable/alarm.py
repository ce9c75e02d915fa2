"""Report readings that are too high, across restarts of this program and of the broker."""

import asyncio

import tamis

bus = tamis.connect()


@bus.on("celsius >= 90", durable="alarm", start="earliest", lifetime=7 * 86_400)
async def too_hot(event: tamis.Message) -> None:
    print(f"{event['sensor']}: {event['celsius']} °C", flush=True)


# A second subscription on the same connection. It is not durable, so it needs no name.
@bus.on('battery = "low"', start="earliest")
def weak(event: tamis.Message) -> None:
    print(f"{event['sensor']}: a new battery, please", flush=True)


async def main() -> None:
    async with bus:
        await bus.run()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
except tamis.RefusedError as error:
    print(error)

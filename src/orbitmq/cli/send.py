"""`orbitmq send TOPIC BODY` or `orbitmq send TOPIC -f FILE`: send one message, or one a line.

In: a body, or the lines of a file or of standard input. Out: where it was stored, or how many were.

Rules:
1. Lines are sent pipelined, many at a time. The first failure ends the command, which then reports
   what was stored and what was not.
2. Lines with a sharding key are sent one after the other: the original's brokers may store what
   comes at the same time in any order.
3. Empty lines are skipped: a message must not be empty.
4. On a terminal the progress is shown.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from io import FileIO
from pathlib import Path

import msgspec

from orbitmq.cli.progress import ProgressLine
from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import (
    NotDone,
    add_reaching,
    client_options,
    namesrv_of,
    pair,
    run_client,
)
from orbitmq.client.message import DELAY_LEVEL_MAX, Message
from orbitmq.client.producer import Producer, SendResult
from orbitmq.errors import LocalProtocolError, MQError, SettingError
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.threads import Threads

GROUP = "ORBITMQ_SHELL"
CHUNK_BYTES = 1_048_576
LINE_BYTES_MAX = 4_194_304 + 1
"""A longer line cannot be a message."""

STDIN = "-"

EXAMPLES = """\
examples:
  orbitmq send orders '{"id":1}' --tag paid --key 1
  orbitmq send orders hello --property region=north --delay-level 3
  orbitmq send orders -f lines.jsonl               a message a line
  orbitmq send orders -f lines.jsonl --key-field id    its key is the member id of its JSON
  producer | orbitmq send orders -f -              a message a line of standard input
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "send",
        help="send a message, or one for each line of a file",
        description="Send a message, or one for each line of a file.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("body", metavar="BODY", nargs="?", help="the message, as text")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="send each line of FILE; - is standard input"
    )
    parser.add_argument(
        "--tag", default="", metavar="TAG", help="the tag, which consumers can filter by"
    )
    parser.add_argument(
        "--key",
        dest="keys",
        action="append",
        default=[],
        metavar="K",
        help="a key to look it up by; may be repeated",
    )
    parser.add_argument(
        "--key-field",
        metavar="NAME",
        help="with -f: each line is a JSON object, and this member is its key",
    )
    parser.add_argument(
        "--property",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property; may be repeated",
    )
    parser.add_argument(
        "--delay-level",
        type=_delay_level,
        default=0,
        metavar="L",
        help=f"1 to {DELAY_LEVEL_MAX}: deliver it after 1s 5s 10s 30s 1m … 2h",
    )
    parser.add_argument(
        "--sharding-key",
        default="",
        metavar="K",
        help="messages with the same sharding key keep their order",
    )
    add_reaching(parser, timeout_s=3)
    parser.set_defaults(run=run)


def _delay_level(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= DELAY_LEVEL_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a level from 1 to {DELAY_LEVEL_MAX}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_client("orbitmq send", _main(arguments))


async def _main(arguments: argparse.Namespace) -> None:
    screen = Screen(is_json=arguments.json)
    if (arguments.body is None) == (arguments.file is None):
        raise SettingError("give a BODY, or -f FILE with one message per line")
    if arguments.key_field and arguments.file is None:
        raise SettingError("--key-field is for -f: for one message give --key")
    if arguments.file not in (None, STDIN) and SystemFiles().size(Path(arguments.file)) is None:
        raise SettingError(f"there is no file {arguments.file}; for a pipe write -f -")
    options = client_options(arguments)
    producer = Producer(namesrv_of(arguments), GROUP, **options)
    async with producer:
        if arguments.file is None:
            message = _message(arguments, arguments.body.encode(errors="surrogateescape"))
            timeout: float | None = arguments.timeout
            _show_result(screen, arguments.topic, await producer.send(message, timeout=timeout))
        else:
            await _Lines(producer, arguments).send(screen)


def _message(arguments: argparse.Namespace, body: bytes) -> Message:
    keys = list(arguments.keys)
    if arguments.key_field:
        keys.append(_key_in(body, arguments.key_field))
    return Message(
        arguments.topic,
        body,
        tag=arguments.tag,
        keys=keys,
        properties=dict(arguments.property),
        delay_level=arguments.delay_level,
        sharding_key=arguments.sharding_key,
    )


def _key_in(body: bytes, name: str) -> str:
    """Return the member `name` of a JSON object; raises LocalProtocolError when it has none."""
    try:
        value = msgspec.json.decode(body)
        found = value[name]
    except (ValueError, KeyError, TypeError):
        shown = body[:60].decode(errors="replace")
        raise LocalProtocolError(
            f"the line {shown!r} is not a JSON object with a member {name} (--key-field)"
        ) from None
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _show_result(screen: Screen, topic: str, result: SendResult) -> None:
    value = {
        "topic": topic,
        "status": result.status.name,
        "message_id": result.message_id,
        "offset_id": result.offset_id,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
    }
    if screen.is_json:
        screen.value(value)
        return
    queue = result.queue
    screen.line(
        f"{result.status.name}  {result.message_id}  "
        f"{queue.broker_name}/{queue.queue_id}@{result.queue_offset}"
    )


# --- lines ---


class _Lines:
    """The messages of a file on their way."""

    def __init__(self, producer: Producer, arguments: argparse.Namespace) -> None:
        self._producer = producer
        self._arguments = arguments
        self._sent_count = 0
        self._failed_count = 0
        self._failure: BaseException | None = None

    async def send(self, screen: Screen) -> None:
        """Send all lines; raises NotDone when one was not stored for certain."""
        clock = SystemClock()
        began_s = clock.monotonic_s()
        try:
            await self._send_all(clock)
        except MQError as error:
            self._failure = self._failure or error
        await self._producer.flush()
        await asyncio.sleep(0)  # the last futures tell what became of them
        seconds = clock.monotonic_s() - began_s
        topic = self._arguments.topic
        if screen.is_json:
            screen.value(
                {
                    "topic": topic,
                    "sent": self._sent_count,
                    "failed": self._failed_count,
                    "seconds": round(seconds, 3),
                }
            )
        if self._failure is not None:
            raise NotDone(
                f"{self._sent_count:,} messages were sent to {topic}, then: {self._failure}"
            ) from None
        if not screen.is_json:
            screen.line(f"sent {self._sent_count:,} messages to {topic} in {seconds:.1f} s")

    async def _send_all(self, clock: SystemClock) -> None:
        done, total = 0, _size(self._arguments.file)
        with ProgressLine(clock, is_wanted=False) as progress:
            async for lines, read_bytes in _chunks(self._arguments.file):
                await self._submit_all(lines)
                done += read_bytes
                progress.tell("bytes read", done, total)

    async def _submit_all(self, lines: list[bytes]) -> None:
        """Send lines; raises the first failure of these or of earlier ones."""
        for line in lines:
            if self._failure is not None:
                raise self._failure
            if line.strip():
                await self._producer.room()
                message = _message(self._arguments, line)
                sending = self._producer.submit(message, timeout=self._arguments.timeout)
                sending.add_done_callback(self._done)
                if self._arguments.sharding_key:
                    await asyncio.wait([sending])

    def _done(self, sending: "asyncio.Future[SendResult]") -> None:
        error = None if sending.cancelled() else sending.exception()
        if error is None:
            self._sent_count += not sending.cancelled()
        else:
            self._failed_count += 1
            self._failure = self._failure or error


def _size(file: str) -> int:
    """Return how many bytes there are to read; 0: nobody knows."""
    return 0 if file == STDIN else SystemFiles().size(Path(file)) or 0


async def _chunks(file: str) -> AsyncIterator[tuple[list[bytes], int]]:
    """Return whole lines of a file and how many bytes were read for them."""
    left = b""
    async for part in _stdin_parts() if file == STDIN else _file_parts(file):
        *lines, left = (left + part).split(b"\n")
        if len(left) > LINE_BYTES_MAX:
            raise LocalProtocolError(
                f"{file} has a line of more than {LINE_BYTES_MAX - 1:,} bytes: no message may be"
                " that long"
            )
        yield [line.rstrip(b"\r") for line in lines], len(part)
    if left:
        yield [left.rstrip(b"\r")], 0


async def _file_parts(file: str) -> AsyncIterator[bytes]:
    threads = Threads(1, "reading")
    position = 0
    try:
        while True:
            part = await threads.run(partial(SystemFiles().read_at, file, position, CHUNK_BYTES))
            if not part:  # also when somebody has removed it meanwhile
                return
            position += len(part)
            yield part
    finally:
        threads.close()


async def _stdin_parts() -> AsyncIterator[bytes]:
    """Return what standard input has, as it comes; Ctrl-C is heard while nothing comes."""
    loop = asyncio.get_running_loop()
    raw = FileIO(sys.stdin.fileno(), closefd=False)
    while True:
        readable = loop.create_future()
        try:
            loop.add_reader(sys.stdin.fileno(), _tell, readable)
        except PermissionError:  # a file or nothing at all: reading it does not wait
            readable.set_result(None)
        try:
            await readable
        finally:
            loop.remove_reader(sys.stdin.fileno())
        part = raw.read(CHUNK_BYTES)
        if not part:
            return
        yield part


def _tell(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)

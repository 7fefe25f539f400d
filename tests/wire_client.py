"""A small blocking client for tests: commands in, commands out, over a real socket.

In: an address and commands. Out: what the peer answers, or what it sends by itself. Every wait
has a limit. It knows nothing of retries or routes: a test says exactly what goes over the wire.
"""

import socket
from collections import deque
from types import TracebackType

from orbitmq.wire.command import Command, decode_command, encode_command
from orbitmq.wire.frame import FrameDecoder

LIMIT_S = 20.0


class WireClient:
    """One connection to a broker or name server."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        self._decoder = FrameDecoder()
        self._arrived: deque[Command] = deque()
        self._opaque = 0

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def shut_down(self) -> None:
        """End the connection while another thread may be waiting for something to arrive."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def patience(self, timeout_s: float) -> None:
        """Say how long a send may wait for a peer that takes nothing; then TimeoutError."""
        self._socket.settimeout(timeout_s)

    def send(self, command: Command) -> int:
        """Send a command under a fresh opaque and give that."""
        self._opaque += 1
        command.opaque = self._opaque
        self._socket.sendall(encode_command(command))
        return self._opaque

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self, timeout_s: float = LIMIT_S) -> Command:
        """Return the next command that arrives; raises TimeoutError when none does."""
        self._socket.settimeout(timeout_s)
        while not self._arrived:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the peer closed the connection")
            self._arrived.extend(map(decode_command, self._decoder.feed(data)))
        return self._arrived.popleft()

    def arrived(self) -> Command | None:
        """Return the next command that has arrived with an earlier one; None when none has."""
        return self._arrived.popleft() if self._arrived else None

    def receive_answer(self, opaque: int, timeout_s: float = LIMIT_S) -> Command:
        """Return the answer to one request, passing over everything else that arrives."""
        while True:
            command = self.receive(timeout_s)
            if command.is_response and command.opaque == opaque:
                return command

    def call(self, command: Command, timeout_s: float = LIMIT_S) -> Command:
        """Send a request and give its answer."""
        return self.receive_answer(self.send(command), timeout_s)

    def ask(self, code: int, body: bytes = b"", /, **fields: str | int) -> Command:
        """Call with fields given as keywords, by their names on the wire."""
        texts = {name: str(value) for name, value in fields.items()}
        return self.call(Command(code, fields=texts, body=body))

"""Messages that other threads hand to a producer's loop: many in one go, without waiting for it.

In: Sendings, prepared in any thread, whose futures any thread can wait for. Out: the same, launched
on the loop in the order of the calls.

Rules:
1. Only the first of a row wakes the loop; what follows until the loop looks goes with it.
2. What waits here is in flight already: limits count it. Whoever finds no room is told at once.
3. A future that is cancelled while its message waits here stops it; later it cannot be cancelled.
4. The loop takes at most `TURN_MAX` in one turn, so that answers are read between.
"""

from typing import TYPE_CHECKING

from orbitmq.client.sending import Sending
from orbitmq.errors import ClientStateError
from orbitmq.world.threads import new_lock

if TYPE_CHECKING:
    from orbitmq.client.sender import Sender

TURN_MAX = 512


class Handover:
    """What waits for one sender's loop."""

    def __init__(self, sender: "Sender") -> None:
        self.count = self.size_bytes = 0
        self._sender = sender
        self._lock = new_lock()
        self._sendings: list[Sending] = []
        self._is_closed = False

    def take(self, sending: Sending) -> None:
        """Have the loop launch a Sending soon; for all threads.

        Raises LimitExceeded when too much is in flight, ClientStateError after the end.
        """
        with self._lock:
            if self._is_closed:
                raise ClientStateError("the producer was closed; make a new one")
            if not self._sender.has_room:
                self._sender.refuse_more()
            self._sendings.append(sending)
            self.count += 1
            self.size_bytes += len(sending.body)
            is_first = self.count == 1
        if is_first:
            self._sender.loop.call_soon_threadsafe(self.launch)

    def close(self) -> None:
        """Take nothing more; what waits is still launched."""
        with self._lock:
            self._is_closed = True

    def launch(self) -> None:
        """Launch what waits (on the loop)."""
        sender = self._sender
        with self._lock:
            taken, self._sendings = self._sendings[:TURN_MAX], self._sendings[TURN_MAX:]
            size_bytes = sum(len(sending.body) for sending in taken)
            self.count -= len(taken)
            self.size_bytes -= size_bytes
            sender.count += len(taken)
            sender.size_bytes += size_bytes
        if self.count:
            sender.loop.call_soon(self.launch)
        now_s = sender.loop.time()
        for sending in taken:
            if sending.future.set_running_or_notify_cancel():
                sending.deadline_s = now_s + sending.timeout_s
                sender.dispatch(sending)
            else:
                sender.release(sending)

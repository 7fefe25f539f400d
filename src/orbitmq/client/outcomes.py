"""What a handler may say of a message other than "consumed": later again, or never again.

In: nothing. Out: two exceptions that handlers raise.

Rules:
1. A handler that returns, whatever it returns, has consumed its message. A handler that raises
   wants it again: as if it had raised `Retry()`.
2. These two say more than another exception would; they are not errors and are logged quietly. A
   message that dies of one is told at WARNING, with the reason (`sending_back`).
"""

from orbitmq.wire.properties import reason_text


class Retry(Exception):
    """Raised by a handler: bring this message again later.

    >>> raise Retry(delay_level=4)

    `delay_level` 1 to 18 chooses the delay (1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h,
    2 h); 0 lets the broker choose: 10 s at first, then longer each time. `consumed` is for handlers
    of batches: so many messages from the beginning of the batch are done, only the rest comes
    again. Orderly consumers stop the queue instead, for `suspend_s` seconds (the consumer's
    `suspend_queue_s` if not given), and then hand the same messages out again.
    """

    def __init__(
        self, delay_level: int = 0, *, consumed: int = 0, suspend_s: float | None = None
    ) -> None:
        super().__init__(f"again later (delay level {delay_level})")
        self.delay_level = delay_level
        self.consumed = consumed
        self.suspend_s = suspend_s


class DeadLetter(Exception):
    """Raised by a handler: this message will never be consumed; put it with the dead letters.

    >>> raise DeadLetter("no such customer")

    It goes to the topic `%DLQ%<group>` at once, where a person or a program looks at it. The reason
    is logged, and OrbitMQ's brokers keep it in the dead letter's property `DLQ_REASON`.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave it up")
        self.reason = reason


def reason_of(outcome: BaseException) -> str:
    """Return what an exception says of why a message was not consumed, in one line."""
    if isinstance(outcome, DeadLetter):
        return reason_text(str(outcome))
    if isinstance(outcome, Retry) and outcome.__cause__ is not None:
        outcome = outcome.__cause__
    return reason_text(f"{type(outcome).__name__}: {outcome}")

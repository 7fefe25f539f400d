"""The counters of one server, or of everything dialled under one name.

In: a registry and a name. Out: plain integers that connections add to, shown with the label
`server`. Code that handles frames by itself (a ReadFrames) adds what it handled to `frames`,
`requests` and `failures`.
"""

from orbitmq.metrics import Registry
from orbitmq.wire.codes import REQUEST_CODES

UNKNOWN_CODE = "unknown"


class Traffic:
    """What went over the connections of one name."""

    def __init__(self, registry: Registry, name: str) -> None:
        labels = {"server": name}
        net = "orbitmq_net_"
        self.connections = registry.level(net + "connections", "Open connections.", labels)
        self.laters = registry.level(net + "laters", "Answers owed to waiting requests.", labels)
        self.held = registry.level(
            net + "held_bytes", "Unfinished frames, unhandled input and unsent output.", labels
        )
        self.opens = registry.counter(
            net + "opens_total", "Connections made, refused ones included.", labels
        )
        self.closes = registry.counters(
            net + "closes_total", "Connections closed, by reason.", "reason", labels
        )
        self.received = registry.counter(net + "received_bytes_total", "Bytes read.", labels)
        self.sent = registry.counter(net + "sent_bytes_total", "Bytes given to sockets.", labels)
        self.frames = registry.counter(net + "frames_total", "Whole frames read.", labels)
        self.requests = registry.counters(
            net + "requests_total", "Requests given to handlers, by code.", "code", labels
        )
        self.failures = registry.counters(
            net + "failures_total",
            "Answers with a code other than 0, by response code.",
            "code",
            labels,
        )
        self.protocol_errors = registry.counters(
            net + "protocol_errors_total", "What peers sent against the protocol.", "reason", labels
        )
        self.unasked = registry.counter(
            net + "unasked_responses_total", "Responses to no request, or too late ones.", labels
        )
        self.pauses = registry.counter(
            net + "pauses_total", "Times a connection was not read from for a while.", labels
        )

    def request_label(self, code: int) -> int | str:
        """What a request code is counted as: a stranger must not use up the label's values."""
        return code if code in REQUEST_CODES else UNKNOWN_CODE

"""Requests to brokers and name servers with typed headers, and what their answers mean.

In: an address, a request code, a header, a body. Out: the answer, or the exception it stands for.

Rules:
1. This is the one place that turns a response code into an exception: BrokerBusy for flow control,
   AccessDenied for what is not allowed, RequestFailed for every other code that the caller did not
   expect.
2. There is one connection per address, dialled when it is needed and again after a failure. A peer
   is kept as long as somebody uses it; `forget` closes those of brokers that are gone.
3. Hooks see every request before it goes out and every answer before it is judged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from orbitmq.client.rpc_hooks import RpcHook
from orbitmq.client.settings import LANGUAGE, ClientSettings
from orbitmq.errors import AccessDenied, BrokerBusy, RequestFailed
from orbitmq.metrics import Registry
from orbitmq.net.connection import Handler, ReadFrames, cut_next
from orbitmq.net.limits import Limits
from orbitmq.net.peer import Peer
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.fields import Header, write_header
from orbitmq.world.tls import ClientTls

log = logging.getLogger(__name__)

SUCCESS = int(ResponseCode.SUCCESS)
_FAILURES: dict[int, type[RequestFailed]] = {
    ResponseCode.SYSTEM_BUSY: BrokerBusy,
    ResponseCode.FLOW_CONTROL: BrokerBusy,
    ResponseCode.NO_PERMISSION: AccessDenied,
}

BeforeRequest = Callable[[str, Command], None]
AfterAnswer = Callable[[str, Command, Command], None]


class Remote:
    """The connections of one client, by address."""

    def __init__(
        self,
        settings: ClientSettings,
        handle: Handler,
        registry: Registry,
        read_frames: ReadFrames = cut_next,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.turn = Turn(self.loop)
        self.before_request: list[BeforeRequest] = []
        """Called with address and request; may add fields to it."""
        self.after_answer: list[AfterAnswer] = []
        """Called with address, request and answer."""
        self._hooks: list[RpcHook] = []
        self._settings = settings
        self._handle = handle
        self._registry = registry
        self._read_frames = read_frames
        self._limits = Limits()
        self._tls = ClientTls(settings.tls) if settings.tls is not None else None
        self._peers: dict[str, Peer] = {}
        self._gone: list[Peer] = []
        self._is_closed = False
        self.on_connected: Callable[[str], None] | None = None
        """Called with an address whenever a connection to it has been made."""

    def peer(self, address: str) -> Peer:
        """Return the other side at an address."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                address,
                self.turn,
                handle=self._handle,
                limits=self._limits,
                registry=self._registry,
                tls=self._tls,
            )
            peer.on_connected = self.on_connected
            peer.read_frames = self._read_frames
            if self._is_closed:
                peer.close()  # whoever still asks is told so, and nothing is dialled
        return peer

    def add_hooks(self, hooks: Iterable[RpcHook]) -> None:
        """Have hooks called from now on, each once however often it is added."""
        for hook in hooks:
            if hook not in self._hooks:
                self._hooks.append(hook)
                self.before_request.append(hook.before)
                self.after_answer.append(hook.after)

    async def ask(
        self,
        address: str,
        request: Command,
        *,
        timeout_s: float | None = None,
        expected: Iterable[int] = (SUCCESS,),
    ) -> Command:
        """Send a request and give its answer, if its code is an expected one.

        Raises BrokerBusy or RequestFailed for another code, ConnectFailed when nothing was sent,
        RequestTimeout or ConnectionClosed when the outcome is unknown.
        """
        timeout_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        answer = await self.call(address, request, timeout_s)
        if answer.code not in expected:
            raise failure_of(answer)
        return answer

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        """Send a request and give its answer, whatever its code; the other errors are `ask`'s."""
        for before in self.before_request:
            before(address, request)
        answer = await self.peer(address).call(request, timeout_s)
        for after in self.after_answer:
            after(address, request, answer)
        return answer

    def forget(self, addresses: Iterable[str]) -> None:
        """Close the connections to addresses that nobody needs any more."""
        self._gone = [peer for peer in self._gone if not peer.is_gone]
        for address in addresses:
            peer = self._peers.pop(address, None)
            if peer is not None:
                peer.close()
                self._gone.append(peer)

    def idle_addresses(self) -> set[str]:
        """Return the addresses that have been used and at which nobody waits for an answer."""
        return {address for address, peer in self._peers.items() if not peer.is_awaited}

    async def close(self) -> None:
        """End all connections for good; returns when their sockets are gone."""
        self._is_closed = True
        self.forget(list(self._peers))
        gone, self._gone = self._gone, []
        await asyncio.gather(*(peer.wait_closed() for peer in gone))


def request(code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
    """Return a request with a typed header."""
    fields = write_header(header) if header is not None else {}
    return Command(code=int(code), fields=fields, body=body, language=LANGUAGE)


def failure_of(answer: Command) -> RequestFailed:
    """Return the exception that an answer stands for."""
    failure = _FAILURES.get(answer.code, RequestFailed)
    return failure(answer.code, answer.remark or "")

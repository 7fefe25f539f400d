"""Which part of a message goes to which parameter of a handler, decided once.

In: a function. Out: a `Call` that turns a received message into the function's arguments.

Rules:
1. The first parameter gets the body, read as its annotation says, unless it is one of the names
   below or is annotated as a ReceivedMessage.
2. These names get what they say: `message`, `key` (the first one), `keys`, `tag`, `topic`,
   `headers` (all properties), `message_id`, `reconsume_times`, `queue`. A parameter that is
   annotated as ReceivedMessage gets the message, whatever its name. A text among them is read as
   its annotation says, as a property is.
3. Every other parameter is the property of its name, or the one that `Header("name")` in its
   annotation names: as text, or read as int, float or bool. Without a default it must be there.
4. What cannot be bound is told when the function is decorated, not when a message comes.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from orbitmq.app.bodies import BodyError, decoder
from orbitmq.client.message import ReceivedMessage
from orbitmq.errors import SettingError
from orbitmq.wire.bodies_client import MessageQueue

Take = Callable[[ReceivedMessage], Any]

_PARTS: dict[str, Take] = {
    "message": lambda message: message,
    "keys": lambda message: message.keys,
    "headers": lambda message: dict(message.properties),
    "reconsume_times": lambda message: message.reconsume_times,
    "queue": lambda message: message.queue,
}
_TEXTS: dict[str, Callable[[ReceivedMessage], str]] = {
    "key": lambda message: (message.keys or [""])[0],
    "tag": lambda message: message.tag,
    "topic": lambda message: message.topic,
    "message_id": lambda message: message.message_id,
}
_ONLY_AS: dict[str, type] = {"message": ReceivedMessage, "queue": MessageQueue}
"""What these are, whatever a handler would like."""
_ANYTHING = (inspect.Parameter.empty, Any, object)


class Header(NamedTuple):
    """Names the property that a parameter gets: `trace: Annotated[str, Header("trace-id")]`."""

    name: str


class Call(NamedTuple):
    """A function, and how its arguments are taken from a message."""

    function: Callable[..., Any]
    takes: dict[str, Take]
    is_async: bool

    def arguments(self, message: ReceivedMessage) -> dict[str, Any]:
        """The keyword arguments; raises BodyError for a body or header that cannot be read."""
        return {name: take(message) for name, take in self.takes.items()}

    def __call__(self, message: ReceivedMessage) -> Any:
        """Call the function with a message's parts."""
        return self.function(**self.arguments(message))


def call_of(function: Callable[..., Any]) -> Call:
    """Return how a function is called; raises SettingError when a parameter cannot be bound."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise SettingError(
            f"{_name(function)}: an annotation names {error.name}, which its module does not have"
        ) from None
    takes: dict[str, Take] = {}
    is_body_free = True
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _BOUND:
            raise SettingError(
                f"{_name(function)}: parameter {parameter.name} must be an ordinary one; a handler "
                "gets its arguments by name"
            )
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        take = _part(_name(function), parameter, hint)
        if take is None and is_body_free:
            is_body_free = False
            take = _body(hint)
        takes[parameter.name] = take or _header(parameter, hint)
    return Call(function, takes, inspect.iscoroutinefunction(function))


_BOUND = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _part(function_name: str, parameter: inspect.Parameter, hint: Any) -> Take | None:
    """Return what a parameter of a known name gets, and one that wants the message itself."""
    if hint is ReceivedMessage:
        return _PARTS["message"]
    if _header_name(hint) is not None:
        return _header(parameter, hint)
    name = parameter.name
    kind = _ONLY_AS.get(name)
    if kind is not None and hint is not kind and hint not in _ANYTHING:
        raise SettingError(
            f"{function_name}: parameter {name} gets the {kind.__name__}, not what its annotation "
            "says; give the parameter for the body another name"
        )
    return _text(parameter, hint) if name in _TEXTS else _PARTS.get(name)


def _text(parameter: inspect.Parameter, hint: Any) -> Take:
    """Return how a text of the message is read as an annotation says, or its default."""
    name, default = parameter.name, parameter.default
    text_of = _TEXTS[name]
    if (hint is str or hint in _ANYTHING) and default is inspect.Parameter.empty:
        return text_of

    def take(message: ReceivedMessage) -> Any:
        text = text_of(message)
        if not text and default is not inspect.Parameter.empty:
            return default
        return text if hint in _ANYTHING else _converted(name, text, hint)

    return take


def _body(hint: Any) -> Take:
    decode = decoder(hint)
    return lambda message: decode(message.body)


def _header(parameter: inspect.Parameter, hint: Any) -> Take:
    name = _header_name(hint) or parameter.name
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    is_text = kind in (str, inspect.Parameter.empty)
    default = parameter.default

    def take(message: ReceivedMessage) -> Any:
        text = message.properties.get(name)
        if text is None:
            if default is inspect.Parameter.empty:
                raise BodyError(f"message with the property {name}", "it has none of that name")
            return default
        return text if is_text else _converted(name, text, kind)

    return take


def _header_name(hint: Any) -> str | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra.name for extra in get_args(hint)[1:] if isinstance(extra, Header)), None)


def _converted(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"message with a fitting property {name}", str(error)) from None

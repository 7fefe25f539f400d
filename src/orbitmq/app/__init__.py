"""The application layer: decorate functions to consume topics, send values, run the whole.

In: functions. Out: `App`, which runs them against a cluster, and `TestClient`, which calls them
without one. `orbitmq run module:app` runs an App as a program.
"""

from orbitmq.app.app import App, ListenerOptions, SendOptions
from orbitmq.app.asgi import with_app
from orbitmq.app.bodies import BodyError
from orbitmq.app.calling import Header
from orbitmq.app.test_client import Delivery, TestClient
from orbitmq.client.outcomes import DeadLetter, Retry

__all__ = [
    "App",
    "BodyError",
    "DeadLetter",
    "Delivery",
    "Header",
    "ListenerOptions",
    "Retry",
    "SendOptions",
    "TestClient",
    "with_app",
]

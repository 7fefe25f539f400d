"""OrbitMQ: a message broker in Python that speaks Apache RocketMQ's protocol and keeps its files.

The layers, top to bottom (an import may only go down; see docs/internals/layout.md):
cli > broker, namesrv > net > store > core > wire > world > config, metrics > errors, ensure.
"""

__version__ = "0.1.0"

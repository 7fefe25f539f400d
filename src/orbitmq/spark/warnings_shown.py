"""Warnings of sources and sinks where nobody has set up logging: Spark's own Python processes.

In: what `orbitmq.spark` logs. Out: warnings and errors at stderr, which Spark passes on.

Rule: the client library is silent unless a program sets up logging, as libraries should be. Spark's
processes are no program of anybody: what is told there of losses must be seen. Where the root
logger has a handler, nothing is done.
"""

import logging


class LastResort(logging.Handler):
    """Does what Python does by itself for a logger without any handler."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning to stderr, unless somebody else takes it."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not logging.root.handlers:
            last.handle(record)


def show_warnings() -> None:
    """Have warnings of sources and sinks shown, once."""
    logger = logging.getLogger("orbitmq.spark")
    if not any(isinstance(each, LastResort) for each in logger.handlers):
        logger.addHandler(LastResort())

"""Stored records as Arrow batches, many at a time, and back. Needs `pip install 'orbitmq[arrow]'`.

In: bytes of a log or of pull answers, or Arrow batches. Out: the other one.

Rules:
1. Nothing here knows Spark, sockets or files: whoever has the bytes asks for columns.
2. Positions of fields come from `wire.record`, names and types of columns from `columns`.
"""

"""The benchmark programme: `make bench`, or `python -m benchmarks --help`.

It compares this broker with a bare server in C, the limit; with Redis and NATS where they are
installed; and, where Java and Maven are there, with the original 4.9.7: all in one run on one
machine. No part of the product.
"""

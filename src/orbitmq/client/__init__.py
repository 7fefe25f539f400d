"""The client: producers, consumers and administration over RocketMQ's protocol, asynchronous.

In: what a program wants sent, consumed or managed. Out: requests to name servers and brokers, ours
or the original's. Programs import it as `orbitmq.aio`, or in synchronous form from `orbitmq`.

Rules:
1. Nothing here installs an event-loop policy, makes a loop or prints. It logs; where a program has
   not configured logging, Python shows warnings at stderr: that a handler failed must be seen.
2. Whatever a client starts (tasks, connections, threads) ends with its `close`.
"""

"""Keys of the original's broker that change nothing here, each with its default and the reason.

In: nothing. Out: one table for BrokerSettings. Whoever sets one of these keys reads the reason in
the log, and docs/reference/settings.md has them all.

Rules:
1. A feature that comes later is said to be missing; it is not called needless.
2. Values that promise what is not kept, such as access control, are refused: nothing is started.
"""

from collections.abc import Mapping

from orbitmq.config.settings import NoEffect

_THREADS = "one event loop handles all requests; there is no pool of threads to size"
_WAITING = (
    "there is no queue whose length could be set: requests wait in the sockets of their senders,"
    " and the system bounds those"
)
_MEMORY = "Python manages its own memory"
_NO_SUCH_CALLS = "it bounds a kind of request (invokeAsync) that the original's broker never sends"
_POOL = "the log is written with plain writes into the page cache; there is no pool beside it"
_LOCK = "one loop writes the log; there is no lock to choose"
_MAPPING = "the log is written with plain writes; mapped pages need no warming"
_UNLINK = "a removed file is unlinked at once and unmapped with its last reader"
_COMMERCIAL = "nothing is billed"
_HA = "replication does not exist yet"
_DLEDGER = "DLedger's log is not supported; replication comes with master and slave"
_DLEDGER_ONLY = "in the original DLedger's log alone reads it, and that one is not supported"
_TRANSACTIONS = "transactions do not exist yet; such messages are refused"
_ACL = "access control does not exist yet; leave it false and keep the broker in a trusted network"
_REPLY = "request and reply through the broker do not exist yet"
_DELIVERY = "delayed messages are delivered by the loop itself, together with its other writes"

BROKER_WITHOUT_EFFECT: Mapping[str, NoEffect] = {
    "aclEnable": NoEffect("false", _ACL, ("true",)),
    "adminBrokerThreadPoolNums": NoEffect("16", _THREADS),
    "bitMapLengthConsumeQueueExt": NoEffect(
        "64",
        "it follows from maxErrorRateOfBloomFilter and expectConsumerNumUseFilter, as there (112)",
    ),
    "brokerRole": NoEffect(
        "ASYNC_MASTER",
        _HA + "; every broker is a master of its own (ASYNC_MASTER)",
        ("SYNC_MASTER", "SLAVE"),
    ),
    "channelNotActiveInterval": NoEffect("60000", "the original has no use for it either"),
    "checkCRCOnRecover": NoEffect(
        "true", "checksums are always checked when a log is read back: damage must not be served"
    ),
    "clientAsyncSemaphoreValue": NoEffect("65535", _NO_SUCH_CALLS),
    "clientCallbackExecutorThreads": NoEffect("2", _THREADS),
    "clientManageThreadPoolNums": NoEffect("32", _THREADS),
    "clientManagerThreadPoolQueueCapacity": NoEffect("1000000", _WAITING),
    "clientOnewaySemaphoreValue": NoEffect(
        "65535", "a name server is told one thing at a time, and its answer is awaited"
    ),
    "clientPooledByteBufAllocatorEnable": NoEffect("false", _MEMORY),
    "clientWorkerThreads": NoEffect("4", _THREADS),
    "commercialBaseCount": NoEffect("1", _COMMERCIAL),
    "commercialBigCount": NoEffect("1", _COMMERCIAL),
    "commercialEnable": NoEffect("true", _COMMERCIAL),
    "commercialTimerCount": NoEffect("1", _COMMERCIAL),
    "commercialTransCount": NoEffect("1", _COMMERCIAL),
    "commitCommitLogLeastPages": NoEffect("4", _POOL),
    "commitCommitLogThoroughInterval": NoEffect("200", _POOL),
    "commitIntervalCommitLog": NoEffect("200", _POOL),
    "consumerManageThreadPoolNums": NoEffect("32", _THREADS),
    "consumerManagerThreadPoolQueueCapacity": NoEffect("1000000", _WAITING),
    "dLegerGroup": NoEffect("", _DLEDGER),
    "dLegerPeers": NoEffect("", _DLEDGER),
    "dLegerSelfId": NoEffect("", _DLEDGER),
    "debugLockEnable": NoEffect("false", "there is no page cache lock to write about"),
    "destroyMapedFileIntervalForcibly": NoEffect("120000", _UNLINK),
    "diskFallRecorded": NoEffect(
        "true",
        "the original only writes that into its log of statistics; how far groups are behind is"
        " always a metric (orbitmq_broker_lag_messages)",
    ),
    "duplicationEnable": NoEffect("false", "a log is never read back twice into the same queues"),
    "enableBatchPush": NoEffect("false", _DLEDGER_ONLY),
    "enableDLegerCommitLog": NoEffect("false", _DLEDGER, ("true",)),
    "enableScheduleAsyncDeliver": NoEffect("false", _DELIVERY),
    "enableScheduleMessageStats": NoEffect(
        "true",
        "delivered messages are always counted: as puts of their topics, and as gets of"
        " SCHEDULE_CONSUMER",
    ),
    "endTransactionPoolQueueCapacity": NoEffect("100000", _WAITING),
    "endTransactionThreadPoolNums": NoEffect("12", _THREADS),
    "fastFailIfNoBufferInStorePool": NoEffect("false", _POOL),
    "filterServerNums": NoEffect("0", "filter servers do not exist; nothing is ever executed"),
    "flushConsumeQueueLeastPages": NoEffect(
        "2",
        "all queues are written together, without a sync: one mark says from where a start reads"
        " the log back, and a queue left out would hold it up",
    ),
    "flushConsumerOffsetHistoryInterval": NoEffect("60000", "no history of offsets is written"),
    "flushLeastPagesWhenWarmMapedFile": NoEffect("4096", _MAPPING),
    "haHousekeepingInterval": NoEffect("20000", _HA),
    "haMasterAddress": NoEffect("", _HA),
    "haSendHeartbeatInterval": NoEffect("5000", _HA),
    "haSlaveFallbehindMax": NoEffect("268435456", _HA),
    "haTransferBatchSize": NoEffect("32768", _HA),
    "heartbeatThreadPoolNums": NoEffect("2", _THREADS),
    "heartbeatThreadPoolQueueCapacity": NoEffect("50000", _WAITING),
    "highSpeedMode": NoEffect("false", "the original has no use for it either"),
    "isEnableBatchPush": NoEffect("false", _DLEDGER_ONLY),
    "isolateLogEnable": NoEffect(
        "false", "logs go to standard error; there are no log files to keep apart"
    ),
    "maxDelayTime": NoEffect("40", "the original has no use for it either"),
    "messageIndexSafe": NoEffect(
        "false", "it is as if true: after a kill the index is read back from where it was synced"
    ),
    "messageStorePlugIn": NoEffect("", "there is one store; no class is loaded by name"),
    "offsetCheckInSlave": NoEffect("false", _HA),
    "preferredLeaderId": NoEffect("", _DLEDGER),
    "processReplyMessageThreadPoolNums": NoEffect("20", _THREADS),
    "pullMessageThreadPoolNums": NoEffect("20", _THREADS),
    "pullThreadPoolQueueCapacity": NoEffect("100000", _WAITING),
    "putMessageFutureThreadPoolNums": NoEffect("2", _THREADS),
    "putMsgIndexHightWater": NoEffect("600000", "the original has no use for it either"),
    "putThreadPoolQueueCapacity": NoEffect("10000", _WAITING),
    "queryMessageThreadPoolNums": NoEffect("10", _THREADS),
    "queryThreadPoolQueueCapacity": NoEffect("20000", _WAITING),
    "redeleteHangedFileInterval": NoEffect("120000", _UNLINK),
    "replyThreadPoolQueueCapacity": NoEffect("10000", _WAITING),
    "rocketmqHome": NoEffect("", "nothing is read from an installation folder"),
    "scheduleAsyncDeliverMaxPendingLimit": NoEffect("2000", _DELIVERY),
    "scheduleAsyncDeliverMaxResendNum2Blocked": NoEffect("3", _DELIVERY),
    "sendMessageThreadPoolNums": NoEffect("4", _THREADS),
    "sendThreadPoolQueueCapacity": NoEffect("10000", _WAITING),
    "serverAsyncSemaphoreValue": NoEffect("64", _NO_SUCH_CALLS),
    "serverCallbackExecutorThreads": NoEffect("0", _THREADS),
    "serverOnewaySemaphoreValue": NoEffect(
        "256", "notices to clients leave with the loop's other output, and its limits bound them"
    ),
    "serverPooledByteBufAllocatorEnable": NoEffect("true", _MEMORY),
    "serverSelectorThreads": NoEffect("3", _THREADS),
    "serverWorkerThreads": NoEffect("8", _THREADS),
    "slaveTimeout": NoEffect("3000", _HA),
    "storePathDLedgerCommitLog": NoEffect("", _DLEDGER),
    "storeReplyMessageEnable": NoEffect("true", _REPLY),
    "tls.server.authClient": NoEffect(
        "false",
        "a client's certificate is always checked against tls.server.trustCertPath:"
        " Python's ssl cannot ask for one and take any",
    ),
    "transactionCheckInterval": NoEffect("60000", _TRANSACTIONS),
    "transactionCheckMax": NoEffect("15", _TRANSACTIONS),
    "transactionTimeOut": NoEffect("6000", _TRANSACTIONS),
    "transferMsgByHeap": NoEffect(
        "true",
        "sizes decide: small pieces of an answer are copied together, large ones leave as views of"
        " the log's pages",
    ),
    "transientStorePoolEnable": NoEffect("false", _POOL),
    "transientStorePoolSize": NoEffect("5", _POOL),
    "useEpollNativeSelector": NoEffect("false", "the event loop uses epoll on Linux anyway"),
    "useReentrantLockWhenPutMessage": NoEffect("true", _LOCK),
    "waitTimeMillsInTransactionQueue": NoEffect("3000", _TRANSACTIONS),
    "warmMapedFileEnable": NoEffect("false", _MAPPING),
}

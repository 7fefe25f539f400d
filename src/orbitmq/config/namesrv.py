"""The settings of a name server: every key of 4.9.7's and 5.5.0's name servers, and a few of ours.

In and out: see `settings`. Keys and defaults were read from both originals with getNamesrvConfig;
where our default is another one, the fact says what it is there. Keys with dots are those that the
original takes as Java system properties (`-Dtls.server.mode=...`).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from orbitmq.config.server import ServerSettings
from orbitmq.config.settings import NoEffect, fact

_THREADS = "one event loop handles all requests; there is no pool of threads to size"
_CONTROLLER = "there is no controller in the name server"
_ACTING = "a slave is never presented as a master; the broker's wish is kept as data"
_STOP = "a stop answers what is under way and closes; it waits for nothing else"
_CALLS = "the name server sends no requests to its clients"


class NamesrvSettings(ServerSettings, frozen=True, kw_only=True):
    """What a name server obeys, and what it accepts without effect."""

    without_effect: ClassVar[Mapping[str, NoEffect]] = {
        "clientRequestThreadPoolNums": NoEffect("8", _THREADS),
        "clientRequestThreadPoolQueueCapacity": NoEffect("50000", _THREADS),
        "clusterTest": NoEffect("false", "routes come from this name server's own table only"),
        "configBlackList": NoEffect(
            "configBlackList;configStorePath;kvConfigPath",
            "only settings marked changeable can be changed over the network, listed or not",
        ),
        "configStorePath": NoEffect(
            "", "changes made over the network are kept in namesrv.properties of the data folder"
        ),
        "defaultThreadPoolNums": NoEffect("16", _THREADS),
        "defaultThreadPoolQueueCapacity": NoEffect("10000", _THREADS),
        "enableControllerInNamesrv": NoEffect("false", _CONTROLLER),
        "enableShutdownGracefully": NoEffect("false", _STOP),
        "notifyMinBrokerIdChanged": NoEffect("false", _ACTING),
        "productEnvName": NoEffect("center", "routes come from this name server's own table only"),
        "rocketmqHome": NoEffect("", "nothing is read from an installation folder"),
        "serverAsyncSemaphoreValue": NoEffect("64", _CALLS),
        "serverCallbackExecutorThreads": NoEffect("0", _THREADS),
        "serverNettyWorkerGroupEnable": NoEffect("true", _THREADS),
        "serverOnewaySemaphoreValue": NoEffect("256", _CALLS),
        "serverPooledByteBufAllocatorEnable": NoEffect("true", "Python manages its own memory"),
        "serverSelectorThreads": NoEffect("3", _THREADS),
        "serverWorkerThreads": NoEffect("8", _THREADS),
        "shutdownWaitTimeSeconds": NoEffect("30", _STOP),
        "supportActingMaster": NoEffect("false", _ACTING),
        "tls.server.authClient": NoEffect(
            "false",
            "a client's certificate is always checked against tls.server.trustCertPath:"
            " Python's ssl cannot ask for one and take any",
        ),
        "unRegisterBrokerQueueCapacity": NoEffect("3000", "a broker is removed at once"),
        "useEpollNativeSelector": NoEffect("false", "the event loop uses epoll on Linux anyway"),
    }

    # --- where it listens ---
    listen_port: Annotated[
        int, fact("The port to listen on; 0 takes any free one.", least=0, most=65_535, exact=True)
    ] = 9876

    # --- routes ---
    scan_not_active_broker_interval: Annotated[
        int,
        fact(
            "Look for silent brokers this often (5.5.0: 5000).",
            unit="ms",
            least=100,
            most=600_000,
        ),
    ] = 10_000
    delete_topic_with_broker_registration: Annotated[
        bool,
        fact(
            "Drop topics of a broker that its newest registration no longer has.", changeable=True
        ),
    ] = False
    enable_all_topic_list: Annotated[
        bool, fact("Answer the list of all topics (206).", changeable=True)
    ] = True
    enable_topic_list: Annotated[
        bool,
        fact("Answer lists of some topics (by cluster, system, unit).", changeable=True),
    ] = True
    need_wait_for_service: Annotated[
        bool,
        fact("Refuse routes for a while after the start, so that all brokers can register first."),
    ] = False
    wait_seconds_for_service: Annotated[
        int,
        fact("How long `needWaitForService` refuses routes.", unit="s", least=0, most=3_600),
    ] = 45
    brokers_max: Annotated[
        int, fact("Register so many brokers at most.", least=1, most=1_000_000, original="-")
    ] = 10_000
    topics_max: Annotated[
        int,
        fact(
            "Keep so many topics at most, all brokers together.",
            least=1,
            most=10_000_000,
            original="-",
        ),
    ] = 200_000
    routes_max: Annotated[
        int,
        fact(
            "Keep so many pairs of topic and broker at most.",
            least=1,
            most=10_000_000,
            original="-",
        ),
    ] = 500_000
    queues_per_topic_max: Annotated[
        int,
        fact(
            "Refuse a topic with more read or write queues than this at one broker.",
            least=1,
            most=1_000_000,
            original="-",
        ),
    ] = 65_536

    # --- key-value settings and ordered topics ---
    kv_config_path: Annotated[
        str,
        fact(
            "The file of the key-value settings; empty means kvConfig.json in the data folder.",
            original="~/namesrv/kvConfig.json",
        ),
    ] = ""
    order_message_enable: Annotated[
        bool,
        fact("Add the queue plan of ordered topics to routes.", changeable=True),
    ] = False
    return_order_topic_config_to_broker: Annotated[
        bool,
        fact("Tell brokers the queue plans of ordered topics when they register.", changeable=True),
    ] = True

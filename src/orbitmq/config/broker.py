"""The settings of a broker: every key of 4.9.7's broker, store and network, and a few of ours.

In and out: see `settings`. Keys and defaults were read from a running original with
getBrokerConfig, and the keys without a default from its setters; where our default is another one,
the fact says what it is there. The store's keys are in `broker_store`, the keys without effect in
`broker_unused`.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from orbitmq.config.broker_store import StoreSettings
from orbitmq.config.broker_unused import BROKER_WITHOUT_EFFECT
from orbitmq.config.settings import NoEffect, fact

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_BUFFER_SIZE_MAX = 1 << 30


class BrokerSettings(StoreSettings, frozen=True, kw_only=True):
    """What a broker obeys, and what it accepts without effect."""

    without_effect: ClassVar[Mapping[str, NoEffect]] = BROKER_WITHOUT_EFFECT

    # --- who it is ---
    broker_cluster_name: Annotated[str, fact("The cluster it belongs to.")] = "DefaultCluster"
    broker_name: Annotated[str, fact("Its name in routes.", original="the machine's name")] = (
        "broker-a"
    )
    broker_id: Annotated[
        int,
        fact("0 is the master; slaves have higher numbers.", least=0, most=_INT_MAX, exact=True),
    ] = 0
    broker_ip1: Annotated[
        str,
        fact(
            "The address that clients are told; empty takes the one it listens on.",
            original="the machine's first address",
        ),
    ] = msgspec.field(name="brokerIP1", default="")
    broker_ip2: Annotated[
        str,
        fact(
            "The address that slaves are told; empty takes brokerIP1.",
            original="the machine's first address",
        ),
    ] = msgspec.field(name="brokerIP2", default="")
    advertised_addresses: Annotated[
        str,
        fact(
            "Addresses that clients from elsewhere are told: network=host:port, comma separated.",
            original="-",
        ),
    ] = ""
    region_id: Annotated[str, fact("Told to producers with each answer.")] = "DefaultRegion"
    broker_permission: Annotated[
        int,
        fact("What clients may do: 4 read, 2 write, 6 both.", least=0, most=6, changeable=True),
    ] = 6

    # --- name servers ---
    namesrv_addr: Annotated[
        str, fact("The name servers to register with, host:port, separated by semicolons.")
    ] = ""
    fetch_namesrv_addr_by_address_server: Annotated[
        bool,
        fact("Without namesrvAddr, ask an address server for the list, every two minutes."),
    ] = False
    rocketmq_namesrv_domain: Annotated[
        str, fact("The address server: a host, asked at port 8080, or host:port.")
    ] = msgspec.field(name="rocketmq.namesrv.domain", default="jmenv.tbsite.net")
    rocketmq_namesrv_domain_subgroup: Annotated[
        str, fact("The list's name there: http://host:port/rocketmq/NAME.")
    ] = msgspec.field(name="rocketmq.namesrv.domain.subgroup", default="nsaddr")
    connect_timeout_millis: Annotated[
        int,
        fact("How long dialling a name server may take.", unit="ms", least=10, most=60_000),
    ] = 3_000
    client_channel_max_idle_time_seconds: Annotated[
        int,
        fact(
            "Close a connection to a name server without a byte for so long.",
            unit="s",
            least=1,
            most=86_400,
        ),
    ] = 120
    client_close_socket_if_timeout: Annotated[
        bool, fact("Dial a name server anew after it did not answer in time.")
    ] = True
    client_socket_rcv_buf_size: Annotated[
        int,
        fact(
            "The receive buffer of connections to name servers; 0 leaves it to the system.",
            unit="bytes",
            least=0,
            most=_BUFFER_SIZE_MAX,
        ),
    ] = 0
    client_socket_snd_buf_size: Annotated[
        int,
        fact(
            "The send buffer of connections to name servers; 0 leaves it to the system.",
            unit="bytes",
            least=0,
            most=_BUFFER_SIZE_MAX,
        ),
    ] = 0
    register_name_server_period: Annotated[
        int,
        fact(
            "How often it registers again.",
            unit="ms",
            least=10_000,
            most=60_000,
            changeable=True,
        ),
    ] = 30_000
    register_broker_timeout_mills: Annotated[
        int,
        fact(
            "How long it waits for a name server's answer.",
            unit="ms",
            least=100,
            most=600_000,
            changeable=True,
        ),
    ] = 6_000
    force_register: Annotated[
        bool,
        fact("Register again although nothing changed; else ask first.", changeable=True),
    ] = True
    compressed_register: Annotated[
        bool, fact("Compress the topics of a registration.", changeable=True)
    ] = False
    tls_enable: Annotated[
        bool, fact("Dial name servers with TLS; tls.server.mode=enforcing does so, too.")
    ] = msgspec.field(name="tls.enable", default=False)
    use_tls: Annotated[bool, fact("The same, as a key of the settings file.")] = msgspec.field(
        name="useTLS", default=False
    )
    tls_client_cert_path: Annotated[
        str, fact("The certificate (PEM) that name servers are shown; empty: tls.server.certPath.")
    ] = msgspec.field(name="tls.client.certPath", default="")
    tls_client_key_path: Annotated[str, fact("The private key of that certificate (PEM).")] = (
        msgspec.field(name="tls.client.keyPath", default="")
    )
    tls_client_key_password: Annotated[str, fact("The password of that key.", secret=True)] = (
        msgspec.field(name="tls.client.keyPassword", default="")
    )
    tls_client_auth_server: Annotated[
        bool, fact("Check the certificate of a name server, and that it is for its address.")
    ] = msgspec.field(name="tls.client.authServer", default=False)
    tls_client_trust_cert_path: Annotated[
        str, fact("The file with the certificates that it must come from; empty: the system's.")
    ] = msgspec.field(name="tls.client.trustCertPath", default="")

    # --- where it listens ---
    listen_port: Annotated[
        int,
        fact(
            "The port to listen on; 0 takes any free one. The port 2 below serves the same.",
            least=0,
            most=65_535,
            exact=True,
        ),
    ] = 10_911

    # --- topics and groups ---
    auto_create_topic_enable: Annotated[
        bool, fact("Make a topic when the first message for it comes.", changeable=True)
    ] = True
    auto_create_subscription_group: Annotated[
        bool, fact("Make a consumer group when it is first used.", changeable=True)
    ] = True
    default_topic_queue_nums: Annotated[
        int, fact("Queues of the template topic, the most a new topic gets.", least=1, most=1_024)
    ] = 8
    broker_topic_enable: Annotated[
        bool, fact("Whether topics made from the topic named like the broker can be used.")
    ] = True
    cluster_topic_enable: Annotated[
        bool, fact("Whether topics made from the topic named like the cluster can be used.")
    ] = True

    # --- trace ---
    trace_topic_enable: Annotated[bool, fact("Make the topic for message traces at the start.")] = (
        False
    )
    msg_trace_topic_name: Annotated[str, fact("The topic for message traces.")] = (
        "RMQ_SYS_TRACE_TOPIC"
    )
    trace_on: Annotated[
        bool, fact("Tell producers with each answer that traces are wanted.", changeable=True)
    ] = True

    # --- sends ---
    start_accept_send_request_time_stamp: Annotated[
        int,
        fact(
            "Sends are refused before this time.",
            unit="ms since 1970",
            least=0,
            most=_LONG_MAX,
        ),
    ] = 0
    reject_transaction_message: Annotated[
        bool, fact("Refuse the first half of transactions.", changeable=True)
    ] = False
    broker_fast_failure_enable: Annotated[
        bool,
        fact(
            "Refuse sends, pulls and heartbeats that waited too long; false: they wait.",
            changeable=True,
        ),
    ] = True
    wait_time_mills_in_send_queue: Annotated[
        int,
        fact(
            "When a send has waited longer for its turn, it is refused as busy.",
            unit="ms",
            least=10,
            most=_INT_MAX,
            changeable=True,
        ),
    ] = 200
    os_page_cache_busy_time_out_mills: Annotated[
        int,
        fact(
            "When writing the log took longer, the sends that wait behind it are refused as busy.",
            unit="ms",
            least=10,
            most=_INT_MAX,
            changeable=True,
        ),
    ] = 1_000
    memory_bytes_max: Annotated[
        int,
        fact(
            "Above so much memory of its own sends are refused; 0: 60 % of what there is.",
            unit="bytes",
            least=0,
            most=_LONG_MAX,
            original="-",
            changeable=True,
        ),
    ] = 0

    # --- pulls ---
    wait_time_mills_in_pull_queue: Annotated[
        int,
        fact(
            "When a pull has waited longer for its turn, it is refused as busy.",
            unit="ms",
            least=10,
            most=_INT_MAX,
            changeable=True,
        ),
    ] = 5_000
    long_polling_enable: Annotated[
        bool, fact("Hold a pull that finds nothing for as long as it asks.", changeable=True)
    ] = True
    short_polling_time_mills: Annotated[
        int,
        fact(
            "How long it is held when longPollingEnable is off.",
            unit="ms",
            least=1,
            most=600_000,
            changeable=True,
        ),
    ] = 1_000
    slave_read_enable: Annotated[
        bool,
        fact("Send consumers that are far behind to a slave, as groups say.", changeable=True),
    ] = False
    disable_consume_if_consumer_read_slowly: Annotated[
        bool,
        fact("Stop groups that are further behind than allowed.", changeable=True),
    ] = False
    consumer_fallbehind_threshold: Annotated[
        int,
        fact(
            "How far they may be behind.",
            unit="bytes",
            least=0,
            most=_LONG_MAX,
            changeable=True,
        ),
    ] = 17_179_869_184

    # --- filters ---
    enable_property_filter: Annotated[
        bool, fact("Allow filters by expression (SQL92).", changeable=True)
    ] = False
    filter_support_retry: Annotated[
        bool, fact("Filter messages of retry topics by expression, too.", changeable=True)
    ] = False
    filter_data_clean_time_span: Annotated[
        int,
        fact(
            "Filters of groups that left are forgotten after so long.",
            unit="ms",
            least=1_000,
            most=_INT_MAX,
        ),
    ] = 86_400_000
    enable_calc_filter_bit_map: Annotated[
        bool, fact("Keep with each queue entry which filters may match it.")
    ] = False
    max_error_rate_of_bloom_filter: Annotated[
        int, fact("How often such a bit may be wrong.", unit="%", least=1, most=99)
    ] = 20
    expect_consumer_num_use_filter: Annotated[
        int, fact("Filters of one topic that the bits are made for.", least=1, most=1_024)
    ] = 32

    # --- consumers ---
    wait_time_mills_in_heartbeat_queue: Annotated[
        int,
        fact(
            "When a heartbeat has waited longer for its turn, it is refused as busy.",
            unit="ms",
            least=10,
            most=_INT_MAX,
            changeable=True,
        ),
    ] = 31_000
    notify_consumer_ids_changed_enable: Annotated[
        bool, fact("Tell the members of a group when one comes or goes.", changeable=True)
    ] = True
    flush_consumer_offset_interval: Annotated[
        int, fact("How often consumer offsets are saved.", unit="ms", least=100, most=600_000)
    ] = 5_000
    use_server_side_reset_offset: Annotated[
        bool,
        fact(
            "Reset the offsets of a group at the broker, also when nobody is online (5.x).",
            changeable=True,
        ),
    ] = False

    # --- figures ---
    enable_detail_stat: Annotated[
        bool, fact("Keep figures by queue (QUEUE_PUT_NUMS, QUEUE_PUT_SIZE), too.")
    ] = True
    auto_delete_unused_stats: Annotated[
        bool, fact("Forget the figures of topics and groups that were removed.", changeable=True)
    ] = False

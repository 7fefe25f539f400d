import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios of what a client puts around names and heart beats: namespaces, units, traces. */
final class CompatNames {
    private CompatNames() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("namespace", CompatNames::namespace);
        all.put("unit", CompatNames::unit);
        all.put("trace", CompatNames::trace);
        all.put("heartbeat", CompatNames::heartbeat);
        all.put("members", CompatNames::members);
    }

    /** Fails each message once, so that the retry topic has its part, too. */
    private static MessageListenerConcurrently failingOnce(Inbox inbox) {
        return (messages, context) -> {
            messages.forEach(inbox::take);
            return messages.get(0).getReconsumeTimes() == 0
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private static void namespace(Stage stage) throws Exception {
        String space = stage.name("ns");
        String topic = stage.name("t");
        String group = stage.name("g");
        stage.makeTopic(space + "%" + topic, 1);
        stage.makeTopic("%RETRY%" + space + "%" + group, 1);
        DefaultMQProducer producer = stage.idleProducer(stage.name("p"));
        producer.setNamespace(space);
        producer.start();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setNamespace(space);
        Inbox inbox = new Inbox();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(failingOnce(inbox));
        consumer.start();
        SendResult sent = producer.send(Stage.message(topic, "inside"));
        stage.fact("answered topic", sent.getMessageQueue().getTopic());
        inbox.await(2);
        Map<Integer, String> topics = new TreeMap<>();
        for (MessageExt message : inbox.all()) {
            topics.put(message.getReconsumeTimes(), stage.plain(message.getTopic()));
        }
        stage.fact("topics seen", topics);
        stage.fact("stored", List.of(
                stage.reader().maxOffset(stage.queue(space + "%" + topic, 0)),
                stage.reader().maxOffset(stage.queue("%RETRY%" + space + "%" + group, 0))));
        stage.fact("members", stage.admin.examineConsumerConnectionInfo(space + "%" + group)
                .getConnectionSet().size());
    }

    private static void inUnit(ClientConfig config) {
        config.setUnitName("unit-1");
        config.setUnitMode(true);
    }

    private static void unit(Stage stage) throws Exception {
        String topic = stage.name("t");
        String group = stage.name("g");
        DefaultMQProducer producer = stage.idleProducer(stage.name("p"));
        inUnit(producer);
        producer.start();
        producer.send(Stage.message(topic, "first"));
        stage.await(() -> stage.hasRoute(topic));
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        inUnit(consumer);
        Inbox inbox = new Inbox();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.taking());
        consumer.start();
        inbox.await(1);
        var made = stage.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0);
        stage.await(() -> stage.hasRoute("%RETRY%" + group));
        var retry = stage.admin.examineTopicRouteInfo("%RETRY%" + group).getQueueDatas().get(0);
        stage.fact("flags", List.of(made.getTopicSysFlag(), retry.getTopicSysFlag()));
        stage.fact("got", inbox.sorted());
    }

    /** A producer that reports what it sends: plain messages to a topic of its own. */
    private static void trace(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        String traces = stage.topic("traces", 1);
        DefaultMQProducer producer =
                stage.quiet(new DefaultMQProducer(stage.name("p"), true, traces));
        producer.start();
        SendResult sent = producer.send(Stage.message(topic, "traced"));
        MessageExt trace = stage.stored(stage.queue(traces, 0), 1).get(0);
        stage.fact("kind", Stage.body(trace).split("\u0001")[0]);
        stage.fact("names the message", Stage.body(trace).contains(sent.getMsgId()));
        stage.fact("keys", trace.getKeys().equals(sent.getMsgId()));
    }

    /** The client 5 may send a short heart beat with a fingerprint, if the broker says it may. */
    private static void heartbeat(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        String group = stage.group("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setHeartbeatBrokerInterval(1_000);
        try {
            ClientConfig.class.getMethod("setUseHeartbeatV2", boolean.class).invoke(consumer, true);
        } catch (NoSuchMethodException clientIs4) {
            // It has one kind of heart beat only.
        }
        consumer.subscribe(topic, "A");
        consumer.registerMessageListener(inbox.taking());
        consumer.start();
        stage.await(() -> isKnown(stage, group, topic, "A"));
        // Some heart beats that bring nothing new: the short ones, if the broker takes them.
        Thread.sleep(2_500);
        consumer.subscribe(topic, "B");
        stage.await(() -> isKnown(stage, group, topic, "B"));
        stage.fact("members",
                stage.admin.examineConsumerConnectionInfo(group).getConnectionSet().size());
        DefaultMQProducer producer = stage.producer();
        for (String tag : List.of("A", "B")) {
            var message = Stage.message(topic, "tag-" + tag);
            message.setTags(tag);
            producer.send(message, stage.queue(topic, 0));
            // On the original the first one must end a pull that still waits for the old tag: what
            // comes with it is filtered twice, by the new tag there and by the old one here.
            Thread.sleep(500);
        }
        inbox.await(1);
        stage.fact("got", inbox.sorted());
        stage.fact("short ones", isShort(consumer));
    }

    private static boolean isKnown(Stage stage, String group, String topic, String expression) {
        return Stage.outcome(() -> {
            var known = stage.admin.examineConsumerConnectionInfo(group).getSubscriptionTable();
            if (!known.get(topic).getSubString().equals(expression)) {
                throw new IllegalStateException("not yet");
            }
            return null;
        }).equals("ok");
    }

    /** Whether the client has learned that its broker takes heart beats with a fingerprint. */
    private static boolean isShort(DefaultMQPushConsumer consumer) throws Exception {
        var factory =
                consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getmQClientFactory();
        try {
            var field = factory.getClass().getDeclaredField("brokerSupportV2HeartbeatSet");
            field.setAccessible(true);
            return !((java.util.Collection<?>) field.get(factory)).isEmpty();
        } catch (NoSuchFieldException clientIs4) {
            return false;
        }
    }

    /** What the admin client is told of a group that is there, and of one that has left. */
    private static void members(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        String group = stage.group("g");
        DefaultMQPushConsumer consumer = stage.consumer(group, topic, new Inbox());
        stage.await(() -> isKnown(stage, group, topic, "*"));
        var connection = stage.admin.examineConsumerConnectionInfo(group);
        stage.fact("group", List.of(connection.getConsumeType(), connection.getMessageModel(),
                connection.getConsumeFromWhere()));
        var member = connection.getConnectionSet().iterator().next();
        stage.fact("member", List.of(member.getLanguage(), member.getClientAddr().split(":")[0]));
        var info = stage.admin.getConsumerRunningInfo(group, member.getClientId(), false);
        stage.fact("runs", info.getProperties().getProperty("PROP_CONSUME_TYPE"));
        consumer.shutdown();
        stage.await(() -> !Stage.outcome(
                () -> stage.admin.examineConsumerConnectionInfo(group)).equals("ok"), 15_000);
        stage.fact("after it left",
                Stage.outcome(() -> stage.admin.examineConsumerConnectionInfo(group)));
    }
}

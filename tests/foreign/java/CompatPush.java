import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios of push consumers: concurrent, orderly, broadcasting, filtered, suspended. */
final class CompatPush {
    private CompatPush() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("orderly", CompatPush::orderly);
        all.put("suspend", CompatPush::suspend);
        all.put("concurrent", CompatPush::concurrent);
        all.put("together", CompatPush::together);
        all.put("broadcast", CompatPush::broadcast);
        all.put("where", CompatPush::where);
        all.put("tags", CompatPush::tags);
        all.put("sql", CompatPush::sql);
        all.put("wrongsql", CompatPush::wrongSql);
    }

    private static void concurrent(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        String group = stage.group("g");
        stage.send(topic, "m", 200, 4);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.taking());
        consumer.start();
        inbox.await(200);
        stage.send(topic, "later", 40, 4);
        inbox.await(240);
        stage.fact("account", inbox.account());
        // The listener has every message, but its last results are committed a moment later.
        stage.await(() -> committed(stage, group, topic).equals(List.of(60L, 60L, 60L, 60L)));
        stage.fact("committed", committed(stage, group, topic));
        consumer.shutdown();
        Inbox again = new Inbox();
        stage.consumer(group, topic, again);
        stage.send(topic, "last", 4, 4);
        again.await(4);
        stage.fact("after a restart", again.sorted());
    }

    private static List<Long> committed(Stage stage, String group, String topic)
            throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (int id = 0; id < 4; id++) {
            offsets.add(stage.committed(group, stage.queue(topic, id)));
        }
        return offsets;
    }

    /** A listener that takes several messages at once, and acknowledges only the first of them. */
    private static void together(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        stage.send(topic, "m", 30, 1);
        stage.stored(stage.queue(topic, 0), 30);
        Inbox inbox = new Inbox();
        Set<Integer> sizes = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group("g"));
        consumer.setConsumeMessageBatchMaxSize(10);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            sizes.add(messages.size());
            messages.forEach(inbox::take);
            if (messages.size() == 10) {
                context.setAckIndex(8);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        inbox.await(33);
        stage.fact("account", inbox.account());
        stage.fact("tens", sizes.contains(10));
    }

    private static void orderly(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        stage.send(topic, "m", 100, 4);
        Inbox inbox = new Inbox();
        List<String> failed = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group("g"));
        consumer.subscribe(topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = Stage.body(message);
                if (body.endsWith("-42") && message.getReconsumeTimes() < 2) {
                    failed.add(body + " " + message.getReconsumeTimes());
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                inbox.take(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        inbox.await(100);
        Map<Integer, List<Long>> perQueue = new TreeMap<>();
        for (MessageExt message : inbox.all()) {
            perQueue.computeIfAbsent(message.getQueueId(), key -> new ArrayList<>())
                    .add(message.getQueueOffset());
        }
        stage.fact("offsets by queue", perQueue);
        stage.fact("failed", failed);
    }

    private static void broadcast(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        String group = stage.group("g");
        List<Inbox> inboxes = List.of(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer consumer = stage.idleConsumer(group);
            // The enumeration's package differs between the clients 4 and 5.
            var models = consumer.getMessageModel().getDeclaringClass().getEnumConstants();
            consumer.setMessageModel(models[0]);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(inbox::take);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
            stage.fact("model", models[0].name());
        }
        stage.send(topic, "m", 20, 4);
        for (Inbox inbox : inboxes) {
            inbox.await(20);
        }
        // A retry would come after the first level for retries, one second.
        Thread.sleep(2_500);
        stage.fact("accounts", List.of(inboxes.get(0).account(), inboxes.get(1).account()));
        stage.fact("retries stored",
                stage.reader().maxOffset(stage.queue("%RETRY%" + group, 0)));
    }

    /** Where a group begins that has no offsets yet, on a young topic. */
    private static void where(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        stage.send(topic, "m", 5, 1);
        stage.stored(stage.queue(topic, 0), 5);
        Map<String, Object> got = new TreeMap<>();
        for (ConsumeFromWhere where : List.of(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)) {
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group(where.name()));
            consumer.setConsumeFromWhere(where);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(inbox.taking());
            consumer.start();
            inbox.await(5);
            got.put(where.name(), inbox.sorted());
        }
        stage.fact("got", got);
    }

    private static void tags(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        Map<String, Inbox> inboxes = new TreeMap<>();
        // "Aa" and "BB" have one hash: the broker gives both, the client keeps what was asked for.
        for (String expression : List.of("A || B", "Aa", "*")) {
            Inbox inbox = new Inbox();
            inboxes.put(expression, inbox);
            DefaultMQPushConsumer consumer =
                    stage.idleConsumer(stage.group("g" + inboxes.size()));
            consumer.subscribe(topic, expression);
            consumer.registerMessageListener(inbox.taking());
            consumer.start();
        }
        DefaultMQProducer producer = stage.producer();
        for (String tag : List.of("A", "B", "C", "Aa", "BB", "")) {
            Message message = Stage.message(topic, "tag-" + tag);
            message.setTags(tag.isEmpty() ? null : tag);
            producer.send(message, stage.queue(topic, 1));
        }
        inboxes.get("*").await(6);
        inboxes.get("A || B").await(2);
        inboxes.get("Aa").await(1);
        Map<String, Object> got = new TreeMap<>();
        inboxes.forEach((expression, inbox) -> got.put(expression, inbox.sorted()));
        stage.fact("got", got);
    }

    private static void sql(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        Map<String, Inbox> inboxes = new TreeMap<>();
        for (String expression : List.of("n BETWEEN 3 AND 5 AND color IN ('red', 'green')",
                "TAGS = 'B' AND n > 6.5", "late IS NOT NULL OR n <> n", "NOT (n > 2)")) {
            Inbox inbox = new Inbox();
            inboxes.put(expression, inbox);
            DefaultMQPushConsumer consumer =
                    stage.idleConsumer(stage.group("g" + inboxes.size()));
            consumer.subscribe(topic, MessageSelector.bySql(expression));
            consumer.registerMessageListener(inbox.taking());
            consumer.start();
        }
        DefaultMQProducer producer = stage.producer();
        for (int i = 0; i < 10; i++) {
            Message message = Stage.message(topic, "n-" + i);
            message.setTags(i % 2 == 0 ? "A" : "B");
            message.putUserProperty("n", Integer.toString(i));
            message.putUserProperty("color", List.of("red", "green", "blue").get(i % 3));
            producer.send(message, stage.queue(topic, i % 2));
        }
        Message bare = Stage.message(topic, "bare");
        bare.putUserProperty("late", "yes");
        producer.send(bare, stage.queue(topic, 0));
        int[] counts = {3, 2, 2, 1};
        List<String> order = List.of("NOT (n > 2)", "TAGS = 'B' AND n > 6.5",
                "n BETWEEN 3 AND 5 AND color IN ('red', 'green')", "late IS NOT NULL OR n <> n");
        Map<String, Object> got = new TreeMap<>();
        for (int i = 0; i < counts.length; i++) {
            inboxes.get(order.get(i)).await(counts[i]);
            got.put(order.get(i), inboxes.get(order.get(i)).sorted());
        }
        stage.fact("got", got);
    }

    private static void wrongSql(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group("g"));
        consumer.subscribe(topic, MessageSelector.bySql("n > "));
        consumer.registerMessageListener(new Inbox().taking());
        stage.fact("start", Stage.outcome(() -> {
            consumer.start();
            return null;
        }));
    }

    private static void suspend(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.consumer(stage.group("g"), topic, inbox);
        stage.send(topic, "before", 4, 2);
        inbox.await(4);
        consumer.suspend();
        // Pulls that wait at the broker already still bring what wakes them.
        stage.send(topic, "waking", 2, 2);
        Thread.sleep(1_500);
        stage.send(topic, "while", 10, 2);
        Thread.sleep(1_500);
        stage.fact("came while suspended",
                inbox.bodies().stream().filter(body -> body.startsWith("while")).count());
        consumer.resume();
        inbox.await(16);
        stage.fact("account", inbox.account());
    }
}

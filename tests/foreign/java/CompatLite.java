import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of the lite pull consumer, which pulls by 361 in the client 5 and by 11 before. */
final class CompatLite {
    private CompatLite() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("litesubscribe", CompatLite::subscribe);
        all.put("liteassign", CompatLite::assign);
        all.put("litefilter", CompatLite::filter);
    }

    private static DefaultLitePullConsumer consumer(Stage stage, String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.instance());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(2);
        consumer.setAutoCommit(false);
        stage.onClose(consumer::shutdown);
        return consumer;
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        return poll(consumer, count, "", Stage.LIMIT_MS);
    }

    /** Poll until so many messages came whose bodies begin with a word; others are passed over. */
    private static List<String> poll(
            DefaultLitePullConsumer consumer, int count, String word, long limitMs) {
        List<String> bodies = new ArrayList<>();
        long deadline = System.nanoTime() + limitMs * 1_000_000;
        while (bodies.size() < count && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(500)) {
                if (Stage.body(message).startsWith(word)) {
                    bodies.add(Stage.body(message));
                }
            }
        }
        bodies.sort(null);
        return bodies;
    }

    private static void subscribe(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        String group = stage.group("g");
        stage.send(topic, "m", 10, 2);
        DefaultLitePullConsumer consumer = consumer(stage, group);
        consumer.subscribe(topic, "*");
        consumer.start();
        stage.fact("got", poll(consumer, 10));
        consumer.commitSync();
        Map<Integer, Long> committed = new TreeMap<>();
        stage.await(() -> consumer.committed(stage.queue(topic, 1)) == 5, 10_000);
        for (MessageQueue queue : consumer.assignment()) {
            committed.put(queue.getQueueId(), consumer.committed(queue));
        }
        stage.fact("committed", committed);
        consumer.shutdown();
        stage.send(topic, "later", 4, 2);
        DefaultLitePullConsumer second = consumer(stage, group);
        second.subscribe(topic, "*");
        second.start();
        stage.fact("after a restart", poll(second, 4));
    }

    private static void filter(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        DefaultLitePullConsumer byTag = consumer(stage, stage.group("tag"));
        byTag.subscribe(topic, "Even");
        byTag.start();
        DefaultLitePullConsumer bySql = consumer(stage, stage.group("sql"));
        bySql.setHeartbeatBrokerInterval(1_000);
        bySql.subscribe(topic, MessageSelector.bySql("n BETWEEN 2 AND 4"));
        bySql.start();
        var producer = stage.producer();
        for (int i = 0; i < 6; i++) {
            Message message = Stage.message(topic, "m-" + i);
            message.setTags(i % 2 == 0 ? "Even" : "Odd");
            message.putUserProperty("n", Integer.toString(i));
            producer.send(message, stage.queue(topic, i % 2));
        }
        stage.fact("by tag", poll(byTag, 3));
        stage.fact("by sql", poll(bySql, 3));
    }

    /** Have the broker make the group: 5.5.0 takes offsets only of groups that it knows. */
    private static void useOnce(Stage stage, String group, MessageQueue queue) throws Exception {
        DefaultMQPullConsumer first = new DefaultMQPullConsumer(group);
        first.setNamesrvAddr(stage.namesrv);
        first.setInstanceName(stage.instance());
        first.start();
        first.pull(queue, "*", 0, 1);
        first.shutdown();
    }

    private static void assign(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        stage.send(topic, "m", 12, 2);
        stage.stored(stage.queue(topic, 1), 6);
        String group = stage.group("g");
        useOnce(stage, group, stage.queue(topic, 0));
        stage.admin.updateConsumeOffset(stage.broker, group, stage.queue(topic, 0), 6);
        stage.admin.updateConsumeOffset(stage.broker, group, stage.queue(topic, 1), 4);
        DefaultLitePullConsumer consumer = consumer(stage, group);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        stage.fact("queues", queues.size());
        consumer.assign(queues);
        MessageQueue one = stage.queue(topic, 1);
        // It seeks only when it has read to the end: what the client fetched before may still come.
        stage.fact("from what was committed", poll(consumer, 2));
        consumer.seek(one, 5);
        stage.fact("from 5", poll(consumer, 1));
        consumer.seekToBegin(one);
        stage.fact("from the beginning", poll(consumer, 6));
        stage.fact("by time", List.of(consumer.offsetForTimestamp(one, 1L)));
        consumer.pause(List.of(one));
        // A pull that waits at the broker already still brings what wakes it.
        stage.send(topic, "waking", 2, 2);
        poll(consumer, 2, "waking", 3_000);
        stage.send(topic, "while", 4, 2);
        stage.fact("of the other queue", poll(consumer, 2, "while", Stage.LIMIT_MS));
        stage.fact("nothing while paused", consumer.poll(1_000).size());
        consumer.resume(List.of(one));
        stage.fact("resumed", poll(consumer, 2, "while", Stage.LIMIT_MS));
    }
}

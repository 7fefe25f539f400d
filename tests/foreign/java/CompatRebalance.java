import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Scenario: a group grows from one consumer to three and shrinks to two, over 16 queues, while
 * messages flow. Who has a queue is asked of the clients; progress is asked of the broker.
 */
final class CompatRebalance {
    private static final int QUEUES = 16;
    private static final long PAUSE_MS = 10;

    private final Stage stage;
    private final String topic;
    private final String group;
    private final AtomicBoolean isFlowing = new AtomicBoolean(true);
    private final AtomicInteger sentCount = new AtomicInteger();
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final AtomicInteger seenCount = new AtomicInteger();
    private final List<DefaultMQPushConsumer> consumers =
            Collections.synchronizedList(new ArrayList<>());
    private final long[] ownerlessSince = new long[QUEUES];
    private final long[] committed = new long[QUEUES]; // as of the latest look
    private long ownerlessMaxMs;
    private int setBackCount;

    private CompatRebalance(Stage stage) throws Exception {
        this.stage = stage;
        topic = stage.topic("t", QUEUES);
        group = stage.group("g");
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("rebalance", stage -> new CompatRebalance(stage).play());
    }

    private void play() throws Exception {
        Thread flow = new Thread(this::flow);
        flow.start();
        join();
        stage.fact("of one", awaitShares(List.of(16)));
        watch(2_000);
        join();
        join();
        stage.fact("of three", awaitShares(List.of(5, 5, 6)));
        watch(4_000);
        consumers.remove(0).shutdown();
        stage.fact("of two", awaitShares(List.of(8, 8)));
        watch(4_000);
        isFlowing.set(false);
        flow.join();
        stage.await(() -> seen.size() == sentCount.get());
        stage.fact("lost", sentCount.get() - seen.size());
        stage.await(() -> committedCount() == sentCount.get());
        stage.fact("left to consume", sentCount.get() - committedCount());
        // The last word of a queue's old owner may come after the first one of its new owner.
        stage.measure("offsets set back", setBackCount);
        stage.measure("sent", sentCount.get());
        stage.measure("came again", seenCount.get() - seen.size());
        stage.measure("longest without an owner", ownerlessMaxMs);
    }

    private void flow() {
        try {
            DefaultMQProducer producer = stage.producer();
            while (isFlowing.get()) {
                int number = sentCount.get();
                producer.send(Stage.message(topic, "m-" + number),
                        stage.queue(topic, number % QUEUES));
                sentCount.incrementAndGet();
                Thread.sleep(PAUSE_MS);
            }
        } catch (Exception error) {
            stage.error(error);
        }
    }

    private void join() throws Exception {
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(Stage.body(message));
                seenCount.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
    }

    /** Look until the queues are shared like that and each has one owner. */
    private List<Integer> awaitShares(List<Integer> wanted) throws Exception {
        stage.await(() -> {
            look();
            return shares().equals(wanted) && owned().size() == QUEUES;
        });
        return shares();
    }

    private void watch(long forMs) throws Exception {
        long end = System.nanoTime() + forMs * 1_000_000;
        while (System.nanoTime() < end) {
            look();
            Thread.sleep(200);
        }
    }

    private List<Integer> shares() {
        List<Integer> shares = new ArrayList<>();
        for (DefaultMQPushConsumer consumer : consumers) {
            shares.add(owned(consumer).size());
        }
        shares.sort(null);
        return shares;
    }

    /** The queues that have an owner. */
    private Set<Integer> owned() {
        Set<Integer> ids = new HashSet<>();
        for (DefaultMQPushConsumer consumer : new ArrayList<>(consumers)) {
            ids.addAll(owned(consumer));
        }
        return ids;
    }

    private Set<Integer> owned(DefaultMQPushConsumer consumer) {
        Set<Integer> ids = new HashSet<>();
        var rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        rebalance.getProcessQueueTable().keySet().forEach(queue -> {
            if (queue.getTopic().equals(topic)) {
                ids.add(queue.getQueueId());
            }
        });
        return ids;
    }

    private long committedCount() throws Exception {
        look();
        long count = 0;
        for (long offset : committed) {
            count += offset;
        }
        return count;
    }

    /** How long each queue has had no owner so far, and whether an offset went back. */
    private void look() throws Exception {
        Set<Integer> owned = owned();
        long now = System.nanoTime();
        for (int id = 0; id < QUEUES; id++) {
            if (owned.contains(id)) {
                ownerlessSince[id] = 0;
            } else if (!consumers.isEmpty()) {
                ownerlessSince[id] = ownerlessSince[id] == 0 ? now : ownerlessSince[id];
                long forMs = (now - ownerlessSince[id]) / 1_000_000;
                ownerlessMaxMs = Math.max(ownerlessMaxMs, forMs);
            }
        }
        for (int id = 0; id < QUEUES; id++) {
            long offset = stage.committed(group, stage.queue(topic, id));
            setBackCount += offset < committed[id] ? 1 : 0;
            committed[id] = offset;
        }
    }
}

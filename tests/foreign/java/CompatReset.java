import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios of the admin client's reset: of a group that runs, and of one that does not. */
final class CompatReset {
    private static final long RESET_LIMIT_MS = 90_000;

    private CompatReset() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("resetrunning", CompatReset::running);
        all.put("resetstopped", CompatReset::stopped);
    }

    /** Everything is consumed, then set back to the moment of the sixth message. */
    private static void running(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        String group = stage.group("g");
        Inbox inbox = new Inbox();
        stage.consumer(group, topic, inbox);
        stage.send(topic, "m", 5, 1);
        Thread.sleep(100);
        stage.send(topic, "n", 5, 1);
        inbox.await(10);
        // 4.9.7 refuses to set back a group that has not committed anything yet.
        stage.admin.updateConsumeOffset(stage.broker, group, stage.queue(topic, 0), 10);
        MessageExt sixth = stage.stored(stage.queue(topic, 0), 6).get(5);
        Map<?, Long> offsets = stage.admin.resetOffsetByTimestamp(
                topic, group, sixth.getStoreTimestamp(), true);
        stage.fact("answered", offsets.values());
        // The client stops the queue, waits 10 s and begins again.
        inbox.await(15, RESET_LIMIT_MS);
        stage.fact("came again", new TreeSet<>(inbox.bodies().subList(10, 15)));
        stage.fact("unknown group", Stage.outcome(() -> stage.admin.resetOffsetByTimestamp(
                topic, stage.name("nobody"), 1, true)));
    }

    /** Nobody is there: the tools then set each queue by themselves. */
    private static void stopped(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        String group = stage.group("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.consumer(group, topic, inbox);
        stage.send(topic, "m", 8, 2);
        inbox.await(8);
        consumer.shutdown();
        stage.fact("by the broker", Stage.outcome(
                () -> stage.admin.resetOffsetByTimestamp(topic, group, 1, true)));
        Map<Integer, Long> offsets = new TreeMap<>();
        for (var change : stage.admin.resetOffsetByTimestampOld(group, topic, 1, true)) {
            offsets.put((int) change.getQueueId(), change.getRollbackOffset());
        }
        stage.fact("by the tool", offsets);
        Inbox again = new Inbox();
        stage.consumer(group, topic, again);
        again.await(8);
        stage.fact("came again", again.sorted());
    }
}

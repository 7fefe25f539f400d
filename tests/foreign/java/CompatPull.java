import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of the pull consumer that names its queues, and of offsets. */
final class CompatPull {
    private CompatPull() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("pull", CompatPull::pull);
        all.put("blocking", CompatPull::blocking);
        all.put("offsets", CompatPull::offsets);
    }

    private static String told(PullResult result) {
        List<String> bodies = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                bodies.add(Stage.body(message));
            }
        }
        return result.getPullStatus() + " next=" + result.getNextBeginOffset()
                + " min=" + result.getMinOffset() + " max=" + result.getMaxOffset() + " " + bodies;
    }

    /** Pull up to the queue's end: a busy broker may answer before it has looked at everything. */
    private static String toldToEnd(DefaultMQPullConsumer reader, MessageQueue queue,
            MessageSelector selector) throws Exception {
        List<String> bodies = new ArrayList<>();
        PullResult result = reader.pull(queue, selector, 0, 32);
        while (true) {
            if (result.getMsgFoundList() != null) {
                result.getMsgFoundList().forEach(message -> bodies.add(Stage.body(message)));
            }
            long next = result.getNextBeginOffset();
            if (next >= result.getMaxOffset()) {
                return "next=" + next + " " + bodies;
            }
            result = reader.pull(queue, selector, next, 32);
        }
    }

    private static void pull(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        DefaultMQProducer producer = stage.producer();
        MessageQueue queue = stage.queue(topic, 0);
        for (int i = 0; i < 6; i++) {
            Message message = Stage.message(topic, "m-" + i);
            message.setTags(i % 2 == 0 ? "Even" : "Odd");
            message.putUserProperty("n", Integer.toString(i));
            producer.send(message, queue);
        }
        stage.stored(queue, 6);
        DefaultMQPullConsumer reader = stage.reader();
        stage.fact("from 0", told(reader.pull(queue, "*", 0, 4)));
        stage.fact("from 4", told(reader.pull(queue, "*", 4, 4)));
        stage.fact("at the end", told(reader.pull(queue, "*", 6, 4)));
        stage.fact("beyond", told(reader.pull(queue, "*", 99, 4)));
        stage.fact("odd", told(reader.pull(queue, "Odd", 0, 32)));
        stage.fact("no such tag", told(reader.pull(queue, "None", 0, 32)));
        MessageQueue empty = stage.queue(topic, 1);
        stage.fact("empty", told(reader.pull(empty, "*", 0, 4)));
        stage.fact("empty beyond", told(reader.pull(empty, "*", 3, 4)));
        stage.fact("queue 9", Stage.outcome(() -> reader.pull(stage.queue(topic, 9), "*", 0, 4)));
        stage.fact("no such topic", Stage.outcome(
                () -> reader.pull(stage.queue(stage.name("none"), 0), "*", 0, 4)));
        // The client pulls by SQL only after a heart beat was answered.
        MessageSelector big = MessageSelector.bySql("n > 3");
        stage.await(() -> Stage.outcome(() -> reader.pull(queue, big, 0, 4)).equals("ok"));
        stage.fact("by sql", toldToEnd(reader, queue, big));
        CompletableFuture<String> later = new CompletableFuture<>();
        reader.pull(queue, "*", 2, 2, new PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                later.complete(told(result));
            }

            @Override
            public void onException(Throwable error) {
                later.completeExceptionally(error);
            }
        });
        stage.fact("asynchronous", later.get(Stage.LIMIT_MS, TimeUnit.MILLISECONDS));
        stage.fact("queues", reader.fetchSubscribeMessageQueues(topic).size());
    }

    private static void blocking(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        DefaultMQPullConsumer reader = stage.reader();
        MessageQueue queue = stage.queue(topic, 0);
        DefaultMQProducer producer = stage.producer();
        CompletableFuture<Long> cameMs = new CompletableFuture<>();
        CompletableFuture<String> said = new CompletableFuture<>();
        Thread waiter = new Thread(() -> {
            try {
                PullResult result = reader.pullBlockIfNotFound(queue, "TagB", 0, 4);
                // Every 5 s the original ends a pull that waits behind messages of other tags.
                while (result.getPullStatus() == PullStatus.NO_MATCHED_MSG) {
                    long next = result.getNextBeginOffset();
                    result = reader.pullBlockIfNotFound(queue, "TagB", next, 4);
                }
                cameMs.complete(System.currentTimeMillis());
                said.complete(told(result));
            } catch (Exception error) {
                said.completeExceptionally(error);
            }
        });
        waiter.start();
        Thread.sleep(1_500);
        stage.fact("waits", !said.isDone());
        Message other = Stage.message(topic, "other");
        other.setTags("TagA");
        producer.send(other, queue);
        Thread.sleep(500);
        stage.fact("waits for its tag", !said.isDone());
        Message wanted = Stage.message(topic, "wanted");
        wanted.setTags("TagB");
        long sentMs = System.currentTimeMillis();
        producer.send(wanted, queue);
        stage.fact("got", said.get(Stage.LIMIT_MS, TimeUnit.MILLISECONDS));
        stage.measure("woken after", cameMs.get() - sentMs);
    }

    private static void offsets(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        DefaultMQProducer producer = stage.producer();
        MessageQueue queue = stage.queue(topic, 0);
        for (int i = 0; i < 3; i++) {
            producer.send(Stage.message(topic, "m-" + i), queue);
            Thread.sleep(30);
        }
        List<MessageExt> stored = stage.stored(queue, 3);
        DefaultMQPullConsumer reader = stage.reader();
        stage.fact("min max", List.of(reader.minOffset(queue), reader.maxOffset(queue)));
        long middleMs = stored.get(1).getStoreTimestamp();
        stage.fact("by time", List.of(reader.searchOffset(queue, 1),
                reader.searchOffset(queue, middleMs),
                reader.searchOffset(queue, stored.get(2).getStoreTimestamp() + 60_000)));
        stage.fact("earliest is the first's", reader.earliestMsgStoreTime(queue)
                == stored.get(0).getStoreTimestamp());
        MessageQueue empty = stage.queue(topic, 1);
        stage.fact("empty", List.of(reader.minOffset(empty), reader.maxOffset(empty),
                reader.searchOffset(empty, middleMs), reader.earliestMsgStoreTime(empty)));
        stage.fact("before any commit", reader.fetchConsumeOffset(queue, true));
        reader.updateConsumeOffset(queue, 2);
        reader.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        stage.await(() -> reader.fetchConsumeOffset(queue, true) == 2, 10_000);
        stage.fact("after a commit", reader.fetchConsumeOffset(queue, true));
        stage.admin.updateConsumeOffset(stage.broker, stage.name("reader"), queue, 1);
        stage.fact("set back", reader.fetchConsumeOffset(queue, true));
    }
}

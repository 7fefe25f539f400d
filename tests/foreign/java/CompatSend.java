import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of sending: each way to send, what is stored then, and what is refused. */
final class CompatSend {
    private static final int MIB = 1 << 20;

    private CompatSend() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("sync", CompatSend::sync);
        all.put("async", CompatSend::async);
        all.put("oneway", CompatSend::oneway);
        all.put("batch", CompatSend::batch);
        all.put("compressed", CompatSend::compressed);
        all.put("selector", CompatSend::selector);
        all.put("delayed", CompatSend::delayed);
        all.put("refused", CompatSend::refused);
        all.put("newtopic", CompatSend::newTopic);
    }

    private static void sync(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        DefaultMQProducer producer = stage.producer();
        List<String> places = new ArrayList<>();
        boolean isNamedByClient = true;
        for (int i = 0; i < 4; i++) {
            byte[] body = ("bödy-" + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "TagA", "key-" + i + " shared", 7, body, true);
            message.putUserProperty("color", "blue-" + i);
            message.setBuyerId("buyer");
            SendResult sent = producer.send(message, stage.queue(topic, i % 2));
            places.add(sent.getSendStatus() + " " + sent.getMessageQueue().getQueueId()
                    + " " + sent.getQueueOffset());
            isNamedByClient &= sent.getMsgId().equals(message.getProperty("UNIQ_KEY"));
        }
        stage.fact("places", places);
        stage.fact("msgId is the client's", isNamedByClient);
        List<Object> stored = new ArrayList<>();
        for (MessageExt message : stage.stored(stage.queue(topic, 1), 2)) {
            stored.add(stage.described(message));
        }
        stage.fact("stored", stored);
        Map<Integer, Integer> perQueue = new TreeMap<>();
        for (int i = 0; i < 8; i++) {
            SendResult sent = producer.send(Stage.message(topic, "round-" + i));
            perQueue.merge(sent.getMessageQueue().getQueueId(), 1, Integer::sum);
        }
        stage.fact("round robin", perQueue);
    }

    private static void async(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        DefaultMQProducer producer = stage.producer();
        List<String> ended = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch answers = new CountDownLatch(30);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                ended.add(result.getSendStatus().name());
                answers.countDown();
            }

            @Override
            public void onException(Throwable error) {
                ended.add(error.toString());
                answers.countDown();
            }
        };
        for (int i = 0; i < 10; i++) {
            producer.send(Stage.message(topic, "free-" + i), callback);
            producer.send(Stage.message(topic, "queue-" + i), stage.queue(topic, 1), callback);
            producer.send(Stage.message(topic, "chosen-" + i), CompatSend::byNumber, 2, callback);
        }
        stage.fact("answered", answers.await(Stage.LIMIT_MS, TimeUnit.MILLISECONDS));
        stage.fact("statuses", new java.util.TreeSet<>(ended));
        // The original fills its queues a moment after the answer.
        stage.await(() -> storedCount(stage, topic) == 30);
        stage.fact("stored", storedCount(stage, topic));
    }

    private static long storedCount(Stage stage, String topic) throws Exception {
        long stored = 0;
        for (int id = 0; id < 4; id++) {
            stored += stage.reader().maxOffset(stage.queue(topic, id));
        }
        return stored;
    }

    private static MessageQueue byNumber(
            List<MessageQueue> queues, Message message, Object number) {
        return queues.get((Integer) number % queues.size());
    }

    private static void oneway(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        DefaultMQProducer producer = stage.producer();
        for (int i = 0; i < 6; i++) {
            producer.sendOneway(Stage.message(topic, "free-" + i));
            producer.sendOneway(Stage.message(topic, "queue-" + i), stage.queue(topic, 0));
            producer.sendOneway(Stage.message(topic, "chosen-" + i), CompatSend::byNumber, 0);
        }
        List<String> bodies = new ArrayList<>();
        stage.stored(stage.queue(topic, 0), 18).forEach(m -> bodies.add(Stage.body(m)));
        bodies.sort(null);
        stage.fact("stored", bodies);
    }

    private static void batch(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        DefaultMQProducer producer = stage.producer();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            byte[] body = ("batch-" + i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, i % 2 == 0 ? "Even" : "Odd", "key-" + i, body);
            message.putUserProperty("n", Integer.toString(i));
            batch.add(message);
        }
        SendResult sent = producer.send(batch, stage.queue(topic, 1));
        stage.fact("answer", sent.getSendStatus() + " " + sent.getQueueOffset());
        stage.fact("ids", sent.getMsgId().split(",").length);
        stage.fact("offset ids", sent.getOffsetMsgId().split(",").length);
        List<Object> stored = new ArrayList<>();
        for (MessageExt message : stage.stored(stage.queue(topic, 1), 10)) {
            stored.add(stage.described(message));
        }
        stage.fact("stored", stored);
        String lastId = sent.getOffsetMsgId().split(",")[9];
        stage.fact("last by id", Stage.body(stage.admin.viewMessage(topic, lastId)));
        Inbox inbox = new Inbox();
        var odd = stage.idleConsumer(stage.group("odd"));
        odd.subscribe(topic, "Odd");
        odd.registerMessageListener(inbox.taking());
        odd.start();
        inbox.await(5);
        stage.fact("odd ones", inbox.sorted());
    }

    /** A body above 4 KB is compressed by the client; 5.x knows more ways to do it. */
    private static void compressed(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        byte[] big = new byte[20_000];
        Arrays.fill(big, (byte) 'x');
        DefaultMQProducer plain = stage.producer();
        List<String> ways = new ArrayList<>();
        plain.send(new Message(topic, big));
        ways.add("default");
        for (String way : List.of("LZ4", "ZSTD", "ZLIB")) {
            DefaultMQProducer producer = stage.idleProducer(stage.name("packer"));
            if (choose(producer, way)) {
                producer.start();
                producer.send(new Message(topic, big));
                ways.add(way);
            }
        }
        stage.fact("ways", ways);
        List<String> found = new ArrayList<>();
        for (MessageExt message : stage.stored(stage.queue(topic, 0), ways.size())) {
            found.add(Arrays.equals(big, message.getBody()) + " small="
                    + (message.getStoreSize() < 2_000));
        }
        stage.fact("stored", found);
    }

    /** Have a producer compress in one way; give whether its version can choose one. */
    static boolean choose(DefaultMQProducer producer, String way) throws Exception {
        try {
            Class<?> type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
            Object value = type.getMethod("of", String.class).invoke(null, way);
            producer.getClass().getMethod("setCompressType", type).invoke(producer, value);
            return true;
        } catch (ClassNotFoundException | NoSuchMethodException clientIs4) {
            return false;
        }
    }

    private static void selector(Stage stage) throws Exception {
        String topic = stage.topic("t", 4);
        DefaultMQProducer producer = stage.producer();
        Map<Integer, List<String>> perQueue = new TreeMap<>();
        for (int step = 0; step < 5; step++) {
            for (int order = 0; order < 6; order++) {
                Message message = Stage.message(topic, "order-" + order + "-step-" + step);
                producer.send(message, CompatSend::byNumber, order);
            }
        }
        for (int id = 0; id < 4; id++) {
            List<String> bodies = perQueue.computeIfAbsent(id, key -> new ArrayList<>());
            int count = id < 2 ? 10 : 5;
            stage.stored(stage.queue(topic, id), count).forEach(m -> bodies.add(Stage.body(m)));
        }
        stage.fact("queues", perQueue);
    }

    private static void delayed(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        Inbox inbox = new Inbox();
        stage.consumer(stage.group("g"), topic, inbox);
        DefaultMQProducer producer = stage.producer();
        List<String> answers = new ArrayList<>();
        for (int level : new int[] {0, 1, 2, 5, 99}) {
            Message message = Stage.message(topic, "level-" + level);
            message.setDelayTimeLevel(level);
            message.setTags("Late");
            SendResult sent = producer.send(message, stage.queue(topic, 1));
            String answered = stage.plain(sent.getMessageQueue().getTopic());
            answers.add(sent.getSendStatus() + " " + answered);
        }
        stage.fact("answers", answers);
        inbox.await(5);
        Map<String, Object> messages = new TreeMap<>();
        for (int i = 0; i < 5; i++) {
            MessageExt message = inbox.all().get(i);
            messages.put(Stage.body(message), stage.described(message));
            stage.measure(Stage.body(message), inbox.timeMs(i) - message.getBornTimestamp());
        }
        stage.fact("messages", messages);
    }

    private static void refused(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        DefaultMQProducer producer = stage.idleProducer(stage.name("big"));
        producer.setMaxMessageSize(16 * MIB);
        producer.setCompressMsgBodyOverHowmuch(64 * MIB);
        producer.start();
        MessageQueue queue = stage.queue(topic, 0);
        Message wide = Stage.message(topic, "wide");
        wide.putUserProperty("wide", "x".repeat(33_000));
        stage.fact("wide properties", Stage.outcome(() -> producer.send(wide, queue)));
        stage.fact("4 MiB", Stage.outcome(() -> producer.send(sized(topic, 4 * MIB), queue)));
        stage.fact("more", Stage.outcome(() -> producer.send(sized(topic, 4 * MIB + 1), queue)));
        List<Message> batch = List.of(sized(topic, 3 * MIB), sized(topic, 3 * MIB));
        stage.fact("big batch", Stage.outcome(() -> producer.send(batch, queue)));
        Message stray = Stage.message(topic, "stray");
        stage.fact("queue 99",
                Stage.outcome(() -> producer.send(stray, stage.queue(topic, 99))));
        stage.fact("stored", stage.stored(queue, 1).size());
    }

    private static Message sized(String topic, int size) {
        return new Message(topic, new byte[size]);
    }

    private static void newTopic(Stage stage) throws Exception {
        String topic = stage.name("t");
        DefaultMQProducer producer = stage.idleProducer(stage.name("p"));
        producer.setDefaultTopicQueueNums(3);
        producer.start();
        stage.fact("first send", producer.send(Stage.message(topic, "first")).getSendStatus());
        stage.await(() -> stage.hasRoute(topic));
        stage.fact("queues", producer.fetchPublishMessageQueues(topic).size());
    }
}

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The original Java client as a command line tool: commands in, one JSON object a line out.
 *
 * Arguments: one or more commands, separated by "--", run one after the other in this process (a
 * JVM's start is what such a test pays for). A command is a word, its positional arguments and
 * options written key=value.
 *
 *   send NAMESRV TOPIC COUNT [tags=A,B,C] [keys=PREFIX] [body=PREFIX] [bytes=N] [async=true] [hash=true]
 *   send-batch NAMESRV TOPIC COUNT [size=10] [tags=…] [keys=…] [body=…]
 *   consume NAMESRV TOPIC GROUP COUNT TIMEOUT_S [expression=*] [linger_ms=300]
 *   late NAMESRV TOPIC GROUP TIMEOUT_S [pause_ms=2000] [rounds=3]
 *   route NAMESRV TOPIC
 *
 * With bytes=N a body is filled up to N random bytes. Bodies are not compressed; of a long one
 * lines show the size and the CRC.
 *
 * An expression that begins with "sql:" is an SQL92 one. With hash=true the queue is chosen by
 * SelectMessageQueueByHash from the message's key.
 *
 * Every line has "event": sent, received, late, route, done (a command's end) or error. Message i
 * has the body PREFIX-i, the tag i modulo the number of tags, and the key PREFIX-i. Nothing is
 * sent twice by the client (no retries), so each message counted was accepted exactly once.
 */
public final class Probe {
    private static final String SQL = "sql:";
    private static final int IN_FLIGHT_MAX = 64;
    private static final int FAILURES_MAX = 10;
    private static final int SEND_TIMEOUT_MS = 10_000;
    private static final int MESSAGE_SIZE_MAX = 12 * 1024 * 1024;
    private static final int SHOWN_SIZE_MAX = 100_000;

    private Probe() {
    }

    public static void main(String[] args) {
        int failed = 0;
        List<String> command = new ArrayList<>();
        for (String arg : args) {
            if (arg.equals("--")) {
                failed += run(command);
                command = new ArrayList<>();
            } else {
                command.add(arg);
            }
        }
        failed += run(command);
        System.out.flush();
        // The clients leave threads behind that are not daemons.
        System.exit(failed == 0 ? 0 : 1);
    }

    private static int run(List<String> command) {
        List<String> words = new ArrayList<>();
        Map<String, String> options = new HashMap<>();
        for (String word : command) {
            int equals = word.indexOf('=');
            if (equals > 0 && words.size() > 2) {
                options.put(word.substring(0, equals), word.substring(equals + 1));
            } else {
                words.add(word);
            }
        }
        long begin = System.nanoTime();
        try {
            int count = dispatch(words, options);
            Line done = line("done", "command", words.get(0), "count", count);
            done.put("elapsedMs", (System.nanoTime() - begin) / 1_000_000);
            print(done);
            return 0;
        } catch (Throwable e) {
            print(line("error", "command", words.get(0), "error", e.toString()));
            e.printStackTrace();
            return 1;
        }
    }

    private static int dispatch(List<String> words, Map<String, String> options) throws Exception {
        String namesrv = words.get(1);
        String topic = words.get(2);
        switch (words.get(0)) {
            case "send":
                return send(namesrv, topic, number(words, 3), options);
            case "send-batch":
                return sendBatch(namesrv, topic, number(words, 3), options);
            case "consume":
                return consume(words, options);
            case "late":
                return late(words, options);
            case "route":
                return Route.print(namesrv, topic);
            default:
                throw new IllegalArgumentException("no such command: " + words.get(0));
        }
    }

    private static int number(List<String> words, int index) {
        return Integer.parseInt(words.get(index));
    }

    private static int number(Map<String, String> options, String key, int without) {
        return Integer.parseInt(options.getOrDefault(key, Integer.toString(without)));
    }

    // ---- sending ------------------------------------------------------------------------------

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("probe_producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("producer-" + System.nanoTime());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setMaxMessageSize(MESSAGE_SIZE_MAX);
        producer.setCompressMsgBodyOverHowmuch(MESSAGE_SIZE_MAX);
        producer.start();
        return producer;
    }

    private static byte[] filled(String text, int size, int seed) {
        byte[] begin = text.getBytes(StandardCharsets.UTF_8);
        if (size <= begin.length) {
            return begin;
        }
        byte[] body = new byte[size];
        new Random(seed).nextBytes(body);
        System.arraycopy(begin, 0, body, 0, begin.length);
        return body;
    }

    private static Message message(String topic, int i, Map<String, String> options) {
        String body = options.getOrDefault("body", "body") + "-" + i;
        Message message = new Message(topic, filled(body, number(options, "bytes", 0), i));
        if (options.containsKey("tags")) {
            String[] tags = options.get("tags").split(",");
            message.setTags(tags[i % tags.length]);
        }
        if (options.containsKey("keys")) {
            message.setKeys(options.get("keys") + "-" + i);
        }
        return message;
    }

    private static int send(String namesrv, String topic, int count, Map<String, String> options)
            throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        try {
            if (options.getOrDefault("async", "false").equals("true")) {
                return sendAsync(producer, topic, count, options);
            }
            int failures = 0;
            for (int i = 0; i < count && failures < FAILURES_MAX; i++) {
                try {
                    Message message = message(topic, i, options);
                    print(sent(sendOne(producer, message, options), message));
                } catch (Exception e) {
                    failures++;
                    print(line("error", "command", "send", "index", i, "error", e.toString()));
                }
            }
            return count - failures;
        } finally {
            producer.shutdown();
        }
    }

    private static SendResult sendOne(
            DefaultMQProducer producer, Message message, Map<String, String> options)
            throws Exception {
        if (options.getOrDefault("hash", "false").equals("true")) {
            return producer.send(message, new SelectMessageQueueByHash(), message.getKeys());
        }
        return producer.send(message);
    }

    /** Up to IN_FLIGHT_MAX sends under way at once; lines come in the order of the answers. */
    private static int sendAsync(
            DefaultMQProducer producer, String topic, int count, Map<String, String> options)
            throws Exception {
        Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
        // The first message goes alone: it is the one that creates the topic.
        Message first = message(topic, 0, options);
        print(sent(producer.send(first), first));
        for (int i = 1; i < count; i++) {
            inFlight.acquire();
            Message message = message(topic, i, options);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print(sent(result, message));
                    inFlight.release();
                }

                @Override
                public void onException(Throwable e) {
                    print(line("error", "command", "send", "error", e.toString()));
                    inFlight.release();
                }
            });
        }
        if (!inFlight.tryAcquire(IN_FLIGHT_MAX, SEND_TIMEOUT_MS * 2L, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("asynchronous sends without an answer");
        }
        return count;
    }

    private static int sendBatch(String namesrv, String topic, int count, Map<String, String> options)
            throws Exception {
        int size = number(options, "size", 10);
        DefaultMQProducer producer = producer(namesrv);
        try {
            for (int from = 0; from < count; from += size) {
                List<Message> batch = new ArrayList<>();
                for (int i = from; i < Math.min(from + size, count); i++) {
                    batch.add(message(topic, i, options));
                }
                Line line = sent(producer.send(batch), batch.get(0));
                line.put("messages", batch.size());
                print(line);
            }
            return count;
        } finally {
            producer.shutdown();
        }
    }

    private static Line sent(SendResult result, Message message) {
        Line line = line("sent", "status", result.getSendStatus().name());
        line.put("topic", result.getMessageQueue().getTopic());
        line.put("brokerName", result.getMessageQueue().getBrokerName());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        line.put("body", text(message.getBody()));
        return line;
    }

    // ---- consuming ----------------------------------------------------------------------------

    private static DefaultMQPushConsumer consumer(
            String namesrv, String topic, String group, String expression,
            MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (expression.startsWith(SQL)) {
            consumer.subscribe(topic, MessageSelector.bySql(expression.substring(SQL.length())));
        } else {
            consumer.subscribe(topic, expression);
        }
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    private static int consume(List<String> words, Map<String, String> options) throws Exception {
        int count = number(words, 4);
        int timeoutS = number(words, 5);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch all = new CountDownLatch(count);
        MessageListenerConcurrently listener = (messages, context) -> {
            for (MessageExt message : messages) {
                String brokerName = context.getMessageQueue().getBrokerName();
                print(received(message, brokerName));
                if (seen.add(brokerName + ":" + message.getQueueId() + ":" + message.getQueueOffset())) {
                    all.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer consumer = consumer(
                words.get(1), words.get(2), words.get(3), options.getOrDefault("expression", "*"), listener);
        try {
            if (all.await(timeoutS, TimeUnit.SECONDS)) {
                // What should not come (duplicates, other tags) gets a moment to come.
                Thread.sleep(number(options, "linger_ms", 300));
            }
        } finally {
            consumer.shutdown();
        }
        return seen.size();
    }

    private static Line received(MessageExt message, String brokerName) {
        Line line = line("received", "topic", message.getTopic(), "brokerName", brokerName);
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("msgId", message.getMsgId());
        line.put("body", text(message.getBody()));
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("storeHost", String.valueOf(message.getStoreHost()));
        line.put("properties", new HashMap<>(message.getProperties()));
        return line;
    }

    /**
     * How long a waiting consumer needs to get a message that comes later. The first message
     * creates the topic and proves that the consumer has its queues; then, for each round, a pause
     * in which every pull comes to wait at the broker, a message, and the time until it is there.
     */
    private static int late(List<String> words, Map<String, String> options) throws Exception {
        int timeoutS = number(words, 4);
        int rounds = number(options, "rounds", 3);
        Map<String, Long> arrivals = new ConcurrentHashMap<>();
        Semaphore arrived = new Semaphore(0);
        MessageListenerConcurrently listener = (messages, context) -> {
            for (MessageExt message : messages) {
                arrivals.put(text(message.getBody()), System.nanoTime());
                arrived.release();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQProducer producer = producer(words.get(1));
        DefaultMQPushConsumer consumer = null;
        try {
            for (int i = 0; i <= rounds; i++) {
                Message message = message(words.get(2), i, options);
                long begin = System.nanoTime();
                producer.send(message);
                if (i == 0) {
                    consumer = consumer(words.get(1), words.get(2), words.get(3), "*", listener);
                }
                if (!arrived.tryAcquire(timeoutS, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("message " + i + " did not come in " + timeoutS + " s");
                }
                if (i > 0) {
                    long nanos = arrivals.get(text(message.getBody())) - begin;
                    print(line("late", "round", i, "latencyMs", nanos / 1_000_000));
                }
                Thread.sleep(i < rounds ? number(options, "pause_ms", 2000) : 0);
            }
            return rounds;
        } finally {
            producer.shutdown();
            if (consumer != null) {
                consumer.shutdown();
            }
        }
    }

    // ---- lines --------------------------------------------------------------------------------

    static final class Line extends LinkedHashMap<String, Object> {
        private static final long serialVersionUID = 1L;
    }

    static Line line(String event, Object... pairs) {
        Line line = new Line();
        line.put("event", event);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        return line;
    }

    static synchronized void print(Line line) {
        System.out.println(Json.write(line));
    }

    private static String text(byte[] body) {
        if (body != null && body.length > SHOWN_SIZE_MAX) {
            CRC32 sum = new CRC32();
            sum.update(body);
            return body.length + " bytes, CRC " + sum.getValue();
        }
        return body == null ? null : new String(body, StandardCharsets.UTF_8);
    }
}

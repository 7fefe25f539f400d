import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What one scenario of Compat holds: its names, its clients (ended with it) and its printer.
 *
 * Rules: every wait has a limit; clients never send twice by themselves, so that counts are exact;
 * names given out are unique in a run, and texts printed have the run's prefix replaced by "P".
 */
final class Stage {
    static final String BROKER_NAME = "broker-a";
    static final long LIMIT_MS = 60_000;
    private static final int SEND_TIMEOUT_MS = 15_000;
    private static final AtomicInteger CLIENTS = new AtomicInteger();

    /** A claim that is asked until it is true. */
    interface Claim {
        boolean holds() throws Exception;
    }

    final String namesrv;
    final String broker;
    final DefaultMQAdminExt admin;
    private final String prefix;
    private final String scenario;
    private final long begin = System.nanoTime();
    private final List<Runnable> closers = Collections.synchronizedList(new ArrayList<>());
    private DefaultMQPullConsumer reader;

    Stage(String namesrv, String broker, String prefix, String scenario, DefaultMQAdminExt admin) {
        this.namesrv = namesrv;
        this.broker = broker;
        this.prefix = prefix;
        this.scenario = scenario;
        this.admin = admin;
    }

    // ---- out ----------------------------------------------------------------------------------

    void fact(String name, Object value) {
        print("fact", name, value instanceof String ? plain((String) value) : value);
    }

    void measure(String name, Object value) {
        print("measure", name, value);
    }

    void error(Throwable error) {
        error.printStackTrace();
        print("error", "error", error.toString());
    }

    void done() {
        print("done", "afterMs", (System.nanoTime() - begin) / 1_000_000);
    }

    private void print(String event, String name, Object value) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("scenario", scenario);
        if (event.equals("fact") || event.equals("measure")) {
            line.put("name", name);
            line.put("value", value);
        } else {
            line.put(name, value);
        }
        synchronized (Stage.class) {
            System.out.println(Json.write(line));
        }
    }

    /** A text without what differs from run to run. */
    String plain(String text) {
        return text == null ? null : text.replace(prefix, "P");
    }

    // ---- names and topics ---------------------------------------------------------------------

    String name(String word) {
        return prefix + "_" + scenario + "_" + word;
    }

    /** A new topic with this many queues; clients find its route when this returns. */
    String topic(String word, int queues) throws Exception {
        String topic = name(word);
        makeTopic(topic, queues);
        return topic;
    }

    void makeTopic(String topic, int queues) throws Exception {
        TopicConfig config = new TopicConfig(topic);
        config.setReadQueueNums(queues);
        config.setWriteQueueNums(queues);
        admin.createAndUpdateTopicConfig(broker, config);
        await(() -> hasRoute(topic));
    }

    /** A new group whose retry topic is there already: else its first retry is 30 s late. */
    String group(String word) throws Exception {
        String group = name(word);
        makeTopic("%RETRY%" + group, 1);
        return group;
    }

    boolean hasRoute(String topic) throws Exception {
        try {
            return admin.examineTopicRouteInfo(topic) != null;
        } catch (MQClientException unknown) {
            return false;
        }
    }

    MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, BROKER_NAME, id);
    }

    // ---- clients ------------------------------------------------------------------------------

    String instance() {
        return scenario + "-" + CLIENTS.incrementAndGet();
    }

    void onClose(Runnable closer) {
        closers.add(closer);
    }

    void close() {
        for (Runnable closer : closers) {
            closer.run();
        }
    }

    DefaultMQProducer idleProducer(String group) {
        return quiet(new DefaultMQProducer(group));
    }

    DefaultMQProducer quiet(DefaultMQProducer producer) {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        onClose(producer::shutdown);
        return producer;
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = idleProducer(name("producer"));
        producer.start();
        return producer;
    }

    DefaultMQPushConsumer idleConsumer(String group) {
        return quiet(new DefaultMQPushConsumer(group));
    }

    DefaultMQPushConsumer quiet(DefaultMQPushConsumer consumer) {
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The client may skip the heart beat that tells of its new version of a subscription, if
        // another one is under way; the broker refuses its pulls until the next, 30 s later (25).
        consumer.setHeartbeatBrokerInterval(2_000);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(4);
        onClose(consumer::shutdown);
        return consumer;
    }

    /** A started consumer that takes everything into the inbox. */
    DefaultMQPushConsumer consumer(String group, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = idleConsumer(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(inbox.taking());
        consumer.start();
        return consumer;
    }

    /** A pull consumer of this scenario that nobody minds: to look into queues. */
    synchronized DefaultMQPullConsumer reader() throws Exception {
        if (reader == null) {
            reader = new DefaultMQPullConsumer(name("reader"));
            reader.setNamesrvAddr(namesrv);
            reader.setInstanceName(instance());
            reader.setHeartbeatBrokerInterval(1_000);
            onClose(reader::shutdown);
            reader.start();
        }
        return reader;
    }

    // ---- steps --------------------------------------------------------------------------------

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Send count messages WORD-0, WORD-1, ... round the first queues of a topic. */
    List<SendResult> send(String topic, String word, int count, int queues) throws Exception {
        DefaultMQProducer producer = producer();
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(producer.send(message(topic, word + "-" + i), queue(topic, i % queues)));
        }
        return results;
    }

    /** All messages that a queue holds, once it holds this many. */
    List<MessageExt> stored(MessageQueue queue, int count) throws Exception {
        await(() -> reader().maxOffset(queue) >= count);
        List<MessageExt> found = new ArrayList<>();
        while (found.size() < count) {
            PullResult pulled = reader().pull(queue, "*", found.size(), 32);
            if (pulled.getPullStatus() == PullStatus.FOUND) {
                found.addAll(pulled.getMsgFoundList());
            }
        }
        return found;
    }

    /** What a group has committed of a queue, asked of the broker; -1 if nothing. */
    long committed(String group, MessageQueue queue) throws Exception {
        // A consumer's own store would take the answer for its progress.
        var factory = reader().getDefaultMQPullConsumerImpl().getRebalanceImpl()
                .getmQClientFactory();
        return new RemoteBrokerOffsetStore(factory, group)
                .readOffset(queue, ReadOffsetType.READ_FROM_STORE);
    }

    void await(Claim claim) throws Exception {
        await(claim, LIMIT_MS);
    }

    void await(Claim claim, long limitMs) throws Exception {
        long deadline = System.nanoTime() + limitMs * 1_000_000;
        while (!claim.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not so after " + limitMs + " ms");
            }
            Thread.sleep(20);
        }
    }

    /** How a call ended: "ok", the broker's response code, or the exception's class. */
    static String outcome(Callable<?> call) {
        try {
            call.call();
            return "ok";
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        } catch (MQClientException refused) {
            return "code " + refused.getResponseCode();
        } catch (Exception other) {
            return other.getClass().getSimpleName();
        }
    }

    // ---- messages as facts --------------------------------------------------------------------

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** What a message says that does not differ from run to run. */
    Map<String, Object> described(MessageExt message) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("topic", plain(message.getTopic()));
        facts.put("queueId", message.getQueueId());
        facts.put("body", body(message));
        facts.put("flag", message.getFlag());
        facts.put("reconsumeTimes", message.getReconsumeTimes());
        facts.put("bornAt", message.getBornHostString());
        facts.put("storedAt", broker.equals("127.0.0.1:" + port(message)));
        facts.put("properties", properties(message));
        return facts;
    }

    private static int port(MessageExt message) {
        return ((InetSocketAddress) message.getStoreHost()).getPort();
    }

    private Map<String, Object> properties(MessageExt message) {
        Map<String, Object> facts = new TreeMap<>();
        for (Map.Entry<String, String> entry : message.getProperties().entrySet()) {
            String key = entry.getKey();
            // The client itself adds these when a pull or a listener hands the message over.
            if (key.equals("MAX_OFFSET") || key.equals("CONSUME_START_TIME")) {
                continue;
            }
            boolean isIdentity = key.equals("UNIQ_KEY") || key.equals("ORIGIN_MESSAGE_ID");
            facts.put(key, isIdentity ? "an id" : plain(entry.getValue()));
        }
        return facts;
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The original's client as a process whose cost is measured: python_client.py in Java, with the
 * same commands, the same windows and the same rules.
 *
 * In: a name server's address and the ticks of the kernel's clock in a second; then a line
 * `kind topic amount` on standard input for each run. Out: a line `messages clock_s cpu_s` for each.
 */
public final class JavaClient {
    private static final int IN_FLIGHT_MAX = 256;
    private static final int BODY_SIZE = 1024;
    private static final int POLL_COUNT = 32;
    private static final long LEAD_NS = 400_000_000L;
    private static final long LIMIT_S = 60;
    private static final int TIMEOUT_MS = 30_000;

    private static String namesrv;
    private static double ticksPerSecond;

    private JavaClient() {
    }

    /** What the process has used since `begin`. */
    private static class Meter {
        private long count;
        private long clockNs;
        private double cpuS;
        private volatile String line;

        String line() {
            return line;
        }

        void begin(long countNow) throws Exception {
            cpuS = cpuS();
            clockNs = System.nanoTime();
            count = countNow;
        }

        void end(long countNow) throws Exception {
            double seconds = (System.nanoTime() - clockNs) / 1e9;
            line = String.format("%d %.4f %.4f", countNow - count, seconds, cpuS() - cpuS);
        }

        private static double cpuS() throws Exception {
            String text = new String(Files.readAllBytes(Path.of("/proc/self/stat")));
            String[] words = text.substring(text.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(words[11]) + Long.parseLong(words[12])) / ticksPerSecond;
        }
    }

    /** Counts the sends of a loop that asks `goesOn` before each. */
    private static final class SendMeter extends Meter {
        private final long lengthNs;
        private long beginNs = System.nanoTime() + LEAD_NS;
        private boolean hasBegun;

        SendMeter(double seconds) {
            lengthNs = (long) (seconds * 1e9);
        }

        boolean goesOn(long count) throws Exception {
            long nowNs = System.nanoTime();
            if (nowNs - beginNs >= 0 && !hasBegun) {
                hasBegun = true;
                beginNs = nowNs;
                begin(count);
            }
            if (hasBegun && nowNs - beginNs >= lengthNs) {
                end(count);
                return false;
            }
            return true;
        }
    }

    /** Counts messages that a consumer gets, until it has all of a topic. */
    private static final class Drain extends Meter {
        private final long countMax;
        private final AtomicLong got = new AtomicLong();
        private final CountDownLatch all = new CountDownLatch(1);

        Drain(double countMax) {
            this.countMax = (long) countMax;
        }

        void note() {
            long count = got.incrementAndGet();
            try {
                if (count == 1) {
                    begin(1);
                } else if (count == countMax) {
                    end(count);
                    all.countDown();
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        boolean hasAll() {
            return all.getCount() == 0;
        }

        String await() throws Exception {
            if (!all.await(LIMIT_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException(got + " of " + countMax + " messages came");
            }
            return line();
        }
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        ticksPerSecond = Double.parseDouble(args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            System.out.println(run(words[0], words[1], Double.parseDouble(words[2])));
        }
        System.exit(0);
    }

    private static String run(String kind, String topic, double amount) throws Exception {
        switch (kind) {
            case "pipelined":
                return pipelined(topic, amount);
            case "blocking":
                return blocking(topic, amount);
            case "push":
                return push(topic, amount);
            case "poll":
                return poll(topic, amount);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(newGroup());
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        return producer;
    }

    private static String newGroup() {
        return "benchmark-" + UUID.randomUUID();
    }

    private static String pipelined(String topic, double seconds) throws Exception {
        DefaultMQProducer producer = producer();
        byte[] body = new byte[BODY_SIZE];
        Semaphore room = new Semaphore(IN_FLIGHT_MAX);
        AtomicLong count = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count.incrementAndGet();
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                room.release();
            }
        };
        SendMeter meter = new SendMeter(seconds);
        while (meter.goesOn(count.get()) && failure.get() == null) {
            room.acquire();
            producer.send(new Message(topic, body), callback);
        }
        room.acquire(IN_FLIGHT_MAX);
        producer.shutdown();
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return meter.line();
    }

    private static String blocking(String topic, double seconds) throws Exception {
        DefaultMQProducer producer = producer();
        byte[] body = new byte[BODY_SIZE];
        SendMeter meter = new SendMeter(seconds);
        for (long count = 0; meter.goesOn(count); count++) {
            SendResult result = producer.send(new Message(topic, body));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
        }
        producer.shutdown();
        return meter.line();
    }

    private static String push(String topic, double count) throws Exception {
        Drain drain = new Drain(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(newGroup());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            drain.note();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        String line = drain.await();
        consumer.shutdown();
        return line;
    }

    private static String poll(String topic, double count) throws Exception {
        Drain drain = new Drain(count);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(newGroup());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(POLL_COUNT);
        consumer.subscribe(topic, "*");
        consumer.start();
        long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (!drain.hasAll() && System.nanoTime() - endNs < 0) {
            List<?> messages = consumer.poll();
            messages.forEach(message -> drain.note());
        }
        String line = drain.await();
        consumer.shutdown();
        return line;
    }
}

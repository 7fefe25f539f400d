import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that listeners received, in the order of their coming, and when. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();
    private final List<Long> timesMs = new ArrayList<>();

    synchronized void take(MessageExt message) {
        messages.add(message);
        timesMs.add(System.currentTimeMillis());
        notifyAll();
    }

    /** A listener that takes everything and is content with it. */
    MessageListenerConcurrently taking() {
        return (received, context) -> {
            received.forEach(this::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    synchronized int count() {
        return messages.size();
    }

    /** Return when this many came, doubled ones included; an error after the limit. */
    synchronized void await(int count, long limitMs) throws InterruptedException {
        long deadline = System.nanoTime() + limitMs * 1_000_000;
        while (messages.size() < count) {
            long leftMs = (deadline - System.nanoTime()) / 1_000_000;
            if (leftMs <= 0) {
                throw new IllegalStateException(
                        messages.size() + " of " + count + " messages after " + limitMs + " ms");
            }
            wait(leftMs);
        }
    }

    void await(int count) throws InterruptedException {
        await(count, Stage.LIMIT_MS);
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    synchronized long timeMs(int index) {
        return timesMs.get(index);
    }

    /** The bodies in the order of their coming. */
    List<String> bodies() {
        List<String> bodies = new ArrayList<>();
        all().forEach(message -> bodies.add(Stage.body(message)));
        return bodies;
    }

    /** The bodies sorted; a message that came twice is there twice. */
    List<String> sorted() {
        List<String> bodies = bodies();
        bodies.sort(null);
        return bodies;
    }

    /** How many different messages came, and how many came again. */
    Map<String, Object> account() {
        int distinct = new TreeSet<>(bodies()).size();
        Map<String, Object> account = new LinkedHashMap<>();
        account.put("distinct", distinct);
        account.put("again", count() - distinct);
        return account;
    }
}

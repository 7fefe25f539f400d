import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * One message of each kind that the original's producer can send.
 *
 * In: NAMESRV TOPIC GROUP LONG_BODY [COMPRESSION ...]. Out: one line "sent" for each message with
 * an answer: body, message id, queue and offset. For each way to compress that is named, and that
 * only clients of 5.x know, the way's name and the long body are sent as one.
 */
public final class EveryKind {
    private EveryKind() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        String topic = args[1];
        tell("plain", producer.send(message(topic, "", "", "plain")));
        tell("tagged", producer.send(message(topic, "TagA", "", "tagged")));
        tell("keyed", producer.send(message(topic, "", "k1 k2", "keyed")));
        Message own = message(topic, "", "", "own");
        own.putUserProperty("colour", "gr\u00fcn");
        own.putUserProperty("number", "7");
        own.setFlag(3);
        tell("own", producer.send(own));
        tell(args[3], producer.send(message(topic, "", "", args[3])));
        Message later = message(topic, "TagL", "", "later");
        later.setDelayTimeLevel(1);
        tell("later", producer.send(later));
        producer.sendOneway(message(topic, "", "", "oneway"));
        sendAsync(producer, message(topic, "", "", "async"));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            batch.add(message(topic, "TagB", "b" + i, "batch-" + i));
        }
        producer.send(batch);
        for (int i = 0; i < 6; i++) {
            Message ordered = message(topic, "", "", "ordered-" + i);
            tell("ordered-" + i, producer.send(ordered, new SelectMessageQueueByHash(), "one"));
        }
        producer.shutdown();
        for (int i = 4; i < args.length; i++) {
            sendCompressed(args[0], topic, args[2] + args[i], args[i], args[3]);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void sendCompressed(
            String namesrv, String topic, String group, String way, String longBody) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(20_000);
        CompatSend.choose(producer, way);
        producer.start();
        tell(way + longBody, producer.send(message(topic, "", "", way + longBody)));
        producer.shutdown();
    }

    private static Message message(String topic, String tags, String keys, String body) {
        return new Message(topic, tags, keys, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void sendAsync(DefaultMQProducer producer, Message message) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                tell("async", result);
                done.countDown();
            }

            @Override
            public void onException(Throwable error) {
                System.out.println(Json.write(Probe.line("error", "error", error.toString())));
                done.countDown();
            }
        });
        done.await(30, TimeUnit.SECONDS);
    }

    private static synchronized void tell(String body, SendResult result) {
        Probe.Line line = Probe.line("sent", "body", body, "msgId", result.getMsgId());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        System.out.println(Json.write(line));
    }
}

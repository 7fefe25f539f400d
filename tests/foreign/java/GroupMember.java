import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One member of a consumer group, until its standard input ends.
 *
 * In: NAMESRV TOPIC GROUP [orderly]. Out: one JSON object a line: "ready" with its client id, then
 * "received" for each message. A message whose body begins with "java-fails" is refused the first
 * time, one that begins with "java-gives-up" is made a dead letter at once (concurrently only).
 */
public final class GroupMember {
    private GroupMember() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(args[1], "*");
        if (args.length > 3) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(GroupMember::tell);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(GroupMember::tell);
                boolean isGivenUp = Stage.body(messages.get(0)).startsWith("java-gives-up");
                context.setDelayLevelWhenNextConsume(isGivenUp ? -1 : 0);
                return isGivenUp || isRefused(messages.get(0)) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Map<String, Object> ready = new LinkedHashMap<>();
        ready.put("event", "ready");
        ready.put("client", consumer.getDefaultMQPushConsumerImpl().getmQClientFactory()
                .getClientId());
        print(ready);
        while (System.in.read() >= 0) {
            // Only its end counts.
        }
        consumer.shutdown();
        // The client leaves threads behind that are not daemons.
        System.exit(0);
    }

    private static boolean isRefused(MessageExt message) {
        return Stage.body(message).startsWith("java-fails") && message.getReconsumeTimes() == 0;
    }

    private static void tell(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", "received");
        line.put("body", Stage.body(message));
        line.put("topic", message.getTopic());
        line.put("queue", message.getQueueId());
        line.put("offset", message.getQueueOffset());
        line.put("times", message.getReconsumeTimes());
        print(line);
    }

    private static synchronized void print(Map<String, Object> line) {
        System.out.println(Json.write(line));
        System.out.flush();
    }
}

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios of failed consumption: retries, their properties and delays, and dead letters. */
final class CompatRetry {
    private CompatRetry() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("dead", CompatRetry::dead);
        all.put("orderlydead", CompatRetry::orderlyDead);
        all.put("retry", CompatRetry::retry);
        all.put("ways", CompatRetry::waysToFail);
        all.put("deadnow", CompatRetry::deadNow);
    }

    private static Message order(String topic, String body) {
        Message message = Stage.message(topic, body);
        message.setTags("TagA");
        message.setKeys("key-1 key-2");
        message.setFlag(9);
        message.putUserProperty("color", "blue");
        return message;
    }

    /** Fails twice, then succeeds: what the listener sees each time, and when. */
    private static void retry(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group("g"));
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::take);
            return messages.get(0).getReconsumeTimes() < 2
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        SendResult sent = stage.producer().send(order(topic, "stubborn"));
        inbox.await(3);
        List<Object> seen = new ArrayList<>();
        boolean isSameId = true;
        boolean isFromFirst = true;
        boolean isBornOnce = true;
        MessageExt first = inbox.all().get(0);
        for (MessageExt message : inbox.all()) {
            seen.add(stage.described(message));
            isSameId &= message.getMsgId().equals(sent.getMsgId());
            isBornOnce &= message.getBornTimestamp() == first.getBornTimestamp()
                    && message.getBornHost().equals(first.getBornHost());
            isFromFirst &= message == first
                    || sent.getOffsetMsgId().equals(message.getProperty("ORIGIN_MESSAGE_ID"));
        }
        stage.fact("seen", seen);
        stage.fact("same msgId", isSameId);
        stage.fact("same birth", isBornOnce);
        stage.fact("origin is the first offset id", isFromFirst);
        stage.measure("first retry", inbox.timeMs(1) - inbox.timeMs(0));
        stage.measure("second retry", inbox.timeMs(2) - inbox.timeMs(1));
    }

    /** An exception, null and RECONSUME_LATER are the same to the client; a chosen level holds. */
    private static void waysToFail(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(stage.group("g"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            inbox.take(message);
            if (message.getReconsumeTimes() > 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            switch (Stage.body(message)) {
                case "raises":
                    throw new IllegalArgumentException("as the scenario wants");
                case "null":
                    return null;
                default:
                    context.setDelayLevelWhenNextConsume(2);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        consumer.start();
        DefaultMQProducer producer = stage.producer();
        for (String body : List.of("raises", "null", "level 2")) {
            producer.send(Stage.message(topic, body));
        }
        inbox.await(6);
        Map<String, List<Integer>> times = new TreeMap<>();
        Map<String, String> delays = new TreeMap<>();
        for (MessageExt message : inbox.all()) {
            times.computeIfAbsent(Stage.body(message), key -> new ArrayList<>())
                    .add(message.getReconsumeTimes());
            if (message.getReconsumeTimes() > 0) {
                delays.put(Stage.body(message), String.valueOf(message.getProperty("DELAY")));
            }
        }
        stage.fact("times", times);
        stage.fact("levels", delays);
    }

    /** Always fails, at most two retries: then it lies in the dead-letter topic. */
    private static void dead(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        String group = stage.group("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::take);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        stage.producer().send(order(topic, "hopeless"));
        inbox.await(3);
        stateDead(stage, group);
        stage.measure("first retry", inbox.timeMs(1) - inbox.timeMs(0));
        List<Integer> times = new ArrayList<>();
        inbox.all().forEach(message -> times.add(message.getReconsumeTimes()));
        stage.fact("times", times);
    }

    private static void stateDead(Stage stage, String group) throws Exception {
        String graveyard = "%DLQ%" + group;
        stage.await(() -> stage.hasRoute(graveyard));
        MessageExt message = stage.stored(stage.queue(graveyard, 0), 1).get(0);
        stage.fact("dead letter", stage.described(message));
        var data = stage.admin.examineTopicRouteInfo(graveyard).getQueueDatas().get(0);
        stage.fact("its topic", List.of(data.getReadQueueNums(), data.getWriteQueueNums(),
                data.getPerm()));
    }

    private static void deadNow(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        String group = stage.group("g");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::take);
            context.setDelayLevelWhenNextConsume(-1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        stage.producer().send(order(topic, "given up"));
        inbox.await(1);
        stateDead(stage, group);
        stage.fact("times", inbox.count());
    }

    /** An orderly listener that gives up: the queue goes on behind the message. */
    private static void orderlyDead(Stage stage) throws Exception {
        String topic = stage.topic("t", 1);
        String group = stage.group("g");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = stage.idleConsumer(group);
        consumer.setMaxReconsumeTimes(1);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            seen.add(Stage.body(message) + " " + message.getReconsumeTimes());
            if (Stage.body(message).equals("hopeless")) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            inbox.take(message);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = stage.producer();
        producer.send(order(topic, "hopeless"), stage.queue(topic, 0));
        producer.send(order(topic, "next"), stage.queue(topic, 0));
        inbox.await(1);
        stateDead(stage, group);
        stage.fact("seen", seen);
    }
}

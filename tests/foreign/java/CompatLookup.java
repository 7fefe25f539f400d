import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenario of queries: by key, by unique key, by message id. */
final class CompatLookup {
    private CompatLookup() {
    }

    static void addTo(Map<String, Compat.Scenario> all) {
        all.put("query", CompatLookup::query);
    }

    private static List<String> byKey(DefaultMQProducer producer, String topic, String key)
            throws Exception {
        List<String> bodies = new ArrayList<>();
        QueryResult found = producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
        for (MessageExt message : found.getMessageList()) {
            bodies.add(Stage.body(message));
        }
        bodies.sort(null);
        return bodies;
    }

    private static void query(Stage stage) throws Exception {
        String topic = stage.topic("t", 2);
        String other = stage.topic("other", 1);
        DefaultMQProducer producer = stage.producer();
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            Message message = Stage.message(topic, "m-" + i);
            message.setKeys("key-" + i + " shared-" + i % 2);
            sent.add(producer.send(message, stage.queue(topic, i % 2)));
        }
        Message same = Stage.message(other, "of another topic");
        same.setKeys("shared-0");
        producer.send(same);
        // The original fills its index a moment after the answer.
        stage.await(() -> Stage.outcome(() -> byKey(producer, other, "shared-0")).equals("ok"));
        stage.fact("one", byKey(producer, topic, "key-3"));
        stage.fact("shared", byKey(producer, topic, "shared-0"));
        stage.fact("no such key",
                Stage.outcome(() -> producer.queryMessage(topic, "none", 32, 0, Long.MAX_VALUE)));
        stage.fact("before its time",
                Stage.outcome(() -> producer.queryMessage(topic, "key-3", 32, 1, 2)));
        stage.fact("at most two", producer.queryMessage(topic, "shared-0", 2, 0, Long.MAX_VALUE)
                .getMessageList().size());
        SendResult fourth = sent.get(4);
        stage.fact("by unique key",
                Stage.body(producer.viewMessage(topic, fourth.getMsgId())));
        MessageExt byId = producer.viewMessage(topic, fourth.getOffsetMsgId());
        stage.fact("by id", stage.described(byId));
        stage.fact("place", List.of(byId.getQueueId(), byId.getQueueOffset()));
        String id = fourth.getOffsetMsgId();
        String beyond = id.substring(0, 16) + "00000FFFFFFFFFFF";
        stage.fact("no such id",
                Stage.outcome(() -> stage.admin.viewMessage(topic, beyond)));
    }
}

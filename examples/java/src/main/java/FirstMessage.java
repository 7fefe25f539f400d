import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends three messages and receives them again, with RocketMQ's own client. */
public class FirstMessage {
    public static void main(String[] args) throws Exception {
        String namesrv = args.length > 0 ? args[0] : "127.0.0.1:9876";

        DefaultMQProducer producer = new DefaultMQProducer("first_producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        for (int i = 1; i <= 3; i++) {
            Message message = new Message("FirstTopic", "hello", ("Hello OrbitMQ " + i).getBytes("UTF-8"));
            System.out.println("sent " + producer.send(message).getSendStatus());
        }

        CountDownLatch received = new CountDownLatch(3);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("first_consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("FirstTopic", "hello");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                System.out.println("received " + new String(message.getBody()));
                received.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = received.await(60, TimeUnit.SECONDS);

        consumer.shutdown();
        producer.shutdown();
        System.exit(all ? 0 : 1);
    }
}

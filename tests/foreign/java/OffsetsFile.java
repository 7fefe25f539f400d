import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The original's own reading and writing of a broadcasting consumer's offsets.
 * Arguments: folder, client ip, group, topic, "write" or "read", count of queues. Queue n has offset
 * 100 + n when it is written; what is read is printed.
 */
final class OffsetsFile {
    private OffsetsFile() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", args[0]);
        ClientConfig config = new ClientConfig();
        config.setClientIP(args[1]);
        LocalFileOffsetStore store = new LocalFileOffsetStore(
            MQClientManager.getInstance().getOrCreateMQClientInstance(config), args[2]);
        store.load();
        Set<MessageQueue> queues = new HashSet<>();
        for (int id = 0; id < Integer.parseInt(args[5]); id++) {
            queues.add(new MessageQueue(args[3], "broker-a", id));
        }
        if (args[4].equals("write")) {
            for (MessageQueue queue : queues) {
                store.updateOffset(queue, 100 + queue.getQueueId(), false);
            }
            store.persistAll(queues);
        }
        for (MessageQueue queue : queues) {
            long offset = store.readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            Probe.print(Probe.line("offset", "queue", queue.getQueueId(), "offset", offset));
        }
        System.exit(0);
    }
}

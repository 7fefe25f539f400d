import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * How the original's strategies divide queues. A line of the input: strategy, topic, queues
 * (broker:id with commas) and clients (with commas), separated by tabs. For each line one JSON line
 * with the share of every client, as places in the list of queues.
 */
final class Shares {
    private Shares() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            String[] parts = text.split("\t");
            Probe.print(shares(strategy(parts[0]), parts[1], parts[2], parts[3]));
        }
    }

    private static Probe.Line shares(
            AllocateMessageQueueStrategy strategy, String topic, String queueList, String clients) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String queue : queueList.split(",")) {
            int colon = queue.lastIndexOf(':');
            int id = Integer.parseInt(queue.substring(colon + 1));
            queues.add(new MessageQueue(topic, queue.substring(0, colon), id));
        }
        List<String> ids = Arrays.asList(clients.split(","));
        List<Object> shares = new ArrayList<>();
        for (String id : ids) {
            List<Object> share = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("group", id, queues, ids)) {
                share.add(queues.indexOf(queue));
            }
            shares.add(share);
        }
        return Probe.line("shares", "strategy", strategy.getName(), "shares", shares);
    }

    private static AllocateMessageQueueStrategy strategy(String word) {
        String[] parts = word.split("=");
        switch (parts[0]) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "hash":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(parts[1]));
            case "rooms":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList(parts[1].split(";"))));
                return rooms;
            case "nearby":
                return new AllocateMachineRoomNearby(strategy(parts[1]), new FirstPart());
            default:
                throw new IllegalArgumentException(word);
        }
    }

    /** The room is what stands before the first "@". */
    private static final class FirstPart implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[0];
        }
    }
}

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The route of a topic as the original client reads it. */
final class Route {
    private Route() {
    }

    static int print(String namesrv, String topic) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("route-" + System.nanoTime());
        admin.start();
        try {
            // The classes of the route moved to another package in 5.x, so none is named here.
            var route = admin.examineTopicRouteInfo(topic);
            List<Object> queues = new ArrayList<>();
            for (var queue : route.getQueueDatas()) {
                Probe.Line line = Probe.line("queue", "brokerName", queue.getBrokerName());
                line.put("read", queue.getReadQueueNums());
                line.put("write", queue.getWriteQueueNums());
                line.put("perm", queue.getPerm());
                queues.add(line);
            }
            List<Object> brokers = new ArrayList<>();
            for (var broker : route.getBrokerDatas()) {
                Probe.Line line = Probe.line("broker", "brokerName", broker.getBrokerName());
                line.put("cluster", broker.getCluster());
                line.put("addresses", broker.getBrokerAddrs());
                brokers.add(line);
            }
            Probe.Line line = Probe.line("route", "topic", topic, "queues", queues);
            line.put("brokers", brokers);
            line.put("orderTopicConf", route.getOrderTopicConf());
            Probe.print(line);
            return queues.size();
        } finally {
            admin.shutdown();
        }
    }
}

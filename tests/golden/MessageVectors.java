// Writes one JSON object a line: what the Java classes of Apache RocketMQ 5.5.0 make of given messages.
// Run with the jars of 5.5.0 on the class path: java -cp 'lib/*' MessageVectors.java
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

public class MessageVectors {
    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static InetSocketAddress host(String ip, int port) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(ip), port);
    }

    static void record(String born, String store, String topic) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setVersion(topic.length() > 127
            ? MessageVersion.MESSAGE_VERSION_V2 : MessageVersion.MESSAGE_VERSION_V1);
        message.setBody("a body".getBytes(StandardCharsets.UTF_8));
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        message.setQueueId(3);
        message.setFlag(7);
        message.setBornTimestamp(1_794_770_315_227L);
        message.setStoreTimestamp(1_794_770_315_418L);
        message.setReconsumeTimes(2);
        message.setPreparedTransactionOffset(4_000_000_000L);
        message.setBornHost(host(born, 59162));
        message.setStoreHost(host(store, 10911));
        if (born.contains(":")) {
            message.setBornHostV6Flag();
        }
        if (store.contains(":")) {
            message.setStoreHostAddressV6Flag();
        }
        message.setPropertiesString("TAGS\u0001TagA\u0002");
        // The encoder of the broker's store. It leaves both offsets 0: the append sets them.
        MessageExtEncoder encoder = new MessageExtEncoder(new MessageStoreConfig());
        encoder.encode(message);
        ByteBuffer buffer = encoder.getEncoderBuffer();
        byte[] encoded = new byte[buffer.getInt(0)];
        buffer.get(0, encoded);
        String id = MessageDecoder.createMessageId(host(store, 10911), 6_000_000_000L);
        System.out.printf(
            "{\"kind\": \"record\", \"born_ip\": \"%s\", \"store_ip\": \"%s\", \"topic\": \"%s\","
                + " \"offset_id\": \"%s\", \"record\": \"%s\"}%n",
            born, store, topic, id, hex(encoded));
    }

    static void compressed(CompressionType type) throws Exception {
        byte[] plain = "orbit ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        byte[] packed = CompressorFactory.getCompressor(type).compress(plain, 5);
        System.out.printf("{\"kind\": \"compressed\", \"bits\": %d, \"body\": \"%s\"}%n",
            type.getCompressionFlag(), hex(packed));
    }

    static void batch() {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message message = new Message("TopicA", ("body " + i).getBytes(StandardCharsets.UTF_8));
            message.setFlag(i);
            message.putUserProperty("n", "\u6807" + i);
            messages.add(message);
        }
        System.out.printf("{\"kind\": \"batch\", \"body\": \"%s\"}%n",
            hex(MessageDecoder.encodeMessages(messages)));
    }

    static void hash(String text) {
        System.out.printf("{\"kind\": \"hash\", \"utf16\": \"%s\", \"hash\": %d}%n",
            hex(text.getBytes(StandardCharsets.UTF_16BE)), text.hashCode());
    }

    public static void main(String[] arguments) throws Exception {
        String longTopic = "%RETRY%" + "g".repeat(100) + "_" + "t".repeat(100);
        for (String born : new String[] {"127.0.0.1", "2001:db8::1"}) {
            for (String store : new String[] {"10.1.2.3", "fd00::2"}) {
                record(born, store, "TopicA");
                record(born, store, longTopic);
            }
        }
        for (CompressionType type : CompressionType.values()) {
            compressed(type);
        }
        batch();
        for (String text : new String[] {"", "TagA", "Aa", "BB", "\u6807\u7b7e", "\ud83d\ude00",
            "polygenelubricants", "\u20acuro \ud83d\ude00 mixed", "TopicA#KEY0", "x".repeat(1000)}) {
            hash(text);
        }
    }
}

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What programs do with the original Java client, many small scenarios in one JVM.
 *
 * In: NAMESRV BROKER PREFIX SCENARIO... The scenarios run side by side, since most of them wait
 * most of the time; each uses topics and groups of its own, whose names begin with PREFIX. Out: one
 * JSON object a line. "fact" is an outcome that is the same on every broker that behaves the same
 * (no times, ids or addresses in it), "measure" a number that differs from run to run, "done" a
 * scenario's end, "error" the exception that ended one.
 */
public final class Compat {
    private static final int AT_ONCE_MAX = 10;

    /** A scenario: it makes its own topics and clients through the stage and states facts. */
    interface Scenario {
        void play(Stage stage) throws Exception;
    }

    private Compat() {
    }

    private static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        CompatReset.addTo(all);
        CompatRebalance.addTo(all);
        CompatRetry.addTo(all);
        CompatPush.addTo(all);
        CompatSend.addTo(all);
        CompatPull.addTo(all);
        CompatLite.addTo(all);
        CompatLookup.addTo(all);
        CompatNames.addTo(all);
        return all;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> all = scenarios();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args[0]);
        admin.setInstanceName("compat-admin");
        admin.start();
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE_MAX);
        List<Future<?>> plays = new ArrayList<>();
        // In the order of the table, in which those that wait longest come first.
        List<String> wanted = List.of(args).subList(3, args.length);
        for (Map.Entry<String, Scenario> entry : all.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(entry.getKey())) {
                Stage stage = new Stage(args[0], args[1], args[2], entry.getKey(), admin);
                plays.add(pool.submit(() -> play(stage, entry.getValue())));
            }
        }
        for (Future<?> play : plays) {
            play.get();
        }
        System.out.flush();
        // The clients leave threads behind that are not daemons.
        System.exit(0);
    }

    private static void play(Stage stage, Scenario scenario) {
        try {
            scenario.play(stage);
        } catch (Throwable error) {
            stage.error(error);
        } finally {
            stage.close();
        }
        stage.done();
    }
}

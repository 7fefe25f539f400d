import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The official mqadmin, several commands in one JVM.
 *
 * In: on standard input one command a line, its arguments separated by tabs. Out: for each one JSON
 * object on a line, with "out" and "err": what the tool printed. The tool itself is unchanged: its
 * main method is called with the arguments, as the start script of the distribution does.
 */
public final class AdminScript {
    private AdminScript() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        BufferedReader in = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = in.readLine(); command != null; command = in.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            try {
                MQAdminStartup.main(command.split("\t"));
            } finally {
                System.out.flush();
                System.err.flush();
                System.setOut(realOut);
                System.setErr(realErr);
            }
            Probe.Line line = Probe.line("admin", "command", command);
            line.put("out", out.toString("UTF-8"));
            line.put("err", err.toString("UTF-8"));
            Probe.print(line);
        }
        System.out.flush();
        System.exit(0);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the original's own SQL92 filter makes of expressions.
 *
 * In, one line each: the expression, then names and values of properties in turn, all in base64 of
 * UTF-8, separated by tabs. Out, one JSON object a line: "error" (why it does not compile), "raised"
 * (which exception its evaluation ends with), or "value" (what it gives, by its text).
 */
public final class SqlFilter {
    private SqlFilter() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.append(Json.write(judge(line.split("\t", -1)))).append('\n');
        }
        System.out.print(out);
    }

    private static Map<String, Object> judge(String[] parts) {
        Map<String, Object> result = new LinkedHashMap<>();
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(parts[0]));
        } catch (Throwable error) {
            result.put("error", String.valueOf(error.getMessage()));
            return result;
        }
        Map<String, String> properties = new HashMap<>();
        for (int i = 1; i + 1 < parts.length; i += 2) {
            properties.put(text(parts[i]), text(parts[i + 1]));
        }
        try {
            Object value = expression.evaluate(new Properties(properties));
            result.put("value", value == null ? null : value.toString());
            result.put("kind", value == null ? null : value.getClass().getSimpleName());
        } catch (Throwable error) {
            result.put("raised", error.getClass().getSimpleName());
        }
        return result;
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, String> values;

        Properties(Map<String, String> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(values);
        }
    }
}

import java.util.Iterator;
import java.util.Map;

/** Values to JSON text: maps, iterables, numbers, booleans, null; anything else by its text. */
final class Json {
    private Json() {
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            Iterator<? extends Map.Entry<?, ?>> entries = ((Map<?, ?>) value).entrySet().iterator();
            out.append('{');
            while (entries.hasNext()) {
                Map.Entry<?, ?> entry = entries.next();
                quote(out, String.valueOf(entry.getKey()));
                out.append(':');
                append(out, entry.getValue());
                out.append(entries.hasNext() ? "," : "");
            }
            out.append('}');
        } else if (value instanceof Iterable) {
            Iterator<?> items = ((Iterable<?>) value).iterator();
            out.append('[');
            while (items.hasNext()) {
                append(out, items.next());
                out.append(items.hasNext() ? "," : "");
            }
            out.append(']');
        } else {
            quote(out, value.toString());
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                // Plain ASCII, so that the reader need not know this JVM's encoding.
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}

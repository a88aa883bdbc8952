import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Kafka's command-line tools, one after the other in one JVM. A line of the input is a call: the file for what the tool prints, its class and
 * its arguments, with tabs between. A line of the output that begins with "ended" has the exit code of a call; others are log.
 */
public class Tools {
    private static final class Ended extends Error {}

    /** Code of the call's first exit, null without one: a tool may catch what ends it here, and exit once more. */
    private static Integer exited;

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure end =
                (code, message) -> {
                    exited = exited == null ? code : exited;
                    throw new Ended();
                };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        PrintStream out = System.out;
        LoggerFactory.getLogger(Tools.class); // the log goes to where the output goes now
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = line.split("\t", -1);
            int code;
            try (PrintStream printed = new PrintStream(words[0], StandardCharsets.UTF_8)) {
                System.setOut(printed);
                code = called(words[1], Arrays.copyOfRange(words, 2, words.length));
            } finally {
                System.setOut(out);
            }
            out.println("ended " + code);
        }
    }

    private static int called(String tool, String[] arguments) throws Exception {
        exited = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (exited == null) {
                failed.getCause().printStackTrace();
                exited = 1;
            }
        }
        return exited == null ? 0 : exited;
    }
}

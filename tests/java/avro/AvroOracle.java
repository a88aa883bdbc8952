import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/**
 * Reads values of a writer's schema by a reader's with Avro's own classes; one JSON request and answer a line. A value comes back written
 * by the reader's schema, or as the error with which it could not be read.
 */
public final class AvroOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        Schema writer = new Schema.Parser().parse(request.get("writer").asText());
        Schema reader = new Schema.Parser().parse(request.get("reader").asText());
        ObjectNode answer = JSON.createObjectNode();
        var found = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer);
        answer.put("compatible", found.getType() == SchemaCompatibility.SchemaCompatibilityType.COMPATIBLE);
        ArrayNode values = answer.putArray("values");
        for (JsonNode value : request.get("values")) {
            ObjectNode one = values.addObject();
            try {
                one.put("data", again(writer, reader, Base64.getDecoder().decode(value.asText())));
            } catch (Exception | StackOverflowError error) {
                one.put("error", error.toString());
            }
        }
        return answer;
    }

    private static String again(Schema writer, Schema reader, byte[] value) throws Exception {
        Object read = new GenericDatumReader<Object>(writer, reader)
                .read(null, DecoderFactory.get().binaryDecoder(value, null));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<Object>(reader).write(read, encoder);
        encoder.flush();
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}

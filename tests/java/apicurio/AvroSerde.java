import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/** Writes and reads values with Apicurio's serializer and deserializer for Avro; one JSON request and answer a line. */
public final class AvroSerde {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Map<String, Object> settings = Map.of(
                "apicurio.registry.url", args[0],
                "apicurio.registry.auto-register", true,
                "apicurio.registry.artifact-resolver-strategy",
                "io.apicurio.registry.serde.strategy.TopicIdStrategy");
        AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>();
        serializer.configure(settings, false);
        AvroKafkaDeserializer<GenericRecord> deserializer = new AvroKafkaDeserializer<>();
        deserializer.configure(settings, false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            String topic = request.get("topic").asText();
            ObjectNode answer = JSON.createObjectNode();
            ArrayNode found = answer.putArray("found");
            if (request.has("rows")) {
                Schema schema = new Schema.Parser().parse(request.get("schema").asText());
                for (JsonNode row : request.get("rows")) {
                    GenericRecord made = new GenericDatumReader<GenericRecord>(schema)
                            .read(null, DecoderFactory.get().jsonDecoder(schema, row.asText()));
                    found.add(Base64.getEncoder().encodeToString(serializer.serialize(topic, made)));
                }
            } else {
                for (JsonNode value : request.get("values")) {
                    byte[] data = Base64.getDecoder().decode(value.asText());
                    found.add(text(deserializer.deserialize(topic, data)));
                }
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static String text(GenericRecord record) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        JsonEncoder encoder = EncoderFactory.get().jsonEncoder(record.getSchema(), bytes);
        new GenericDatumWriter<GenericRecord>(record.getSchema()).write(record, encoder);
        encoder.flush();
        return bytes.toString(StandardCharsets.UTF_8);
    }
}

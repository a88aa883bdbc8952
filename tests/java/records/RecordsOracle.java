package org.apache.kafka.clients.consumer.internals; // where Kafka's own reader of fetched partitions is visible

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.LogContext;

/** Writes, compacts and reads record batches with Kafka's own classes; one JSON request and answer a line. */
public final class RecordsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                switch (request.get("op").asText()) {
                    case "write" -> answer.put("data", base64(write(request.get("batches"))));
                    case "compact" -> answer.put("data", base64(compact(request)));
                    case "read" -> read(request, answer);
                    default -> throw new IllegalArgumentException(line);
                }
            } catch (Exception e) {
                answer.put("error", e.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ByteBuffer write(JsonNode batches) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(1 << 16);
        for (JsonNode batch : batches) {
            out.write(batch.has("marker") ? marker(batch) : records(batch));
        }
        ByteBuffer written = out.buffer().duplicate();
        written.flip();
        return written;
    }

    private static ByteBuffer marker(JsonNode batch) {
        ControlRecordType type = ControlRecordType.valueOf(batch.get("marker").asText().toUpperCase());
        return MemoryRecords.withEndTransactionMarker(batch.get("base_offset").asLong(), 0L, 3,
            batch.get("producer_id").asLong(), (short) 0, new EndTransactionMarker(type, 0)).buffer();
    }

    private static ByteBuffer records(JsonNode batch) {
        byte magic = (byte) batch.get("magic").asInt();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1 << 12), magic,
            Compression.of(CompressionType.forName(batch.get("codec").asText())).build(),
            magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.forName(batch.get("timestamp_type").asText()),
            batch.get("base_offset").asLong(), batch.get("append_time").asLong(),
            batch.get("producer_id").asLong(), (short) batch.get("producer_epoch").asInt(),
            batch.get("base_sequence").asInt(), batch.get("transactional").asBoolean(), false,
            batch.get("leader_epoch").asInt(), Integer.MAX_VALUE);
        for (JsonNode record : batch.get("records")) {
            builder.appendWithOffset(record.get("offset").asLong(),
                magic == 0 ? RecordBatch.NO_TIMESTAMP : record.get("timestamp").asLong(),
                bytes(record.get("key")), bytes(record.get("value")), headers(record.get("headers")));
        }
        return builder.build().buffer();
    }

    private static ByteBuffer compact(JsonNode request) {
        Set<Long> kept = new HashSet<>();
        request.get("keep").forEach(offset -> kept.add(offset.asLong()));
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(request.get("data"))));
        records.filterTo(new MemoryRecords.RecordFilter(0, 0) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(batch.magic() < RecordBatch.MAGIC_VALUE_V2
                    ? MemoryRecords.RecordFilter.BatchRetention.DELETE_EMPTY
                    : MemoryRecords.RecordFilter.BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return kept.contains(record.offset());
            }
        }, out, BufferSupplier.NO_CACHING);
        out.flip();
        return out;
    }

    private static void read(JsonNode request, ObjectNode answer) {
        FetchResponseData.PartitionData fetched = new FetchResponseData.PartitionData()
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(request.get("data")))));
        List<FetchResponseData.AbortedTransaction> aborted = new ArrayList<>();
        for (JsonNode entry : request.get("aborted")) {
            aborted.add(new FetchResponseData.AbortedTransaction()
                .setProducerId(entry.get(0).asLong()).setFirstOffset(entry.get(1).asLong()));
        }
        fetched.setAbortedTransactions(aborted);
        Metrics metrics = new Metrics();
        LogContext log = new LogContext();
        CompletedFetch fetch = new CompletedFetch(log.logger(RecordsOracle.class),
            new SubscriptionState(log, AutoOffsetResetStrategy.EARLIEST), BufferSupplier.NO_CACHING, PARTITION, fetched,
            new FetchMetricsAggregator(new FetchMetricsManager(metrics, new FetchMetricsRegistry()), Set.of(PARTITION)),
            request.get("fetch_offset").asLong());
        IsolationLevel level = IsolationLevel.valueOf(request.get("isolation_level").asText().toUpperCase());
        FetchConfig config = new FetchConfig(1, 1, 1, 1, 1, true, "", level);
        Deserializers<byte[], byte[]> plain =
            new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer(), metrics);
        ArrayNode rows = answer.putArray("records");
        try {
            List<ConsumerRecord<byte[], byte[]>> some = fetch.fetchRecords(config, plain, 10);
            for (; !some.isEmpty(); some = fetch.fetchRecords(config, plain, 10)) {
                some.forEach(record -> row(rows.addObject(), record));
            }
        } catch (RuntimeException | OutOfMemoryError e) {
            answer.put("failed", e.toString());
        }
        answer.put("next_offset", fetch.nextFetchOffset());
        answer.put("leader_epoch", fetch.lastEpoch().orElse(-1));
        metrics.close();
    }

    private static void row(ObjectNode row, ConsumerRecord<byte[], byte[]> record) {
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("timestampType", record.timestampType().id);
        row.put("key", base64(record.key()));
        row.put("value", base64(record.value()));
        ArrayNode headers = row.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(header.value()));
        }
    }

    private static Header[] headers(JsonNode pairs) {
        Header[] headers = new Header[pairs.size()];
        for (int i = 0; i < headers.length; i++) {
            byte[] key = bytes(pairs.get(i).get(0));
            byte[] value = bytes(pairs.get(i).get(1));
            headers[i] = new RecordHeader(ByteBuffer.wrap(key), value == null ? null : ByteBuffer.wrap(value));
        }
        return headers;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String base64(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static String base64(ByteBuffer data) {
        byte[] copy = new byte[data.remaining()];
        data.duplicate().get(copy);
        return base64(copy);
    }

    private RecordsOracle() { }
}

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every option of Kafka's own clients: client, name, default, with tabs between. */
class Options {
    public static void main(String[] arguments) {
        Map.of("consumer", ConsumerConfig.configDef(), "producer", ProducerConfig.configDef(), "admin", AdminClientConfig.configDef())
            .forEach((client, options) -> options.configKeys().forEach((name, key) ->
                System.out.println(client + "\t" + name + "\t" + written(key.defaultValue))));
    }

    private static String written(Object value) {
        if (value == null || value == ConfigDef.NO_DEFAULT_VALUE) {
            return "";
        }
        if (value instanceof List<?> list) {
            return String.join(",", list.stream().map(Options::written).toList());
        }
        return value instanceof Class<?> cls ? cls.getName() : value.toString();
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Answers on stdout what Kafka's own assignors do with the groups on stdin, a line for a line; fields are
 * separated by tabs, "-" is an absent one.
 *
 * <pre>
 * topic    NAME COUNT RACKS                                 racks of partition 0,1,…: "a|b,c" or "-"
 * member   ID INSTANCE RACK GENERATION TOPICS OWNED USERDATA  "t,u", "t:0,t:1", hex
 * assign   ASSIGNOR                -> ID t:0,t:1 TAB ID …   and forgets topics and members
 * userdata ASSIGNOR GENERATION OWNED -> hex
 * </pre>
 */
public class Oracle {
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Node> nodes = new HashMap<>();
    private final Map<String, Subscription> members = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Oracle oracle = new Oracle();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer = oracle.answer(line.split("\t"));
            if (answer != null) {
                out.println(answer);
                out.flush();
            }
        }
    }

    private String answer(String[] words) {
        switch (words[0]) {
            case "topic":
                addTopic(words[1], Integer.parseInt(words[2]), list(words[3]));
                return null;
            case "member":
                addMember(words);
                return null;
            case "assign":
                try {
                    return assign(assignor(words[1]));
                } catch (RuntimeException | StackOverflowError e) {
                    return "!" + e;
                } finally {
                    partitions.clear();
                    members.clear();
                }
            case "userdata":
                return userData(assignor(words[1]), Integer.parseInt(words[2]), owned(words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void addTopic(String name, int count, List<String> racks) {
        for (int i = 0; i < count; i++) {
            Node[] replicas = racks.isEmpty() ? new Node[] {node(null)}
                : Arrays.stream(racks.get(i).split("\\|")).map(this::node).toArray(Node[]::new);
            partitions.add(new PartitionInfo(name, i, replicas[0], replicas, replicas));
        }
    }

    private Node node(String rack) {
        return nodes.computeIfAbsent(String.valueOf(rack), r -> new Node(nodes.size(), "host", 9092, rack));
    }

    private void addMember(String[] words) {
        ByteBuffer data = words[7].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(words[7]));
        Subscription subscription = new Subscription(
            list(words[5]), data, owned(words[6]), Integer.parseInt(words[4]), optional(words[3]));
        subscription.setGroupInstanceId(optional(words[2]));
        members.put(words[1], subscription);
    }

    private String assign(ConsumerPartitionAssignor assignor) {
        Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
        Map<String, Assignment> result = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        return result.entrySet().stream()
            .map(e -> e.getKey() + " " + e.getValue().partitions().stream()
                .map(tp -> tp.topic() + ":" + tp.partition()).collect(Collectors.joining(",")))
            .collect(Collectors.joining("\t"));
    }

    private static String userData(ConsumerPartitionAssignor assignor, int generation, List<TopicPartition> owned) {
        assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(Set.of());
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static List<String> list(String word) {
        return word.equals("-") ? Collections.emptyList() : Arrays.asList(word.split(","));
    }

    private static List<TopicPartition> owned(String word) {
        return list(word).stream().map(item -> {
            int colon = item.lastIndexOf(':');
            return new TopicPartition(item.substring(0, colon), Integer.parseInt(item.substring(colon + 1)));
        }).collect(Collectors.toList());
    }
}

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Decodes messages with Kafka's generated classes and encodes them again.
 *
 * With the argument "errors": prints Kafka's error codes, one a line. Else, over stdin and stdout, until stdin ends:
 * question = int32 size, then int8 kind, int16 api key, int16 version, body;
 * answer   = int32 size, then int8 0 and the body encoded anew, or int8 1 and the error's text.
 */
public class ProtocolOracle {

    public static void main(String[] args) throws IOException {
        if (args.length > 0 && args[0].equals("errors")) {
            printErrors();
        } else {
            serve(new DataInputStream(System.in), new DataOutputStream(System.out));
        }
    }

    private static void printErrors() {
        for (Errors error : Errors.values()) {
            if (error != Errors.NONE) {
                System.out.println(error.code() + " " + error.name()
                    + " " + (error.exception() instanceof RetriableException)
                    + " " + (error.exception() instanceof InvalidMetadataException));
            }
        }
    }

    private static void serve(DataInputStream in, DataOutputStream out) throws IOException {
        while (true) {
            byte[] question;
            try {
                question = in.readNBytes(in.readInt());
            } catch (EOFException end) {
                return;
            }
            byte status = 0;
            byte[] answer;
            try {
                answer = roundTrip(ByteBuffer.wrap(question));
            } catch (Exception error) {
                status = 1;
                answer = error.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeInt(answer.length + 1);
            out.writeByte(status);
            out.write(answer);
            out.flush();
        }
    }

    private static byte[] roundTrip(ByteBuffer question) {
        Message message = newMessage(question.get(), question.getShort());
        short version = question.getShort();
        message.read(new ByteBufferAccessor(question), version);
        if (question.hasRemaining()) {
            throw new IllegalArgumentException(question.remaining() + " bytes left over");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer answer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(answer), cache, version);
        return answer.array();
    }

    private static Message newMessage(byte kind, short apiKey) {
        switch (kind) {
            case 0: return ApiMessageType.fromApiKey(apiKey).newRequest();
            case 1: return ApiMessageType.fromApiKey(apiKey).newResponse();
            case 2: return new RequestHeaderData();
            case 3: return new ResponseHeaderData();
            case 4: return new ConsumerProtocolSubscription();
            case 5: return new ConsumerProtocolAssignment();
            default: throw new IllegalArgumentException("kind " + kind);
        }
    }
}

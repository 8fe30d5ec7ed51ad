import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A stock gRPC client with default options: grpc-java with netty, and the API's own descriptors.
 *
 * <p>Arguments: the file of descriptors, the endpoint ({@code unix:/path} or {@code host:port}), and a run with a file
 * {@code a.txt}. Over TCP also a token, and with TLS the file of who signed; or {@code unix:/path} for a port that is
 * relayed to this socket: then each call names the authority that grpc-java gives to it.
 *
 * <p>Prints how many runs it is shown, what the file says, as often as it was read, and at last what {@code echo streamed}
 * said as a stream. Where netty lacks what an endpoint needs it prints that alone.
 */
public final class GrpcJava {
    // The first call makes the entries of the connection's table of headers, later ones refer to them.
    private static final int READS = 5;

    private final Map<String, Descriptor> messages = new HashMap<>();
    private final Channel channel;
    private final String authority;

    private GrpcJava(Path descriptors, Channel channel, String authority) throws Exception {
        this.channel = channel;
        this.authority = authority;
        Map<String, FileDescriptor> files = new HashMap<>();
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Files.readAllBytes(descriptors)).getFileList()) {
            FileDescriptor[] needed = file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
            FileDescriptor built = FileDescriptor.buildFrom(file, needed);
            files.put(file.getName(), built);
            built.getMessageTypes().forEach(message -> messages.put(message.getFullName(), message));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String endpoint = arguments[1];
        String shown = arguments.length > 3 ? arguments[3] : "";
        String authority = null;
        Metadata headers = new Metadata();
        if (shown.startsWith("unix:")) {
            authority = socket(shown).toString();
        } else if (!shown.isEmpty()) {
            headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + shown);
        }
        if (endpoint.startsWith("unix:") && !Epoll.isAvailable()) {
            System.out.println("no native transport: " + Epoll.unavailabilityCause().getClass().getSimpleName());
            return;
        }
        ManagedChannel opened;
        try {
            opened = open(endpoint, arguments.length > 4 ? new File(arguments[4]) : null);
        } catch (UnsupportedOperationException why) {
            System.out.println("no TLS: " + why.getMessage());
            return;
        }
        Channel channel = ClientInterceptors.intercept(opened, MetadataUtils.newAttachHeadersInterceptor(headers));
        new GrpcJava(Path.of(arguments[0]), channel, authority).listsReadsAndStreams(arguments[2]);
        opened.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
        // An event loop that was given to netty goes on.
        System.exit(0);
    }

    private static DomainSocketAddress socket(String endpoint) {
        return new DomainSocketAddress(endpoint.substring("unix:".length()));
    }

    private static ManagedChannel open(String endpoint, File authority) throws Exception {
        if (endpoint.startsWith("unix:")) {
            return NettyChannelBuilder.forAddress(socket(endpoint))
                    .eventLoopGroup(new EpollEventLoopGroup(1))
                    .channelType(EpollDomainSocketChannel.class)
                    .usePlaintext()
                    .build();
        }
        if (authority == null) {
            return ManagedChannelBuilder.forTarget(endpoint).usePlaintext().build();
        }
        return Grpc.newChannelBuilder(endpoint, TlsChannelCredentials.newBuilder().trustManager(authority).build()).build();
    }

    private void listsReadsAndStreams(String run) {
        var list = method("RunService/ListRuns", "ListRunsRequest", "ListRunsResponse", MethodDescriptor.MethodType.UNARY);
        DynamicMessage listed = ClientCalls.blockingUnaryCall(channel, list, options(), message("ListRunsRequest").build());
        System.out.println(listed.getRepeatedFieldCount(field(listed, "runs")));

        var call = method("ToolService/Call", "CallRequest", "CallResponse", MethodDescriptor.MethodType.UNARY);
        DynamicMessage read = request(run, "read", set(message("ReadRequest"), "path", "a.txt"));
        for (int number = 0; number < READS; number++) {
            DynamicMessage answer = ClientCalls.blockingUnaryCall(channel, call, options(), read);
            System.out.println(get(get(get(answer, "result"), "read"), "content").toString().strip());
        }

        var stream = method(
                "ToolService/CallStream", "CallRequest", "CallStreamResponse", MethodDescriptor.MethodType.SERVER_STREAMING);
        DynamicMessage.Builder echo = set(message("ExecRequest"), "command", "echo");
        echo.addRepeatedField(echo.getDescriptorForType().findFieldByName("args"), "streamed");
        StringBuilder said = new StringBuilder();
        ClientCalls.blockingServerStreamingCall(channel, stream, options(), request(run, "exec", echo))
                .forEachRemaining(event -> {
                    if (event.hasField(field(event, "output"))) {
                        said.append(((ByteString) get(get(event, "output"), "data")).toStringUtf8());
                    }
                });
        System.out.println(said.toString().strip());
    }

    private CallOptions options() {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(30, TimeUnit.SECONDS);
        return authority == null ? options : options.withAuthority(authority);
    }

    private DynamicMessage request(String run, String operation, DynamicMessage.Builder value) {
        DynamicMessage.Builder kind = set(message("Operation"), operation, value.build());
        return set(set(message("CallRequest"), "run_id", run), "operation", kind.build()).build();
    }

    private MethodDescriptor<DynamicMessage, DynamicMessage> method(
            String name, String request, String response, MethodDescriptor.MethodType type) {
        return MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
                .setFullMethodName("cofferdam.v1." + name)
                .setType(type)
                .setRequestMarshaller(ProtoUtils.marshaller(message(request).build()))
                .setResponseMarshaller(ProtoUtils.marshaller(message(response).build()))
                .build();
    }

    private DynamicMessage.Builder message(String name) {
        return DynamicMessage.newBuilder(messages.get("cofferdam.v1." + name));
    }

    private static DynamicMessage.Builder set(DynamicMessage.Builder message, String name, Object value) {
        return message.setField(message.getDescriptorForType().findFieldByName(name), value);
    }

    private static FieldDescriptor field(DynamicMessage message, String name) {
        return message.getDescriptorForType().findFieldByName(name);
    }

    private static Object get(Object message, String name) {
        return ((DynamicMessage) message).getField(field((DynamicMessage) message, name));
    }
}

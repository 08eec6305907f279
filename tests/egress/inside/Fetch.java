// Fetches one URL as a program on a JVM does, which knows of no proxy variables; prints what it is told.
public final class Fetch {
    public static void main(String[] arguments) throws Exception {
        var connection = java.net.URI.create(arguments[0]).toURL().openConnection();
        connection.setConnectTimeout(8000);
        connection.setReadTimeout(8000);
        try (var stream = connection.getInputStream()) {
            System.out.write(stream.readAllBytes());
            System.out.flush();
        }
    }
}

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

/** Threads, files and random numbers: what any JVM program needs first. */
public class Hello {
    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        int answer = threads.submit(() -> 42).get();
        threads.shutdown();
        int sum = IntStream.range(0, 1000).parallel().map(n -> 1).sum();
        Path file = Files.createTempFile("hello", null);
        Files.writeString(file, "x");
        Files.delete(file);
        new SecureRandom().nextInt();
        System.out.println(answer + " " + sum);
    }
}

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.apache.maven.plugin.AbstractMojo;
import org.apache.maven.plugin.MojoExecutionException;

/** What the plugins of Maven do that a project without dependencies needs: compile its classes and pack them. */
public class Step extends AbstractMojo {
    private String goal;
    private File sources;
    private File classes;
    private File archive;

    @Override
    public void execute() throws MojoExecutionException {
        try {
            if (goal.equals("compile")) {
                compile();
            } else if (goal.equals("jar")) {
                pack();
            }
        } catch (IOException error) {
            throw new MojoExecutionException(error.toString(), error);
        }
    }

    private static List<Path> files(File directory) throws IOException {
        if (!directory.isDirectory()) {
            return new ArrayList<>();
        }
        try (Stream<Path> all = Files.walk(directory.toPath())) {
            return all.filter(Files::isRegularFile).sorted().collect(Collectors.toList());
        }
    }

    private void compile() throws IOException, MojoExecutionException {
        List<String> arguments = new ArrayList<>(Arrays.asList("-d", classes.toString()));
        files(sources).forEach(file -> arguments.add(file.toString()));
        Files.createDirectories(classes.toPath());
        if (arguments.size() > 2 && ToolProvider.getSystemJavaCompiler().run(null, null, null, arguments.toArray(new String[0])) != 0) {
            throw new MojoExecutionException("Compilation failure");
        }
    }

    private void pack() throws IOException {
        Files.createDirectories(archive.toPath().getParent());
        try (JarOutputStream jar = new JarOutputStream(Files.newOutputStream(archive.toPath()))) {
            for (Path file : files(classes)) {
                jar.putNextEntry(new JarEntry(classes.toPath().relativize(file).toString()));
                Files.copy(file, jar);
            }
        }
    }
}

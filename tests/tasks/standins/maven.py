"""The repository of Maven: the plugins that a project without dependencies needs, of whatever version Maven asks for.
They are one class of our own, compiled when one is asked for."""

import glob
import hashlib
import os
import re
import shutil
import threading

import packages
from fixtures import call

HERE = os.path.dirname(os.path.abspath(__file__))

# The goals of each plugin, and the phases to which they belong.
PLUGINS = {
    "resources": {"resources": "process-resources", "testResources": "process-test-resources"},
    "compiler": {"compile": "compile", "testCompile": "test-compile"},
    "surefire": {"test": "test"},
    "jar": {"jar": "package"},
}
PARAMETERS = {
    "sources": ("java.io.File", "${basedir}/src/main/java"),
    "classes": ("java.io.File", "${project.build.outputDirectory}"),
    "archive": ("java.io.File", "${project.build.directory}/${project.build.finalName}.jar"),
}
FILE = re.compile(r"/maven2/(\S+)/(\S+)/([\w.-]+)/\2-\3\.(pom|jar)(\.sha1)?")
# Maven gives it to each plugin that does not name it; ours use nothing of it.
UTILITIES = ("org/codehaus/plexus", "plexus-utils")


def start(base):
    from services import Missing

    for program in ["mvn", "javac"]:
        if shutil.which(program) is None:
            raise Missing(f"{program} is missing")
    libraries = glob.glob(os.path.dirname(os.path.realpath(shutil.which("mvn"))) + "/../lib/maven-plugin-api*.jar")
    if not libraries:
        raise Missing("Maven's own libraries are not beside it")
    return Repository(base, libraries[0]).answer


def plugin_xml(name, version):
    mojos = ""
    for goal, phase in PLUGINS[name].items():
        parameters = {"goal": ("java.lang.String", goal)} | PARAMETERS
        described = "".join(
            f"<parameter><name>{key}</name><type>{kind}</type><required>true</required><editable>false</editable></parameter>" for key, (kind, _) in parameters.items()
        )
        values = "".join(f'<{key} implementation="{kind}" default-value="{value}"/>' for key, (kind, value) in parameters.items())
        mojos += (
            f"<mojo><goal>{goal}</goal><phase>{phase}</phase><requiresProject>true</requiresProject><implementation>Step</implementation>"
            "<language>java</language><instantiationStrategy>per-lookup</instantiationStrategy><executionStrategy>once-per-session</executionStrategy>"
            f"<threadSafe>true</threadSafe><parameters>{described}</parameters><configuration>{values}</configuration></mojo>"
        )
    return (
        f"<plugin><name>{name}</name><groupId>org.apache.maven.plugins</groupId><artifactId>maven-{name}-plugin</artifactId><version>{version}</version>"
        f"<goalPrefix>{name}</goalPrefix><isolatedRealm>false</isolatedRealm><inheritedByDefault>true</inheritedByDefault><mojos>{mojos}</mojos><dependencies/></plugin>"
    )


def pom(group, artifact, version):
    group = group.replace("/", ".")
    names = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<project><modelVersion>4.0.0</modelVersion>{names}</project>"


class Repository:
    def __init__(self, base, library):
        self.directory, self.library, self.lock = f"{base}/maven", library, threading.Lock()

    def program(self):
        with self.lock:
            if not os.path.exists(f"{self.directory}/Step.class"):
                call("javac", "--release", "8", "-Xlint:-options", "-cp", self.library, "-d", self.directory, f"{HERE}/Step.java")
        with open(f"{self.directory}/Step.class", "rb") as file:
            return file.read()

    def answer(self, request):
        found = FILE.fullmatch(request.path)
        content = found and self.content(*found.groups()[:4])
        if content is None:
            return 404, {"Content-Type": "text/plain"}, "not found\n"
        if found[5]:
            content = hashlib.sha1(content).hexdigest()
        return 200, {"Content-Type": "application/octet-stream"}, content

    def content(self, group, artifact, version, kind):
        """A file of a plugin, or of what Maven adds to each; none of others."""
        name = artifact.removeprefix("maven-").removesuffix("-plugin")
        is_plugin = group == "org/apache/maven/plugins" and name in PLUGINS
        if not is_plugin and (group, artifact) != UTILITIES:
            return None
        if kind == "pom":
            return pom(group, artifact, version).encode()
        files = {"META-INF/maven/plugin.xml": plugin_xml(name, version), "Step.class": self.program()} if is_plugin else {}
        return packages.zipped(files)

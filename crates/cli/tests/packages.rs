//! Packages of an environment, installed from an index of the test's own. A proxy on loopback stands for the network: it is the
//! index itself, whatever host a connection is for.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use common::{PYTHON, cofferdam, needs, open_directory};

/// Serves `simple/brought/` and a wheel of it, at every host. The link to the wheel is what the first argument says.
const INDEX: &str = r#"
import base64, hashlib, http.server, io, sys, zipfile

def wheel():
    files = {
        "brought.py": b"VALUE = 42\n",
        "brought-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n",
        "brought-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    record = "brought-1.0.dist-info/RECORD"
    files[record] = ("\n".join(lines + [record + ",,"]) + "\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()

WHEEL = wheel()

class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_CONNECT(self):
        print("connect", self.path, flush=True)
        self.send_response(200)
        self.end_headers()
    def do_GET(self):
        path = "/" + self.path.split("://", 1)[-1].split("/", 1)[-1] if "://" in self.path else self.path
        print("get", path, flush=True)
        page = f'<a href="{sys.argv[1]}brought-1.0-py3-none-any.whl">brought-1.0-py3-none-any.whl</a>'.encode()
        known = {"/root/simple/brought/": ("text/html", page)}
        kind, body = known.get(path, ("application/zip", WHEEL) if path.endswith(".whl") else (None, b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
print("port", server.server_port, flush=True)
server.serve_forever()
"#;

/// The packages of most environments here.
const CONFIGURATION: &str = "packages = [\"brought\"]\nindex = \"http://packages.internal:8080/root/simple\"\n";

/// The index, and what it printed.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn new(files: &str) -> Server {
        let mut child =
            Command::new(PYTHON).args(["-c", INDEX, files]).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Evaluates code in the environment `a` of this configuration, with the proxy if there is one.
fn evaluate(home: &std::path::Path, configuration: &str, server: Option<&Server>) -> Output {
    let file = home.join(".config/cofferdam/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("[environments.a]\npreset = \"python\"\n{configuration}")).unwrap();
    let mut command = cofferdam();
    for variable in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(variable);
    }
    if let Some(server) = server {
        command.env("HTTPS_PROXY", format!("http://127.0.0.1:{}", server.port));
    }
    let code = "import brought, importlib.metadata as m; print(brought.VALUE, m.version('brought'))";
    command.env("HOME", home).current_dir(home).args(["eval", "a", code]).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The virtual environment that was installed.
fn venv(home: &std::path::Path) -> std::path::PathBuf {
    let mut installed = std::fs::read_dir(home.join(".cache/cofferdam/packages")).unwrap();
    installed.next().unwrap().unwrap().path().join("tree/venv")
}

/// Another installation of Python, and its interpreter.
fn installation(at: &std::path::Path) -> std::path::PathBuf {
    let real = std::fs::canonicalize(PYTHON).unwrap();
    let name = real.file_name().unwrap().to_str().unwrap();
    let library = at.join("lib").join(name);
    std::fs::create_dir_all(at.join("bin")).unwrap();
    std::fs::create_dir_all(&library).unwrap();
    std::fs::write(library.join("os.py"), "").unwrap();
    std::fs::copy(&real, at.join("bin").join("python3")).unwrap();
    at.join("bin/python3")
}

#[test]
fn packages_come_from_the_index_that_is_named() {
    if !needs("captured network") {
        return;
    }
    let directory = open_directory();
    let home = std::fs::canonicalize(directory.path()).unwrap();
    let server = Server::new("../../files/");
    let (out, err) = texts(&evaluate(&home, CONFIGURATION, Some(&server)));
    assert_eq!(out, "42 1.0\n", "{err}");
    // They are installed: nobody needs the index again.
    drop(server);
    let (out, err) = texts(&evaluate(&home, CONFIGURATION, None));
    assert_eq!((out.as_str(), err.as_str()), ("42 1.0\n", ""));
    // What their code may have made of the interpreter's name shows no other installation.
    let link = venv(&home).join("bin/python3");
    let (was, other) = (std::fs::read_link(&link).unwrap(), installation(&home.join("other")));
    for (leads, shown) in [(&other, ""), (&was, "42 1.0\n")] {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(leads, &link).unwrap();
        let (out, err) = texts(&evaluate(&home, CONFIGURATION, None));
        assert_eq!(out, shown, "{err}");
        assert_eq!(err.contains("could not be installed"), shown.is_empty(), "{err}");
    }
    // Those of another index are others.
    let other = CONFIGURATION.replace("packages.internal", "other.internal");
    let (out, err) = texts(&evaluate(&home, &other, None));
    assert!(out.is_empty() && err.contains("the packages brought could not be installed"), "{err}");
    assert!(err.contains("other.internal"), "{err}");
}

#[test]
fn no_other_host_is_reached_while_packages_are_installed() {
    if !needs("captured network") {
        return;
    }
    let directory = open_directory();
    let home = std::fs::canonicalize(directory.path()).unwrap();
    let server = Server::new("http://files.internal:8080/");
    let (out, err) = texts(&evaluate(&home, CONFIGURATION, Some(&server)));
    assert_eq!(out, "");
    let hint = "only http://packages.internal:8080/root/simple is reached while packages are installed, and files.internal is \
                another host; allow_private = [\"files.internal\"] beside `packages` reaches it as well";
    assert!(err.contains(hint), "{err}");
    // Twin: it is, where the operator names it.
    let besides = format!("{CONFIGURATION}allow_private = [\"files.internal:8080\"]\n");
    let (out, err) = texts(&evaluate(&home, &besides, Some(&server)));
    assert_eq!(out, "42 1.0\n", "{err}");
    // What came from there is not what the index alone gives.
    let (out, _) = texts(&evaluate(&home, CONFIGURATION, None));
    assert_eq!(out, "");
}

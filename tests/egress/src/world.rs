//! A world, that is, a test network of namespaces (`world/world.py`): starts one, runs programs on its host, and
//! returns what its record has.
//!
//! One process per world, spoken to by lines of JSON; requests may overlap. The world ends when the value is dropped.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::suite_directory::{NOBODY, SuiteDirectory, User};

/// Longer than any trial may take.
const PATIENCE_SECONDS: u64 = 60;
/// Where programs are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The result of a finished program, and what the record saw meanwhile.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Exit code, or 128+N for signal N.
    pub code: i64,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Entries of the record: packets that left the host (`out`), packets on its loopback (`lo`), requests (`app`).
    pub seen: Vec<Value>,
}

/// A running world.
#[derive(Debug)]
pub struct World {
    /// Its files: `certs`, `tls`, `www`, `java` and so on.
    pub base: PathBuf,
    child: Child,
    input: Mutex<(ChildStdin, u64)>,
    output: Mutex<(BufReader<ChildStdout>, HashMap<u64, Value>)>,
}

impl World {
    /// Makes the world of a user with this number.
    ///
    /// # Errors
    /// Says what cannot be made.
    pub fn start(suite: &SuiteDirectory, user: User, number: usize) -> Result<World, String> {
        let base = suite.directory(&format!("base-{}-{number}", user.name()), user)?;
        let nobody = NOBODY.to_string();
        let mut words: Vec<&str> = Vec::new();
        if suite.root && user == User::Unprivileged {
            words.extend([
                "setpriv",
                "--reuid",
                &nobody,
                "--regid",
                &nobody,
                "--clear-groups",
                "--inh-caps=-all",
                "--",
            ]);
        }
        words.extend(["unshare", "--net", "--mount"]);
        if user == User::Unprivileged {
            // The same id inside and out, and not 0: a root that maps nobody else would be no user to run a sandbox as.
            words.extend(["--user", "--map-current-user", "--keep-caps"]);
        }
        let script = suite.world.join("world.py");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["/usr/bin/python3", "-B"]).args([&script, &base, &suite.inside]);
        command.env_clear().env("PATH", PATH).env("HOME", &base);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot start a world: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the world has no streams".into());
        };
        let world = World {
            base,
            child,
            input: Mutex::new((input, 0)),
            output: Mutex::new((BufReader::new(output), HashMap::new())),
        };
        let first = line(&mut world.output.lock().unwrap_or_else(PoisonError::into_inner).0)?;
        if first["ready"] == true { Ok(world) } else { Err(format!("the world said {first}")) }
    }

    /// Starts a program on the host of the command; [`World::wait`] has its end.
    ///
    /// # Errors
    /// The world has ended.
    pub fn begin(&self, argv: &[String], variables: &[(&str, &str)], cwd: &Path) -> Result<u64, String> {
        let mut env = json!({"PATH": PATH, "HOME": "/nonexistent", "USER": "somebody", "LANG": "C.UTF-8"});
        for (name, value) in variables {
            env[*name] = json!(value);
        }
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        input.1 += 1;
        let id = input.1;
        let request = json!({"id": id, "argv": argv, "env": env, "cwd": cwd, "timeout": PATIENCE_SECONDS});
        writeln!(input.0, "{request}").map_err(|e| format!("the world has ended: {e}"))?;
        Ok(id)
    }

    /// Waits for the end of what was begun.
    ///
    /// # Errors
    /// It could not be started or hung, or the world has ended.
    pub fn wait(&self, id: u64) -> Result<Ended, String> {
        let reply = loop {
            let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(reply) = output.1.remove(&id) {
                break reply;
            }
            let reply = line(&mut output.0)?;
            let of = reply["id"].as_u64().ok_or_else(|| format!("the world said {reply}"))?;
            output.1.insert(of, reply);
        };
        if let Some(error) = reply["error"].as_str() {
            return Err(error.to_owned());
        }
        let text = |name: &str| reply[name].as_str().unwrap_or_default().to_owned();
        if reply["hung"] == true {
            return Err(format!("hung for {PATIENCE_SECONDS} s:\n{}{}", text("stdout"), text("stderr")));
        }
        let seen = reply["seen"].as_array().cloned().unwrap_or_default();
        Ok(Ended { code: reply["code"].as_i64().unwrap_or(-1), stdout: text("stdout"), stderr: text("stderr"), seen })
    }

    /// [`World::begin`] and [`World::wait`].
    ///
    /// # Errors
    /// As they have.
    pub fn run(&self, argv: &[String], variables: &[(&str, &str)], cwd: &Path) -> Result<Ended, String> {
        let id = self.begin(argv, variables, cwd)?;
        self.wait(id)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Its first process ends with its input, and all others with it.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("cannot end a world: {error}");
        }
    }
}

fn line(output: &mut impl BufRead) -> Result<Value, String> {
    let mut text = String::new();
    output.read_line(&mut text).map_err(|e| format!("cannot hear the world: {e}"))?;
    if text.is_empty() {
        return Err("the world has ended; what it said is above".into());
    }
    serde_json::from_str(&text).map_err(|e| format!("the world said {text:?}: {e}"))
}

//! A registered skill runs in a container as it does in a jail, with everything enforced that it requires.

use std::process::Output;

use cofferdam_test_containers::engine::uid;
use cofferdam_test_containers::image;
use serde_json::{Value, json};

use crate::Test;
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("skills::one_runs_without_best_effort", one_runs),
    ("skills::image_selects_its_backend_and_runs_its_command", an_image_without_a_backend),
    ("skills::scratch_space_is_as_large_as_in_a_jail", scratch_space),
    ("skills::no_process_is_started_where_the_manifest_has_none", no_process),
];

/// A registry with one publisher.
struct Bench<'w> {
    world: &'w World,
    key: String,
    address: String,
}

impl<'w> Bench<'w> {
    fn new(world: &'w World) -> Bench<'w> {
        let key = world.path("publisher.key").to_str().unwrap().to_owned();
        let mut bench = Bench { world, key, address: String::new() };
        bench.address = String::from_utf8(bench.skill(&["keygen", &bench.key]).stdout).unwrap().trim().to_owned();
        bench
    }

    fn skill(&self, arguments: &[&str]) -> Output {
        let mut command = self.world.cofferdam();
        command.arg("skill").arg("--best-effort").arg("--registry").arg(self.world.path("skills"));
        command.arg("--audit-trail").arg(self.world.path("audit")).args(arguments).output().unwrap()
    }

    fn register(&self, name: &str, file: (&str, &str)) {
        self.register_with(name, file, true);
    }

    /// The same with or without leave to start processes.
    fn register_with(&self, name: &str, file: (&str, &str), spawn: bool) {
        let directory = self.world.path(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(file.0), file.1).unwrap();
        let manifest = json!({
            "version": "1",
            "name": name,
            "publisher": { "name": "Example", "address": self.address, "contact": "dev@example.com" },
            "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": false },
            "sandbox": { "memoryMb": 128, "timeoutMs": 60000, "allowSpawn": spawn },
            "files": [],
        });
        std::fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
        let directory = directory.to_str().unwrap();
        for step in [&["sign", "--files", "--key", &self.key, directory][..], &["register", directory]] {
            let done = self.skill(step);
            assert!(done.status.success(), "{step:?}: {done:?}");
        }
    }

    fn run(&self, config: &str, options: &[&str], skill: &[&str]) -> Value {
        let operator = self.world.path("operator.toml");
        std::fs::write(&operator, config).unwrap();
        let start = ["run", "--json", "--config", operator.to_str().unwrap()];
        let ran = self.skill(&[&start[..], options, skill].concat());
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
    }
}

fn an_image_without_a_backend(world: &World) {
    let bench = Bench::new(world);
    bench.register("plain", ("main.sh", "echo main\n"));
    bench.register("bare", ("SKILL.md", "Instructions.\n"));
    let backend = world.runtime.backend;
    let Some(engine) = world.engine() else {
        // Of a tarball a container is made by the first of the runtimes that can; it says no command.
        let config = format!("image = {:?}\n", world.image);
        let ran = bench.run(&format!("{config}command = [\"/bin/sh\", \"main.sh\"]\n"), &[], &["plain"]);
        assert_eq!(ran["stdout"], "main\n", "{ran}");
        assert!(ran["backend"].as_str().unwrap().starts_with("oci"), "{ran}");
        let ran = bench.run(&config, &["--backend", backend], &["bare"]);
        assert!(ran["error"]["message"].as_str().unwrap().contains("$.command: missing"), "{ran}");
        return;
    };
    for (reference, settings) in [
        ("cofferdam-test-command:1", json!({ "Entrypoint": ["/bin/echo", "entry"], "Cmd": ["own"] })),
        ("cofferdam-test-command:2", json!({ "Cmd": ["/bin/echo", "cmd"] })),
        ("cofferdam-test-command:3", json!({})),
    ] {
        let archive = world.path("archive.tar");
        image::archive(&world.root, &archive, reference, &settings).unwrap();
        engine.load(&archive).unwrap();
    }
    let run = |tag: &str, options: &[&str], skill: &[&str]| {
        bench.run(&format!("image = \"cofferdam-test-command:{tag}\"\n"), options, skill)
    };
    for options in [&[][..], &["--backend", backend]] {
        for (tag, skill, expected) in [
            ("1", &["bare"][..], "entry own\n"),
            ("1", &["bare", "--", "given"], "entry given\n"),
            ("2", &["bare", "--", "given"], "cmd given\n"),
            // Control: the command of the skill takes precedence over its image's.
            ("1", &["plain"], "main\n"),
        ] {
            let ran = run(tag, options, skill);
            assert_eq!((&ran["stdout"], &ran["backend"]), (&expected.into(), &backend.into()), "{tag} {skill:?} {ran}");
        }
        let ran = run("3", options, &["bare"]);
        assert!(ran["error"]["message"].as_str().unwrap().contains("nothing says what to run"), "{ran}");
    }
}

fn scratch_space(world: &World) {
    let bench = Bench::new(world);
    bench.register("sizes", ("main.sh", "df -k /tmp | tail -n 1 | { read -r _ size _; echo $size; }\n"));
    for backend in ["jail", world.runtime.backend] {
        let ran = bench.run("", &["--backend", backend], &["sizes"]);
        assert_eq!(ran["stdout"], "65536\n", "{backend}: {ran}");
    }
}

fn no_process(world: &World) {
    let bench = Bench::new(world);
    let script = ("main.sh", "echo before\n/bin/echo child\necho after\n");
    bench.register_with("spawns", script, false);
    bench.register_with("may-spawn", script, true);
    bench.register_with("alone", ("main.sh", "echo before\n"), false);
    for config in ["", &format!("image = {:?}\ncommand = [\"/bin/sh\", \"main.sh\"]\n", world.image)] {
        let run = |name: &str| bench.run(config, &["--backend", world.runtime.backend], &[name]);
        let may = run("may-spawn");
        assert_eq!((&may["stdout"], &may["success"]), (&"before\nchild\nafter\n".into(), &true.into()), "{may:#}");
        let alone = run("alone");
        assert_eq!((&alone["stdout"], &alone["success"]), (&"before\n".into(), &true.into()), "{alone:#}");
        let spawns = run("spawns");
        assert_eq!(spawns["stdout"], "before\n", "{spawns:#}");
        let (ending, evidence) = if world.runtime.backend == "oci:runsc" {
            // gVisor's filter kills at once, and which call it was is not known.
            assert_eq!(spawns["signal"], 31, "{spawns:#}");
            ("signalled", "inferred")
        } else {
            ("violation", "kernel")
        };
        assert_eq!((&spawns["outcome"], &spawns["exit_code"]), (&ending.into(), &Value::Null), "{spawns:#}");
        assert_eq!(spawns["violations"][0]["evidence"], evidence, "{spawns:#}");
    }
}

fn one_runs(world: &World) {
    let skill = |arguments: &[&str]| -> Output {
        let mut command = world.cofferdam();
        command.arg("skill").arg("--registry").arg(world.path("skills"));
        command.arg("--audit-trail").arg(world.path("audit")).args(arguments).output().unwrap()
    };
    let said = |output: &Output| String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    let (key, directory) = (world.path("publisher.key"), world.path("greets"));
    let (key, directory) = (key.to_str().unwrap(), directory.to_str().unwrap());
    let address = String::from_utf8(skill(&["keygen", key]).stdout).unwrap().trim().to_owned();
    std::fs::create_dir(directory).unwrap();
    std::fs::write(world.path("greets/main.sh"), "echo hello \"$1\" from \"$PWD\"\nexit 3\n").unwrap();
    let manifest = json!({
        "version": "1",
        "name": "greets",
        "publisher": { "name": "Example", "address": address, "contact": "dev@example.com" },
        "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": false },
        "sandbox": { "memoryMb": 128, "timeoutMs": 60000, "allowSpawn": true },
        "files": [],
    });
    std::fs::write(world.path("greets/manifest.json"), manifest.to_string()).unwrap();
    for step in [&["sign", "--files", "--key", key, directory][..], &["register", directory]] {
        let done = skill(step);
        assert!(done.status.success(), "{step:?}: {}", said(&done));
    }
    let operator = world.path("operator.toml");
    std::fs::write(&operator, format!("image = {:?}\ncommand = [\"/bin/sh\", \"main.sh\", \"you\"]\n", world.image))
        .unwrap();
    for config in [None, Some(operator.to_str().unwrap())] {
        let granted = config.map_or_else(Vec::new, |path| vec!["--config", path]);
        let run = ["run", "--json", "--backend", world.runtime.backend];
        let ran = skill(&[&run[..], &granted, &["greets", "--", "you"]].concat());
        let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&ran)));
        if uid() != 0 && ran.status.code() == Some(125) {
            // Where limits cannot be enforced, they are the only error.
            assert!(outcome["error"].to_string().contains("limits."), "{outcome}");
            eprintln!("{} refuses: {}", world.runtime.backend, outcome["error"]);
            continue;
        }
        let seen = (ran.status.code(), outcome["stdout"].as_str(), outcome["backend"].as_str());
        assert_eq!(
            seen,
            (Some(3), Some("hello you from /skill\n"), Some(world.runtime.backend)),
            "{config:?} {outcome}"
        );
    }
    if world.runtime.backend != "oci:runsc" {
        return;
    }
    // gVisor has no egress gateway: the hint names what an operator can change, and no option that does not exist.
    std::fs::write(&operator, "env = { ISCL_API_URL = \"http://127.0.0.1:9\" }\n").unwrap();
    let refused = skill(&["run", "--backend", "oci:runsc", "--config", operator.to_str().unwrap(), "greets"]);
    let message = said(&refused);
    assert!(refused.status.code() == Some(125) && message.contains("network."), "{message}");
    let hint = message.split("hint: ").nth(1).unwrap_or_default();
    assert!(
        hint.contains("networkMode") && hint.contains("--backend") && !hint.contains("effort=network"),
        "{message}"
    );
}

//! A registered skill runs in a container as it does in a jail, with all that it requires held.

use std::process::Output;

use cofferdam_test_containers::engine::uid;
use serde_json::{Value, json};

use crate::Test;
use crate::world::World;

pub const TESTS: &[Test] = &[("skills::one_runs_without_best_effort", one_runs)];

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
        let run = ["run", "--json", "--backend", world.maker.backend];
        let ran = skill(&[&run[..], &granted, &["greets", "--", "you"]].concat());
        let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&ran)));
        if uid() != 0 && ran.status.code() == Some(125) {
            // Whose limits cannot be held is told so, and nothing else is the matter.
            assert!(outcome["error"].to_string().contains("limits."), "{outcome}");
            eprintln!("{} refuses: {}", world.maker.backend, outcome["error"]);
            continue;
        }
        let seen = (ran.status.code(), outcome["stdout"].as_str(), outcome["backend"].as_str());
        assert_eq!(seen, (Some(3), Some("hello you from /skill\n"), Some(world.maker.backend)), "{config:?} {outcome}");
    }
    if world.maker.backend != "oci:runsc" {
        return;
    }
    // The way to an API is none of gVisor's: what an operator can change is told, and no option that is not there.
    std::fs::write(&operator, "env = { ISCL_API_URL = \"http://127.0.0.1:9\" }\n").unwrap();
    let refused = skill(&["run", "--backend", "oci:runsc", "--config", operator.to_str().unwrap(), "greets"]);
    let told = said(&refused);
    assert!(refused.status.code() == Some(125) && told.contains("network."), "{told}");
    let hint = told.split("hint: ").nth(1).unwrap_or_default();
    assert!(hint.contains("networkMode") && hint.contains("--backend") && !hint.contains("effort=network"), "{told}");
}

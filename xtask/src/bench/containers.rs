//! A no-op in containers: `docker run` with the flags that Cofferdam asks for, and Cofferdam's own backends beside it.

use std::process::Command;

use cofferdam_test_containers::{Engine, Kind, image};
use serde_json::json;

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::time;
use crate::Result;
use crate::shell::run;

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;
/// The exit code of the no-op.
const NOOP: i32 = 7;
/// The measured image.
const IMAGE: &str = "bench:noop";
const DOCKER: &str = "docker run, the same flags";

/// One command in a container: from before its start until the container is gone.
pub(super) fn containers(context: &Context) -> Result<Section> {
    let engine = Engine::shared(Kind::Docker)?;
    let directory = context.programs.directory.join("containers");
    let failed = |error| format!("cannot make {}: {error}", directory.display());
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(failed)?;
    }
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let (root, archive) = (directory.join("root"), directory.join("image.tar"));
    let noop = context.programs.c("noop");
    image::root(&root, &[(noop.as_ref(), "/noop")])?;
    image::archive(&root, &archive, IMAGE, &json!({}))?;
    engine.load(&archive)?;
    let (variable, host) = engine.environment();
    let with = |words: &[&str]| {
        let first = ["env".to_owned(), format!("{variable}={host}")];
        first.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect::<Vec<String>>()
    };
    let cofferdam = context.programs.cofferdam.display().to_string();
    let ours = |backend: &str| {
        let image = if backend == "jail" { ["--root", root.to_str().unwrap_or_default()] } else { ["--image", IMAGE] };
        // Where it is called is no part of an image.
        with(
            &[&[&cofferdam, "run", "--quiet", "--backend", backend], &image[..], &["-w", "/tmp", "--", "/noop"]]
                .concat(),
        )
    };
    let docker = with(&[
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--memory",
        "512m",
        "--memory-swap",
        "512m",
        "--pids-limit",
        "129",
        "--tmpfs",
        "/tmp:rw,noexec,size=255m",
        "--tmpfs",
        "/dev/shm:rw,noexec,size=1m",
        "--security-opt",
        "no-new-privileges",
        "--cap-drop",
        "ALL",
        "--log-driver",
        "none",
        "--user",
        "65534:65534",
        IMAGE,
        "/noop",
    ]);
    let mut candidates = vec![(DOCKER, docker), ("cofferdam, docker", ours("docker"))];
    for (name, backend) in [("crun", "oci:crun"), ("runc", "oci:runc"), ("runsc", "oci:runsc")] {
        if run(Command::new(name).arg("--version").stdout(std::process::Stdio::null())).is_ok() {
            let name = match name {
                "crun" => "cofferdam, oci:crun",
                "runc" => "cofferdam, oci:runc",
                _ => "cofferdam, oci:runsc",
            };
            candidates.push((name, ours(backend)));
        }
    }
    candidates.push(("cofferdam, jail", ours("jail")));
    let mut results: Vec<Result<Samples>> =
        candidates.iter().map(|(_, command)| time(command, NOOP).map(|_| Samples::default())).collect();
    for round in 0..context.pick(40, 5) {
        for turn in 0..candidates.len() {
            let index = (round + turn) % candidates.len();
            if let Ok(samples) = &mut results[index] {
                match time(&candidates[index].1, NOOP) {
                    Ok(elapsed) => samples.0.push(elapsed / MS),
                    Err(error) => results[index] = Err(error),
                }
            }
        }
    }
    let host = host.as_str();
    let rows = candidates.iter().zip(results).map(|((name, command), result)| {
        let command = command[2..].join(" ").replace(host, "…").replace(&directory.display().to_string(), "…");
        Row::new(*name, command, result)
    });
    let section = Section { unit: "ms", peer: DOCKER, rows: rows.collect(), goals: Vec::new() }.with_ratios();
    let goals = vec![Goal {
        text: "`cofferdam run --backend docker` over `docker run` with the same flags".into(),
        reached: section.ratio("cofferdam, docker"),
        bound: Bound::AtMost(1.1),
        aim: "1",
    }];
    Ok(Section { goals, ..section })
}

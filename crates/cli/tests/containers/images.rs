//! Images: their own settings have no effect, and what they lack is reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_test_containers::engine::uid;
use cofferdam_test_containers::{Registry, image};
use serde_json::json;

use crate::Test;
use crate::world::{Run, World, open};

pub(crate) const TESTS: &[Test] = &[
    ("images::an_images_own_settings_do_nothing", an_images_own_settings_do_nothing),
    ("images::an_images_annotations_do_nothing", an_images_annotations_do_nothing),
    ("images::a_device_in_an_image_opens_nothing_of_the_host", a_device_in_an_image),
    ("images::volumes_of_an_image_are_made_nowhere", volumes_of_an_image),
    ("images::scratch_space_over_a_closed_directory_is_writable", scratch_space_where_the_image_has_a_closed_directory),
    ("images::a_link_leads_no_mount_elsewhere", a_link_leads_no_mount_elsewhere),
    ("images::a_volume_is_not_made_in_what_is_bound", a_volume_is_not_made_in_what_is_bound),
    ("images::a_directory_is_an_image", a_directory_is_an_image),
    ("images::no_such_image", no_such_image),
    ("images::no_such_tarball", no_such_tarball),
    ("images::private_registry_uses_credentials_of_docker_login", private_registry),
    ("images::oversized_image_is_refused_unread", too_large),
    ("images::the_plan_names_the_image", the_plan_names_the_image),
    ("images::doctor_lists_container_runtimes_and_their_paths", doctor),
    ("images::eval_runs_the_images_own_interpreter", eval_runs_the_images_own_interpreter),
    ("images::an_image_without_the_program", an_image_without_the_program),
    ("images::an_engine_that_is_not_running", an_engine_that_is_not_running),
];

fn an_images_own_settings_do_nothing(world: &World) {
    let archive = world.path("settings.tar");
    let reference = "cofferdam-test-settings:1";
    let settings = json!({
        "Entrypoint": ["/bin/sh", "-c", "echo the image runs its own"],
        "Cmd": ["/bin/echo", "the image's words"],
        "Env": ["OF_THE_IMAGE=yes", "PATH=/nowhere", "LD_PRELOAD=/nowhere"],
        "User": "1234:1234",
        "WorkingDir": "/home",
        "Volumes": { "/data": {} },
        "Healthcheck": { "Test": ["CMD-SHELL", "touch /tmp/healthy"], "Interval": 1_000_000_000 },
        "Labels": { "cofferdam.run": "cofferdam-0000000000000000", "cofferdam.owner": "1:1:x:1" },
        "StopSignal": "SIGUSR1",
        "ExposedPorts": { "80/tcp": {} }
    });
    image::archive(&world.root, &archive, reference, &settings).unwrap();
    let script =
        "env; id -u; touch /data/x 2>/dev/null && echo wrote; sleep 2.5; test -e /tmp/healthy && echo healthy; exit 6";
    let volumes = world.engine().map(|engine| engine.volumes().unwrap().len());
    let run = match world.engine() {
        Some(engine) => {
            engine.load(&archive).unwrap();
            world.run_in(&["--image", reference], &["/bin/sh", "-c", script])
        }
        None => {
            // A runtime has no store that images are loaded into, and takes a root alone.
            let refused = world.run_in(&["--image", archive.to_str().unwrap()], &["/bin/sh", "-c", script]);
            assert_eq!((refused.code, refused.step()), (125, "image"), "{refused:?}");
            assert!(refused.outcome["error"]["hint"].is_string(), "{refused:?}");
            return;
        }
    };
    assert_eq!(run.code, 6, "{run:?}");
    let said = run.text("stdout");
    for word in ["OF_THE_IMAGE", "LD_PRELOAD", "/nowhere", "1234", "wrote", "healthy", "its own", "words"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    assert!(said.contains("PATH="), "{said}");
    if let (Some(engine), Some(before)) = (world.engine(), volumes) {
        // Others run at the same time, and none of them has a volume.
        assert_eq!(engine.volumes().unwrap().len(), before, "the image got a disk of its own");
    }
}

fn an_images_annotations_do_nothing(world: &World) {
    // Podman alone hands them on to the runtime.
    let Some(engine) = world.engine().filter(|_| world.runtime.backend == "podman") else { return };
    let run = |name: &str, annotations: serde_json::Value| {
        let (archive, reference) = (world.path(name), format!("localhost/cofferdam-test-annotations:{name}"));
        image::layout(&world.root, &archive, &reference, &annotations).unwrap();
        engine.load(&archive).unwrap();
        world.run_in(&["--image", &reference], &["/bin/echo", "ran"])
    };
    let plain = run("plain", json!({ "org.opencontainers.image.title": "a test" }));
    assert_eq!((plain.code, plain.text("stdout")), (0, "ran\n"), "a description: {plain:?}");
    for (i, name) in [
        "run.oci.keep_original_groups",
        "run.oci.hooks.stdout",
        "run.oci.systemd.force_cgroup_v1",
        "org.systemd.property.TasksMax",
        "org.criu.config",
        "of.a.hook.of.the.host",
    ]
    .iter()
    .enumerate()
    {
        let run = run(&format!("obeyed-{i}"), json!({ *name: "1" }));
        assert_eq!((run.code, run.step()), (125, "container"), "{name}: {run:?}");
        let said = run.outcome["error"].to_string();
        assert!(said.contains(name) && said.contains("--backend oci"), "{name}: {said}");
    }
}

fn a_device_in_an_image(world: &World) {
    if uid() != 0 {
        return; // devices are root's to make
    }
    let (console, data) = (world.root.join("data/console"), world.root.join("data"));
    let node = |path: &Path, major, minor| {
        let kind = rustix::fs::FileType::CharacterDevice;
        let (mode, device) = (rustix::fs::Mode::from_raw_mode(0o666), rustix::fs::makedev(major, minor));
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device).unwrap();
        crate::world::open(path, 0o666);
    };
    let script = ["/bin/sh", "-c", "(: <> /data/console) 2>/dev/null && echo opened; echo ran"];
    let images = |name: &str| {
        let mut all = vec![world.path(&format!("{name}.tar")).display().to_string()];
        image::tarball(&world.root, Path::new(&all[0])).unwrap();
        if let Some(engine) = world.engine() {
            let (archive, reference) = (world.path("saved.tar"), format!("cofferdam-test-devices:{name}"));
            image::archive(&world.root, &archive, &reference, &json!({})).unwrap();
            engine.load(&archive).unwrap();
            all.push(reference);
        }
        all
    };
    node(&data.join("null"), 1, 3);
    node(&world.root.join("dev/console"), 5, 1);
    for image in images("harmless") {
        let run = world.run_in(&["-w", "/", "--image", &image], &script);
        assert_eq!((run.code, run.text("stdout")), (0, "ran\n"), "{image}: {run:?}");
    }
    let bind = ["-w", "/", "-v", &format!("{}:/data", data.display()), "--image", world.image.to_str().unwrap()];
    let effort = ["--best-effort=filesystem.mounts"];
    let strict = world.runtime.backend == "oci:runsc";
    let run = world.run_in(&[&bind[..], &effort].concat(), &script);
    assert!(strict || (run.code, run.text("stdout")) == (0, "ran\n"), "{run:?}");
    node(&console, 5, 1);
    for image in images("console") {
        let run = world.run_in(&["-w", "/", "--image", &image], &script);
        let refused = run.code == 125 && run.outcome["error"].to_string().contains("5:1 at /data/console");
        // A runtime's root is unpacked here, without devices.
        let left_out = world.engine().is_none() && run.text("stdout") == "ran\n";
        assert!(refused || left_out, "{image}: {run:?}");
    }
    let run = world.run_in(&[&bind[..], &effort].concat(), &script);
    let refused =
        run.code == 125 && run.outcome["error"].to_string().contains(" is a device, and the program could open it");
    let nodev = !strict && world.runtime.backend != "docker" && run.text("stdout") == "ran\n";
    assert!(refused || nodev, "{run:?}");
}

fn volumes_of_an_image(world: &World) {
    let Some(engine) = world.engine() else { return };
    let seconds = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let image = |name: &str, number: usize| {
        let volumes: serde_json::Map<_, _> = (0..number).map(|i| (format!("/data/{i}"), json!({}))).collect();
        let (archive, reference) = (world.path(name), format!("localhost/cofferdam-test-volumes:{name}"));
        image::archive(&world.root, &archive, &reference, &json!({ "Volumes": volumes })).unwrap();
        engine.load(&archive).unwrap();
        reference
    };
    let begun = seconds();
    let run = world.run_in(&["--image", &image("some", 3)], &["/bin/sh", "-c", "touch /data/2/x || echo covered"]);
    assert_eq!((run.code, run.text("stdout")), (0, "covered\n"), "{run:?}");
    if world.runtime.backend == "docker" {
        // Also none that is removed again: its owner may be killed before that.
        let until = seconds() + 1;
        let path = format!("/events?since={begun}&until={until}&filters=%7B%22type%22%3A%5B%22volume%22%5D%7D");
        let events = engine.api("GET", &path, None).unwrap();
        let said = String::from_utf8_lossy(&events.body).into_owned();
        assert!(events.status == 200 && !said.contains("create"), "{said}");
    }
    let run = world.run_in(&["--image", &image("many", 101)], &["/bin/true"]);
    assert_eq!((run.code, run.step()), (125, "image"), "{run:?}");
    assert!(run.outcome["error"].to_string().contains("declares 101 volumes"), "{run:?}");
}

fn scratch_space_where_the_image_has_a_closed_directory(world: &World) {
    let tarball = world.path("closed.tar");
    for name in ["tmp", "var/tmp"] {
        let directory = world.root.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    image::tarball(&world.root, &tarball).unwrap();
    let mut images = vec![tarball.display().to_string()];
    if let Some(engine) = world.engine() {
        let (archive, reference) = (world.path("closed-volume.tar"), "cofferdam-test-closed:1");
        image::archive(&world.root, &archive, reference, &json!({ "Volumes": { "/tmp": {}, "/var/tmp": {} } }))
            .unwrap();
        engine.load(&archive).unwrap();
        images.push(reference.to_owned());
    }
    for image in &images {
        for options in [&[][..], &["--network", "loopback"], &["--allow", "a.example"], &["--tmpfs", "/var/tmp"]] {
            if world.runtime.backend == "oci:runsc" && options.contains(&"--allow") {
                continue; // its network has no way to hosts
            }
            let options = [&["--image", image], options].concat();
            let script = "id -u; stat -c %a /tmp; echo x >/tmp/x && cat /tmp/x";
            let run = world.run_in(&options, &["/bin/sh", "-c", script]);
            // These cannot be given an owner: Podman's file systems in memory, and those in the place of Docker's volumes.
            let by_mode = world.runtime.backend == "podman" || (world.engine().is_some() && image == &images[1]);
            if by_mode && run.code == 125 {
                let hint = run.outcome["error"]["hint"].as_str().unwrap_or_default();
                assert!(hint.contains("chmod 1777 /tmp in the image"), "{options:?} {run:?}");
                continue;
            }
            let lines: Vec<&str> = run.text("stdout").lines().collect();
            assert!(run.code == 0 && lines.len() == 3 && lines[2] == "x", "{options:?} {run:?}");
            // Without root a runtime maps the caller alone, as the 0 that it needs there.
            assert!(lines[0] != "0" || uid() != 0, "{options:?} {run:?}");
        }
    }
}

/// A directory of the host with one file, which everybody may write.
fn bound(world: &World) -> std::path::PathBuf {
    let bound = world.path("bound");
    std::fs::create_dir(&bound).unwrap();
    std::fs::write(bound.join("marker"), "of the host\n").unwrap();
    open(&bound, 0o777);
    open(&bound.join("marker"), 0o666);
    bound
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

const EFFORT: &str = "--best-effort=filesystem,limits";

fn a_link_leads_no_mount_elsewhere(world: &World) {
    use std::os::unix::fs::symlink;
    let (bound, tarball) = (bound(world), world.path("linked.tar"));
    std::fs::create_dir_all(world.root.join("run")).unwrap();
    std::fs::create_dir_all(world.root.join("var")).unwrap();
    symlink("../run", world.root.join("var/run")).unwrap();
    let run = |target: &str, access: &str| {
        image::tarball(&world.root, &tarball).unwrap();
        let mount = format!("{}:{target}:{access}", bound.display());
        let options = ["-w", "/", EFFORT, "-v", &mount, "--image", tarball.to_str().unwrap()];
        world.run_in(&options, &["/bin/sh", "-c", &format!("cat {target}/marker; ls {target}")])
    };
    for access in ["ro", "rw,exec"] {
        let ran = run("/var/run/shown", access);
        assert_eq!((ran.code, ran.text("stdout")), (0, "of the host\nmarker\n"), "the twin: {ran:?}");
    }
    for (link, says, target) in [
        ("t", "/dev", "/t"),
        ("t", "..", "/t"),
        ("t", "/proc", "/t"),
        ("t", "sys", "/t"),
        ("t", "/tmp/x", "/t"),
        ("t", "/", "/t/tmp"),
        ("var/t", "../dev", "/var/t/below"),
    ] {
        symlink(says, world.root.join(link)).unwrap();
        for access in ["ro", "rw,exec"] {
            let refused = run(target, access);
            assert_eq!(names(&bound), ["marker"], "{link} {says} {access}: {refused:?}");
            assert_eq!((refused.code, refused.step()), (125, "image"), "{link} {says} {access}: {refused:?}");
            assert!(refused.outcome["error"].to_string().contains("symbolic link of the image leads"), "{refused:?}");
            assert!(refused.outcome["error"]["hint"].is_string(), "{refused:?}");
        }
        std::fs::remove_file(world.root.join(link)).unwrap();
    }
}

fn a_volume_is_not_made_in_what_is_bound(world: &World) {
    let Some(engine) = world.engine() else { return };
    let bound = bound(world);
    let run = |name: &str, volumes: serde_json::Value| {
        let (archive, reference) = (world.path(name), format!("localhost/cofferdam-test-bound:{name}"));
        image::archive(&world.root, &archive, &reference, &json!({ "Volumes": volumes })).unwrap();
        engine.load(&archive).unwrap();
        let mount = format!("{}:/t:rw,exec", bound.display());
        world.run_in(&["-w", "/", EFFORT, "-v", &mount, "--image", &reference], &["/bin/ls", "/t"])
    };
    let ran = run("beside", json!({ "/t": {}, "/data/t": {}, "/tmp/deep": {} }));
    assert_eq!((ran.code, ran.text("stdout")), (0, "marker\n"), "the twin: {ran:?}");
    for (name, volume) in [("hooks", "/t/.git/hooks"), ("dots", "/data/../t/.git"), ("slashes", "//t/./.bashrc/")] {
        let refused = run(name, json!({ volume: {} }));
        assert_eq!(names(&bound), ["marker"], "{volume}: {refused:?}");
        assert_eq!((refused.code, refused.step()), (125, "image"), "{volume}: {refused:?}");
        let said = refused.outcome["error"].to_string();
        assert!(said.contains("declares the volume") && said.contains("hint"), "{volume}: {refused:?}");
    }
}

fn a_directory_is_an_image(world: &World) {
    let run = world.run_in(&["--image", world.root.to_str().unwrap()], &["/bin/cat", "/etc/of-the-image"]);
    assert_eq!((run.code, run.text("stdout")), (0, "made for a test\n"), "{run:?}");
    let written = world.run_in(&["--image", world.root.to_str().unwrap()], &["/bin/touch", "/data/x"]);
    assert_eq!((written.code == 0, world.root.join("data/x").exists()), (false, false), "{written:?}");
}

fn no_such_image(world: &World) {
    let run = world.run_in(&["--image", "127.0.0.1:9/cofferdam-test-none:1"], &["/bin/true"]);
    assert_eq!((run.code, run.text("outcome"), run.step()), (125, "setup_failed", "image"), "{run:?}");
    assert!(run.outcome["error"]["message"].to_string().contains("cofferdam-test-none"), "{run:?}");
    assert!(run.outcome["error"]["hint"].is_string(), "{run:?}");
}

fn no_such_tarball(world: &World) {
    for (name, contents) in [("none.tar", None), ("bad.tar", Some("this is no tarball\n"))] {
        let path = world.path(name);
        if let Some(text) = contents {
            std::fs::write(&path, text).unwrap();
        }
        let run = world.run_in(&["--image", path.to_str().unwrap()], &["/bin/true"]);
        assert_eq!((run.code, run.text("outcome")), (125, "setup_failed"), "{name}: {run:?}");
        if contents.is_some() {
            assert!(["image", "filesystem.root"].contains(&run.step()), "{name}: {run:?}");
            continue;
        }
        // What does not exist is reported before anything is planned.
        let error = &run.outcome["error"];
        assert!(error["message"].to_string().contains("none.tar") && error["hint"].is_string(), "{run:?}");
        let shown = world.command().args(["--dry-run", "--image", "./none.tar", "--", "/bin/true"]).output().unwrap();
        let said = String::from_utf8_lossy(&shown.stderr);
        assert_eq!(shown.status.code(), Some(125), "{said}");
        assert!(shown.stdout.is_empty() && said.contains("none.tar") && said.contains("hint: "), "{said}");
    }
    let shown = world.command().args(["--dry-run", "--image", "./bad.tar", "-w", "/", "--", "/bin/true"]).output();
    assert!(shown.unwrap().status.success(), "the twin: what is in it nobody has looked at yet");
}

fn private_registry(world: &World) {
    if world.runtime.backend != "docker" {
        return; // Podman looks for credentials itself, and a runtime has no store of its own
    }
    let once = world.path("once");
    image::root(&once, &[]).unwrap();
    std::fs::write(once.join("etc/once"), world.path("once").display().to_string()).unwrap();
    let layer = world.path("layer.tar");
    image::tarball(&once, &layer).unwrap();
    let layer = std::fs::read(layer).unwrap();
    // In the header that Docker reads there is what the usual base64 has signs for that this one has not.
    let (secret, packed) = ("~~~???>>>", "dTp+fn4/Pz8+Pj4=");
    let name = format!("cofferdam/private-{}", std::process::id());
    let registry = Registry::serve(layer, &name, Some(packed)).unwrap();
    let config = world.path("docker");
    std::fs::create_dir(&config).unwrap();
    let run = |auths: serde_json::Value| {
        std::fs::write(config.join("config.json"), json!({ "auths": auths }).to_string()).unwrap();
        let mut command = world.command();
        command.env("DOCKER_CONFIG", &config).args(["--json", "-w", "/", "--image", &registry.tagged("1")]);
        let output = command.args(["--", "/bin/cat", "/etc/of-the-image"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let outcome: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {message}"));
        for said in [&message, &outcome.to_string()] {
            assert!(!said.contains(secret) && !said.contains(packed), "a credential is shown: {said}");
        }
        Run { code: output.status.code().unwrap_or(-1), outcome }
    };
    let address = format!("127.0.0.1:{}", registry.port);
    for auths in [json!({}), json!({ "registry.example": { "auth": packed } }), json!({ &address: { "auth": "dTpx" } })]
    {
        let refused = run(auths);
        assert_eq!((refused.code, refused.step()), (125, "image"), "{refused:?}");
        assert!(refused.outcome["error"]["hint"].to_string().contains("login"), "{refused:?}");
    }
    let ran = run(json!({ &address: { "auth": packed } }));
    assert_eq!((ran.code, ran.text("stdout")), (0, "made for a test\n"), "{ran:?}");
}

fn too_large(world: &World) {
    // Nothing of it is there: it is one hole.
    let path = world.path("large.tar");
    std::fs::File::create(&path).unwrap().set_len(17 << 30).unwrap();
    let run = world.run_in(&["--image", path.to_str().unwrap()], &["/bin/true"]);
    assert_eq!((run.code, run.text("outcome")), (125, "setup_failed"), "{run:?}");
    let error = &run.outcome["error"];
    assert!(error["message"].to_string().contains("17179869184 bytes") && error["hint"].is_string(), "{run:?}");
}

fn the_plan_names_the_image(world: &World) {
    if world.engine().is_none() {
        return; // a bundle names a directory
    }
    for (options, named) in [
        (["--image", "registry.example/tools:1"], "registry.example/tools:1".to_owned()),
        (["--image", world.image.to_str().unwrap()], format!("imported from {}", world.image.display())),
        (["--root", "minimal"], "cofferdam/rootfs:made-".to_owned()),
    ] {
        let mut command = world.command();
        let output = command.args(options).args(["--dry-run", "-w", "/", "--", "/bin/true"]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let line = shown.lines().find(|line| line.contains("\"Image\"")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains(&named), "{line}");
    }
}

fn doctor(world: &World) {
    let doctor_output = |json: bool| {
        let mut command = world.cofferdam();
        command.args(["doctor", if json { "--json" } else { "--verbose" }]);
        command.output().unwrap().stdout
    };
    let report: serde_json::Value = serde_json::from_slice(&doctor_output(true)).unwrap();
    let mine = |row: &&serde_json::Value| row["backend"] == world.runtime.backend;
    let row = report["containers"].as_array().unwrap().iter().find(mine).unwrap_or_else(|| panic!("{report}"));
    let (version, place) = (row["version"].as_str().unwrap(), row["place"].as_str().unwrap());
    assert!(version.contains(|c: char| c.is_ascii_digit()), "{row}");
    match world.engine() {
        Some(engine) => assert!(engine.environment().1.ends_with(place), "{row}"),
        None => assert!(place.starts_with('/') && std::path::Path::new(place).is_file(), "{row}"),
    }
    let text = String::from_utf8(doctor_output(false)).unwrap();
    let line = format!("  {}: version {version}, {place}", world.runtime.backend);
    assert!(text.contains(&line), "{line}: {text}");
}

fn eval_runs_the_images_own_interpreter(world: &World) {
    for image in [Path::new(&world.image), &world.root] {
        // The image's shell is busybox, and that is all that is in it.
        let ran = eval_in(world, image, "shell", "cat /etc/of-the-image; busybox | head -c 7");
        assert_eq!((ran.code, ran.text("stdout")), (0, "made for a test\nBusyBox"), "{image:?} {ran:?}");
        let lacking = eval_in(world, image, "python", "print(1)");
        assert_eq!((lacking.code, lacking.text("outcome")), (127, "setup_failed"), "{image:?} {lacking:?}");
        let error = lacking.outcome["error"].to_string();
        assert!(error.contains("python3: ") && !error.contains("mount target"), "{image:?} {lacking:?}");
        assert!(image == world.root || error.contains("another image"), "{lacking:?}");
    }
}

fn eval_in(world: &World, image: &Path, environment: &str, code: &str) -> Run {
    let mut command = world.cofferdam();
    command.args(["eval", "--json", "--backend", world.runtime.backend, "--image"]).arg(image);
    let output = command.args([environment, code]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    Run { code: output.status.code().unwrap_or(-1), outcome }
}

fn an_image_without_the_program(world: &World) {
    let (root, tarball) = (world.path("bare"), world.path("bare.tar"));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/only"), "only this\n").unwrap();
    image::tarball(&root, &tarball).unwrap();
    let run = world.run_in(&["--image", tarball.to_str().unwrap()], &["/bin/sh", "-c", "true"]);
    assert_eq!((run.code, run.text("outcome")), (127, "setup_failed"), "{run:?}");
}

fn an_engine_that_is_not_running(world: &World) {
    let Some(engine) = world.engine() else { return };
    let (name, _) = engine.environment();
    let mut command = world.command();
    command.env(name, "unix:///nonexistent/engine.sock").args(["--json", "--image", "any:1", "--", "/bin/true"]);
    let output = command.output().unwrap();
    let outcome: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!((output.status.code(), outcome["error"]["step"].as_str()), (Some(125), Some("engine")), "{outcome}");
    assert!(outcome["error"]["hint"].is_string(), "{outcome}");
}

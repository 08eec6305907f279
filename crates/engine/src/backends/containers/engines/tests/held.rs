//! What an engine reports is compared with what was asked for: each thing that matters, with each engine's own words.

use serde_json::json;

use super::super::verify::differences;
use super::*;

/// Where the description is changed, and to what; each makes a container that was not asked for.
fn weaker(podman: bool) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("/HostConfig/Privileged", json!(true)),
        ("/HostConfig/Privileged", Value::Null),
        ("/HostConfig/ReadonlyRootfs", json!(false)),
        ("/HostConfig/SecurityOpt", json!([])),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges:false"])),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "seccomp=unconfined"])),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "label=disable"])),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "unmask=ALL"])),
        ("/HostConfig/NetworkMode", json!("bridge")),
        ("/HostConfig/NetworkMode", json!("host")),
        ("/HostConfig/PidMode", json!("host")),
        ("/HostConfig/UTSMode", json!("host")),
        ("/HostConfig/IpcMode", json!("host")),
        ("/HostConfig/UsernsMode", json!("host")),
        ("/HostConfig/Devices", json!([{ "PathOnHost": "/dev/kvm" }])),
        ("/HostConfig/DeviceRequests", json!([{ "Count": -1 }])),
        ("/HostConfig/GroupAdd", json!(["docker"])),
        ("/HostConfig/VolumesFrom", json!(["other"])),
        ("/HostConfig/PortBindings", json!({ "80/tcp": [] })),
        ("/HostConfig/PublishAllPorts", json!(true)),
        ("/HostConfig/LogConfig/Type", json!("journald")),
        ("/HostConfig/RestartPolicy/Name", json!("always")),
        ("/HostConfig/AutoRemove", json!(true)),
        ("/HostConfig/OomKillDisable", json!(true)),
        ("/HostConfig/Tmpfs", json!({})),
        ("/HostConfig/Tmpfs/~1tmp", json!("rw,exec,nosuid,nodev,size=1048576,mode=1777,uid=65534,gid=65534")),
        ("/HostConfig/Tmpfs/~1tmp", json!("rw,noexec,nosuid,nodev,mode=1777,uid=65534,gid=65534")),
        ("/HostConfig/Tmpfs/~1etc", json!("rw")),
        ("/Mounts", json!([])),
        ("/Mounts/0/RW", json!(false)),
        ("/Mounts/0/Source", json!("/")),
        ("/Mounts/0/Type", json!("volume")),
        ("/Mounts/7", json!({ "Type": "volume", "Destination": "/data", "Source": "x", "RW": true })),
        ("/Mounts/7", json!({ "Type": "bind", "Destination": "/host", "Source": "/", "RW": false })),
        ("/Config/User", json!("4:4")),
        ("/Config/User", json!("")),
        ("/Config/Tty", json!(true)),
        ("/Config/OpenStdin", json!(true)),
        ("/Config/Labels/cofferdam.run", json!("other")),
        ("/Config/Hostname", json!("other")),
        ("/Path", json!("/bin/other")),
        ("/Args", json!(["-c", "other"])),
        ("/Image", json!(format!("sha256:{}", "0".repeat(64)))),
    ];
    if podman {
        all.extend([("/EffectiveCaps", json!(["CAP_NET_RAW"])), ("/BoundingCaps", json!(["CAP_SYS_ADMIN"]))]);
        all.push(("/OCIRuntime", json!("runsc")));
        all.push(("/Config/Annotations", json!({ "run.oci.keep_original_groups": "1" })));
    } else {
        all.extend([
            ("/HostConfig/CapAdd", json!(["SYS_ADMIN"])),
            ("/HostConfig/CapDrop", json!(["NET_RAW"])),
            ("/HostConfig/CgroupnsMode", json!("host")),
            ("/HostConfig/MaskedPaths", json!([])),
            ("/HostConfig/MaskedPaths", Value::Null),
            ("/HostConfig/ReadonlyPaths", json!([])),
        ]);
    }
    all
}

/// With one thing changed; a place that is not there yet is made.
fn changed(told: &Value, pointer: &str, value: &Value) -> Value {
    let mut told = told.clone();
    let (above, name) = pointer.rsplit_once('/').expect("a pointer");
    let name = name.replace("~1", "/");
    match told.pointer_mut(above).expect("it tells of it") {
        Value::Array(list) => match name.parse::<usize>().ok().and_then(|index| list.get_mut(index)) {
            Some(place) => *place = value.clone(),
            None => list.push(value.clone()),
        },
        Value::Object(map) => {
            map.insert(name, value.clone());
        }
        other => panic!("{pointer} is in {other}"),
    }
    told
}

#[test]
fn every_weaker_container_is_found_out() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    for Pair { kind, engine, .. } in pairs() {
        let about = engine.about().expect("about");
        let ConnectedEngine { client, what, .. } = engine.known().expect("known");
        let asked = bounded(spec(root.clone(), &work.path().join(format!("{kind:?}")), "true"), &about);
        let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("a root");
        let body = create::body(&asked, &ready, what).expect("it can be said");
        let options = CreateContainerOptions { name: Some(asked.id.clone()), ..CreateContainerOptions::default() };
        let sent = body.clone();
        client
            .call(WORK, move |docker| async move { docker.create_container(Some(options), sent).await })
            .expect("created");
        let libpod = if kind == Kind::Docker { "" } else { "/v4.0.0/libpod" };
        let told = client.json(format!("{libpod}/containers/{}/json", asked.id)).expect("told");
        remove(client, &asked.id, WORK).expect("removed");
        assert_eq!(differences(&body, &told, what), Vec::<String>::new(), "{kind:?}: as it was asked for");
        let mut all = weaker(kind != Kind::Docker);
        if about.limits {
            all.extend([
                ("/HostConfig/Memory", json!(0)),
                ("/HostConfig/MemorySwap", json!(-1)),
                ("/HostConfig/PidsLimit", Value::Null),
                ("/HostConfig/PidsLimit", json!(0)),
            ]);
        }
        for (pointer, value) in all {
            let found = differences(&body, &changed(&told, pointer, &value), what);
            assert!(!found.is_empty(), "{kind:?}: {pointer} is {value}, and nobody minds");
        }
        assert!(!differences(&body, &json!({}), what).is_empty(), "{kind:?}: an engine that tells nothing");
    }
}

//! Other processes of the same user: their signals, limits and sockets are out of a command's reach, on every version
//! of Landlock up to this kernel's. Each denial has its control on the same victim.

#![cfg(target_os = "linux")]

mod probe;

use cofferdam_command::{ConfinementRule, RuleStrength};
use probe::{Scratch, confined, plain, restricted, run, versions};
use tokio::process::Command;

#[tokio::test]
async fn signals_reach_only_the_commands_own_processes() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let mut victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = victim.id().unwrap();
        for call in ["kill", "quit"] {
            assert_eq!(run(restricted(abi, &data), &format!("{call} {pid}")).await, "EPERM", "{abi}: {call}");
        }
        assert_eq!(
            run(restricted(abi, &data), &format!("kill {}", std::process::id())).await,
            "EPERM",
            "{abi}: its caller"
        );
        assert!(victim.try_wait().unwrap().is_none(), "{abi}: it lives");
        for own in ["kill-own", "kill-own-group", "abort-own"] {
            assert_eq!(run(restricted(abi, &data), own).await, "done", "{abi}: {own}");
        }
        assert_eq!(run(plain(), &format!("kill {pid}")).await, "done");
        assert!(!victim.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn limits_of_other_processes_are_out_of_reach() {
    let limits = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        text.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned()
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = victim.id().unwrap();
        let before = limits(pid);
        assert_eq!(run(restricted(abi, &data), &format!("limit {pid}")).await, "EPERM", "{abi}");
        assert_eq!(limits(pid), before, "{abi}");
        let caller = format!("limit {}", std::process::id());
        assert_eq!(run(restricted(abi, &data), &caller).await, "EPERM", "{abi}: its caller");
        assert_eq!(run(restricted(abi, &data), "limit-own").await, "done", "{abi}: its own");
        assert_eq!(run(plain(), &format!("limit {pid}")).await, "done");
        assert_ne!(limits(pid), before);
    }
}

#[tokio::test]
async fn sockets_of_other_processes_are_out_of_reach() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let path = scratch.path().join("outside.sock");
    let name = format!("cofferdam-test-{}", std::process::id());
    let _by_path = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let _by_name = probe::abstract_listener(&name);
    let words = [format!("connect-path {}", path.display()), format!("connect-abstract {name}")];
    for abi in versions() {
        for words in &words {
            let refused = run(restricted(abi, &data), words).await;
            assert_eq!(refused, "EAFNOSUPPORT", "{abi}: {words}");
        }
        assert_eq!(run(restricted(abi, &data), "socketpair").await, "done", "{abi}: a pair of its own");
    }
    for words in &words {
        assert_eq!(run(plain(), words).await, "done", "{words}: without walls");
    }
    // Granted, it is Landlock's to keep abstract sockets apart, and paths are what was granted.
    for abi in versions() {
        let granted = confined(abi, &data).unix_sockets(true);
        if abi < 6 {
            let error = granted.clone().command().unwrap_err().to_string();
            assert!(error.contains("abstract sockets held not at all") && error.contains("hint: "), "{error}");
            continue;
        }
        let (command, _) = granted.clone().command().unwrap();
        assert_eq!(run(command, &words[1]).await, "EPERM", "{abi}");
        let (command, _) = granted.command().unwrap();
        assert_eq!(run(command, &words[0]).await, "done", "{abi}");
    }
}

#[tokio::test]
async fn the_network_is_available_unless_refused() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let words = format!("tcp {}", listener.local_addr().unwrap());
    for abi in versions() {
        assert_eq!(run(restricted(abi, &data), &words).await, "done", "{abi}");
        let (command, enforcement) =
            confined(abi, &data).network(cofferdam_command::CommandNetwork::None).command().unwrap();
        assert_eq!(enforcement.of(ConfinementRule::Network), Some(RuleStrength::Full));
        assert_eq!(run(command, &words).await, "EAFNOSUPPORT", "{abi}");
        let (command, _) = confined(abi, &data).network(cofferdam_command::CommandNetwork::None).command().unwrap();
        assert_eq!(run(command, "udp 127.0.0.1:9").await, "EAFNOSUPPORT", "{abi}");
    }
}

#[tokio::test]
async fn scheduling_of_other_processes_is_out_of_reach() {
    // The command's name may have spaces in it; what is wanted stands behind it.
    let seen = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned();
        (rest.split_whitespace().nth(16).unwrap().to_owned(), allowed)
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = victim.id().unwrap();
        let before = (seen(pid), seen(std::process::id()));
        for words in [
            format!("priority {pid}"),
            format!("processors {pid}"),
            format!("priority {}", std::process::id()),
            "priority-group".to_owned(),
            "priority-user".to_owned(),
        ] {
            assert_eq!(run(restricted(abi, &data), &words).await, "EPERM", "{abi}: {words}");
        }
        assert_eq!((seen(pid), seen(std::process::id())), before, "{abi}");
        for own in ["priority-own", "processors-own"] {
            assert_eq!(run(restricted(abi, &data), own).await, "done", "{abi}: {own}");
        }
        for words in [format!("priority {pid}"), format!("processors {pid}")] {
            assert_eq!(run(plain(), &words).await, "done", "{words}: without walls");
        }
        assert_eq!(seen(pid).0, "5");
    }
}

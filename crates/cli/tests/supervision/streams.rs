//! Standard input and output: their caps, and who waits for whom.

use super::*;

#[test]
fn output_beyond_the_limit_is_drained_without_blocking() {
    let start = Instant::now();
    let mut child = cofferdam()
        .args([
            "run",
            "--json",
            "--output-limit",
            "1m",
            "--timeout",
            "50s",
            "--",
            "head",
            "-c",
            "200000000",
            "/dev/zero",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    // The largest resident set so far, until the answer comes.
    let mut peak = 0;
    let status = format!("/proc/{}/status", child.id());
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || stdout.read_to_string(&mut text).map(|_| text).unwrap());
    while child.try_wait().unwrap().is_none() {
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let line = now.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0");
        peak = peak.max(line.split_whitespace().next().unwrap_or("0").parse::<u64>().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    let o: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    ended(&o, "exited", None);
    assert_eq!(o["exit_code"], 0);
    assert_eq!(o["truncated"], serde_json::json!({"stdout": true, "stderr": false}));
    assert_eq!(o["stdout"].as_str().unwrap().len(), 1 << 20);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(peak < 64 << 10, "{peak} KiB resident for 1 MiB of output");
}

#[test]
fn each_stream_has_a_cap_of_its_own() {
    let o = run(&["--output-limit", "10"], "echo short; printf 0123456789abc >&2");
    assert_eq!((&o["stdout"], &o["stderr"]), (&"short\n".into(), &"0123456789".into()));
    assert_eq!(o["truncated"], serde_json::json!({"stdout": false, "stderr": true}));
    let o = run(&["--output-limit", "10"], "printf 0123456789");
    assert_eq!(o["truncated"], serde_json::json!({"stdout": false, "stderr": false}), "exactly the cap is not cut");
}

/// Feeds `bytes` to the command and returns what comes out and the exit code.
fn through(arguments: &[&str], bytes: Vec<u8>) -> (Vec<u8>, Option<i32>) {
    let mut child = cofferdam().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that ends early breaks the pipe.
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).ok());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    (output.stdout, output.status.code())
}

#[test]
fn a_large_stream_goes_in_and_comes_out_whole() {
    let bytes: Vec<u8> = (0..10 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (back, code) = through(&["run", "-i", "--output-limit", "20m", "--", "cat"], bytes.clone());
    assert_eq!(code, Some(0));
    assert!(back == bytes, "{} of {} bytes", back.len(), bytes.len());
}

#[test]
fn a_program_may_close_its_standard_input_early() {
    let (back, code) =
        through(&["run", "-i", "--", "sh", "-c", "head -c 3; exec <&-; sleep 0.2; exit 4"], vec![b'x'; 1 << 20]);
    assert_eq!((back.as_slice(), code), (&b"xxx"[..], Some(4)));
    let (_, code) = through(&["run", "-i", "--", "true"], vec![b'x'; 1 << 20]);
    assert_eq!(code, Some(0));
}

#[test]
fn an_endless_input_does_not_outlive_the_program() {
    let start = Instant::now();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let status = cofferdam().args(["run", "-i", "--", "sh", "-c", "exit 6"]).stdin(zero).status().unwrap();
    assert_eq!(status.code(), Some(6));
    // A pipe that is neither written to nor closed.
    let (_open, idle) = rustix::pipe::pipe().map(|(r, w)| (w, r)).unwrap();
    let status = cofferdam().args(["run", "-i", "--", "sh", "-c", "exit 7"]).stdin(idle).status().unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn text_on_standard_input_may_be_longer_than_a_pipe() {
    let text = "0123456789abcdef".repeat(6000);
    let o = outcome(&["run", "--json", "--stdin", &text, "--", "md5sum"]).1;
    let expected = "b90d9b1c8e1d4a3d"; // only that it is one digest and not that of nothing
    assert_ne!(o["stdout"], "d41d8cd98f00b204e9800998ecf8427e  -\n", "{expected}");
    let o = outcome(&["run", "--json", "--stdin", &text, "--", "wc", "-c"]).1;
    assert_eq!(o["stdout"].as_str().unwrap().trim(), "96000");
}

#[test]
fn a_slow_reader_slows_the_program_down_and_loses_nothing() {
    let mut child = cofferdam()
        .args(["run", "--output-limit", "100m", "--timeout", "30s", "--", PYTHON, "-c"])
        .arg("import sys,time\nstart=time.time()\nfor i in range(40000): sys.stdout.write(f'{i:06d} '+'x'*100+chr(10))\nsys.stdout.flush()\nprint(time.time()-start, file=sys.stderr)")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let output = child.stdout.take().map(|mut out| {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    });
    let message = child.wait_with_output().unwrap().stderr;
    let lines: Vec<String> = output.unwrap().lines().map(|l| l[..6].to_owned()).collect();
    assert_eq!(lines.len(), 40000);
    assert!(lines.iter().enumerate().all(|(i, l)| *l == format!("{i:06}")));
    let message = String::from_utf8(message).unwrap();
    let waited: f64 = message.lines().next().unwrap().parse().unwrap();
    assert!(waited > 0.5, "the program was held up for {waited} s");
}
